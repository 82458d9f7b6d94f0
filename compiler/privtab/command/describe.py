"""`privtab describe`: show a resolved policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from privtab.base.caching import no_collection
from privtab.base.user_cache import known_revision
from privtab.base.worker import LARGE, beside
from privtab.command._options import PolicyArguments
from privtab.command._output import FormatOption, err, out, print_if_data, table

if TYPE_CHECKING:
    from privtab.command._terminal import Terminal

PANEL = "Ask"

UNKNOWN_REVISION = "not computed yet: `privtab compile` and `--format json` do"
MAX_PRIVILEGES = 1_000
"""Maximum privileges shown as text."""


def run(policy: PolicyArguments, format_: FormatOption = "text") -> None:
    """Show a resolved policy: entities, privileges, and each row with its minimal sets, effects and source.

    The text shows the revision of a policy of 1,000 rows or more only if it is known, since computing it takes longer.

    Example:
      privtab describe cdap/final
      privtab describe gravitino/1.1.0 --format json
      privtab describe cdap/final@namespace/list=parent
    """
    from privtab.backends.describe import described_policy as described
    from privtab.pipeline import policy_revision

    with no_collection(keep=True), err().spinner("describing", after=1.0):
        program = policy.program()
        large = len(program.rules) >= LARGE
        revision: Callable[[], str | None]
        if large and format_ == "text":
            # Compiling a large policy for this one line takes longer than all the others.
            revision = partial(known_revision, program)
        else:
            revision = beside(partial(policy_revision, program, parallel=True), large=large)
        value = described(program, revision="") | {"revision": revision()}
    if not print_if_data(format_, value):
        _show(out(), value)


def _show(console: Terminal, policy: dict[str, Any]) -> None:
    console.print_styled((f"{policy['system']} {policy['version']}", "bold"), f"  {policy['title'] or ''}")
    console.print(f"revision {policy['revision'] or UNKNOWN_REVISION}", style="dim")
    own = ", ".join(f"{d['inheritance']} for {name}" for name, d in policy["privileges"].items() if "inheritance" in d)
    inheritance = policy["semantics"]["inheritance"] + (f" ({own})" if own else "")
    console.print(f"inheritance {inheritance}, deny {policy['semantics']['deny']}", style="dim")
    console.print()
    _entities(console, policy["entities"])
    _names(console, policy)
    rows: dict[str, list[dict[str, Any]]] = {entity: [] for entity in policy["entities"]}
    for row in policy["operations"]:
        rows[row["entity"]].append(row)
    for entity, entity_rows in rows.items():
        if entity_rows:
            _rows(console, entity, entity_rows)


def _entities(console: Terminal, entities: dict[str, Any]) -> None:
    """Print the containment forest, indented."""
    from privtab.backends.describe import type_forest

    console.print("entities", style="bold")
    for name, depth in type_forest(entities):
        entity = entities[name]
        notes = [f"{key} {value}" for key, value in entity.items() if key in {"title", "principal"}]
        notes += ["single"] * ("single" in entity)
        notes += ["flat ids"] * ("flat" in entity or "opaque" in entity)
        notes += [f"nested: at most {entity['nested']} levels"] if "nested" in entity else []
        console.print(f"  {'  ' * depth}{name}", end="")
        console.print(f"  ({', '.join(notes)})" if notes else "", style="dim")
    console.print()


def _names(console: Terminal, policy: dict[str, Any]) -> None:
    all_types = list(policy["entities"])
    privileges = table("privilege", "on", "note")
    for name, privilege in islice(policy["privileges"].items(), MAX_PRIVILEGES):
        types = "every type" if privilege["on"] == all_types else ", ".join(privilege["on"])
        notes = [f"alias of {privilege['alias_of']}"] if "alias_of" in privilege else []
        notes += [f"deprecated: {privilege['deprecated']}"] if "deprecated" in privilege else []
        privileges.add_row(name, types, "; ".join(notes))
    console.print(privileges)
    console.more(len(policy["privileges"]) - MAX_PRIVILEGES, "privileges", "`--format json` lists them")
    for name, members in policy["sets"].items():
        console.print(f"{name} = {', '.join(members)}", soft_wrap=False)
    for name, text in policy.get("conditions", {}).items():
        console.print(f"{name} = {text}", soft_wrap=False)
    for name, role in policy["roles"].items():
        scopes = [role["scope"]] if isinstance(role["scope"], str) else role["scope"] or ()
        scope = f" (in a scope: {' or '.join(scopes)})" if scopes else ""
        console.print(f"role {name}{scope}", style="bold")
        for type_, names in role["grants"].items():
            console.print(f"  {type_}: {', '.join(names)}", soft_wrap=False)
    for conflict in policy["conflicts"]:
        console.print(f"no role holds more than {conflict['at_most']} of {', '.join(conflict['operations'])}", end="")
        console.print(f"  {conflict['why'] or ''}", style="dim")
    console.print()


def _rows(console: Terminal, entity: str, rows: list[dict[str, Any]]) -> None:
    from privtab.backends.describe import minimal_set_texts

    grid = table(entity, "needs", "smallest sets that suffice", "on success", "source")
    for row in rows:
        needs = row["requires"] or ""
        if row["each"]:
            needs += (
                ("\n" if needs else "")
                + f"each: {row['each']}"
                + (f" (report: {row['report']})" if row["report"] else "")
            )
        name = row["operation"] if row["from"] == "row" else f"{row['operation']} (core)"
        source = row["source"]
        position = "" if source is None else f"line {source['line']}" if source["line"] else source["document"]
        sets = "\n".join(title + "\nor ".join(found) for title, found in minimal_set_texts(row, "")[0])
        grid.add_row(name, needs, sets, "\n".join(row["effects"]), position)
    console.print(grid, crop=False)
    for remark, operations in _remarks(rows).items():
        console.print(f"  {', '.join(operations)}: {remark}", style="dim")
    console.print()


def _remarks(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The notes on rows, each with the operations it applies to."""
    from privtab.backends.describe import minimal_set_texts

    remarks: dict[str, list[str]] = {}
    for row in rows:
        notes = [f"sql `{row['sql']}`"] if "sql" in row else []
        notes += [row["note"]] if row["note"] else []
        notes += [f"every request says {flag}: true or false" for flag in row.get("required_flags", ())]
        notes += [f"deprecated: {row['deprecated']}"] if row["deprecated"] else []
        shown = f"the first {len(row['minimal_sets'])} are shown"
        notes += minimal_set_texts(row, f"has more minimal sets than can be listed: {shown}")[1]
        if row["ambiguous"]:
            notes += [f"other reading `{name}`: {text}" for name, text in row["ambiguous"]["readings"].items()]
        for remark in notes:
            remarks.setdefault(remark, []).append(row["operation"])
    return remarks
