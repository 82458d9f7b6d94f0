"""`privtab who-can`: list who may do an operation on an entity, and through which grants."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab.cli._ask import (
    FlagOption,
    TableFormatOption,
    WithOption,
    entity,
    flag_names,
    objects,
    rule_json,
    show_notes,
)
from privtab.cli._options import (
    AtOption,
    PartialOption,
    PolicyOption,
    ReadingOption,
    StateOption,
    VariantOption,
    load_state_for_queries,
    readings,
)
from privtab.cli._output import TableFormat, delayed_spinner, fail_if, out, print_if_data, spinner, table
from privtab.errors import UsageError
from privtab.plural import count
from privtab.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from privtab.analysis.who_can import Evidence, WhoCan

PANEL = "Ask"

MOST_LINES = 40
"""Default maximum of lines shown as text."""


class By(StrEnum):
    """What to list."""

    USER = "user"
    PRINCIPAL = "principal"


def run(
    operation: Annotated[str, typer.Argument(metavar="OP", help="The operation.")],
    resource: Annotated[str, typer.Argument(metavar="ENTITY", help="The entity, as type:path (table:m/c/s/t).")],
    policy: PolicyOption,
    state: StateOption,
    with_: WithOption = None,
    flag: FlagOption = None,
    by: Annotated[
        By, typer.Option("--by", help="List users, or principals that suffice alone: groups, roles, users themselves.")
    ] = By.USER,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, metavar="N", help=f"Number of lines; 0 for all. (default: {MOST_LINES} for people)"
        ),
    ] = None,
    at: AtOption = None,
    allow_partial: PartialOption = False,
    variant: VariantOption = None,
    reading: ReadingOption = None,
    format_: TableFormatOption = TableFormat.TEXT,
) -> None:
    """List every user who may do an operation on an entity, and through which role, group, grant or ownership.

    Example:

    \b
      privtab who-can drop table:m/c/s/t -p gravitino/1.1.0 -s state.yaml
      privtab who-can drop table:m/c/s/t --by principal \\
              -p gravitino/1.1.0 -s state.yaml
    """
    from privtab.analysis.who_can import who_can as find_who_can
    from privtab.cli._stored import load_policy
    from privtab.entitlements.universe import asked_entities
    from privtab.entitlements.universe import notes as unknown
    from privtab.reference.evaluate import Reference

    if ":" in operation and ":" not in resource:
        raise UsageError(f"`{operation}` is not an operation: write `who-can OP ENTITY`, the operation first")
    program = load_policy(policy, variant=variant, readings=readings(reading))
    request = Request(
        user="",
        action=operation,
        resource=entity(resource),
        with_=objects(with_),
        flags=flag_names(flag, program),
    )
    with spinner("reading the state"):
        loaded, partial = load_state_for_queries(program, state, allow_partial=allow_partial, at=at)
    with delayed_spinner("looking for principals"):
        found = find_who_can(Reference(program, loaded), loaded, request)
    notes = unknown(program, loaded, entities=asked_entities(program, request))
    most = (MOST_LINES if format_ is TableFormat.TEXT else 0) if limit is None else limit
    if by is By.USER:
        _users(found, format_, most or len(found.users), notes)
    else:
        _principals(found, format_, most, notes)
    if format_ is not TableFormat.JSON:
        show_notes(notes)
    fail_if(partial)


def _users(found: WhoCan, format_: TableFormat, most: int, notes: Sequence[str]) -> None:
    users = found.users[:most]
    if format_ is TableFormat.TEXT:
        _show_users(found, users)
        return
    listed = [{"user": user, "through": [] if found.anyone else _json(found.through(user))} for user in users]
    answer = {**_question_json(found), "anyone": found.anyone, "count": len(found.users), "users": listed}
    rows = ((user, "anyone" if found.anyone else _text(found.through(user))) for user in users)
    print_if_data(format_, {**answer, "notes": list(notes)}, ("user", "through"), rows)


def _question_json(found: WhoCan) -> dict[str, Any]:
    request = found.request
    return {
        "operation": request.action,
        "entity": str(request.resource),
        "with": {name: str(object_) for name, object_ in sorted(request.with_.items())},
        "flags": sorted(request.flags),
        "rule": rule_json(found.rule),
    }


def _json(through: Iterable[Evidence]) -> list[dict[str, str | None]]:
    return [{"atom": t.atom, "on": t.on, "through": t.through, "via": t.via} for t in through]


def _text(through: Iterable[Evidence]) -> str:
    """What is granted through whom: `READ, WRITE by role:dev (group:hr); owner (project:web)`. Omits mere membership."""
    atoms_by_source: dict[str, list[str]] = {}
    listed = list(through)
    for t in [t for t in listed if not t.atom.startswith("member (")] or listed:
        text, by = _atom_and_source(t)
        atoms_by_source.setdefault(by, []).append(text)
    return "; ".join(f"{', '.join(dict.fromkeys(text))}{by}" for by, text in atoms_by_source.items())


def _atom_and_source(t: Evidence) -> tuple[str, str]:
    """What is granted and through whom; the entity is omitted if every line would repeat it."""
    name, _, rest = t.atom.partition(" (")
    is_privilege = bool(rest) and name not in {"owner", "member", "holds"}
    via = f" ({t.via})" if t.via else ""
    if t.through.startswith("owner "):
        owner = t.through.removeprefix("owner ")
        return name, f" as owner of {t.on}" + ("" if owner.startswith("user:") else f" by {owner}{via}")
    if t.through.startswith("user:"):
        return (name, " in person") if is_privilege else (t.atom, "")
    return name if is_privilege else t.atom, f" by {t.through}{via}"


def _show_users(found: WhoCan, users: tuple[str, ...]) -> None:
    console = out()
    _heading(found)
    if found.anyone:
        console.print("anyone may, named in the state or not")
        return
    console.print(f"{count(len(found.users), 'user')} of {len(found.known | set(found.users)):,}", style="dim")
    if users:
        console.print()
        lines = ((user, _text(found.through(user))) for user in users)
        console.print(table("user", "through", rows=lines))
    _more(len(found.users) - len(users))


def _principals(found: WhoCan, format_: TableFormat, most: int, notes: Sequence[str]) -> None:
    principals = found.principals()
    listed = principals[: most or len(principals)]
    rows = [{"principal": p.principal, "scope": p.scope, "needs": [list(way) for way in p.needs]} for p in listed]
    lines = [(p.principal, p.scope or "", " or ".join(" and ".join(way) for way in p.needs)) for p in listed]
    answer = {**_question_json(found), "count": len(principals), "principals": rows, "notes": list(notes)}
    if print_if_data(format_, answer, ("principal", "scope", "needs"), lines):
        return
    console = out()
    _heading(found)
    enough = sum(() in p.needs for p in principals)
    console.print(f"{count(len(principals), 'principal')}, {enough:,} of them enough alone", style="dim")
    if lines:
        console.print()
        shown = table(*("principal", *(("within",) if any(s for _, s, _ in lines) else ()), "besides"))
        for principal, scope, needs in lines:
            needs_text = needs.replace("member (", "a member of ").replace(")", "") or "nothing"
            shown.add_row(principal, *((scope,) if any(s for _, s, _ in lines) else ()), needs_text)
        console.print(shown)
    _more(len(principals) - len(listed))


def _heading(found: WhoCan) -> None:
    console = out()
    request = found.request
    besides = "".join(f" {name}={object_}" for name, object_ in sorted(request.with_.items()))
    besides += "".join(f" +{flag}" for flag in sorted(request.flags))
    console.print(f"who can {request.action} {request.resource}{besides}", style="bold", soft_wrap=True)
    console.print(f"rule {found.rule.id}  {found.rule.span.path}:{found.rule.span.line}", style="dim", soft_wrap=True)


def _more(number: int) -> None:
    if number > 0:
        out().print(f"\n… and {number:,} more; `--limit 0` lists them", style="dim")
