"""Read bundles back, whatever compiled them: the program of a policy, and the rows of a state from its index.

Of a program, only texts are lost: notes, titles of types, positions in files.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from privtab.base import strict_json
from privtab.base.errors import BrokenBundle, FileError
from privtab.base.moments import ALWAYS, HELD_ALWAYS, WINDOWED, Window
from privtab.base.names import SCOPED
from privtab.base.shard_names import GRANTS
from privtab.bundle.archive import archive_entries
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import FORMAT
from privtab.state.attribute_rows import attribute_texts
from privtab.state.names import FOR_FILTERS, KEEPS
from privtab.state.nodes import TABLES, Cells, ColumnRows, State
from privtab.state.principal_rows import held_role


def program_in(bundle: bytes, shown: str) -> tuple[Program, Mapping[str, Any]]:
    """The program of a policy bundle, and its document; `shown` is its name in messages.

    Raises FileError if there is no readable program.

        program, _ = program_in(Path("policy.tar.gz").read_bytes(), "policy.tar.gz")
    """
    try:
        texts = [
            file.read() for name, _, file in archive_entries(io.BytesIO(bundle)) if name.startswith("privtab_program/")
        ]
        if len(texts) != 1:
            raise ValueError(f"it holds {f'{len(texts)} programs' if texts else f'no program of format {FORMAT}'}")
        document: dict[str, Any] = strict_json.strict_loads(texts[0])
        return program_from_json(document, shown), document
    except (BrokenBundle, ValueError, RecursionError) as error:
        raise FileError(f"the program of {shown} cannot be read: {error}") from error


def state_of_index(document: Mapping[str, Any]) -> State:
    """The rows that an index was built from, as far as they can be recovered: `state_of_index(document).grants`."""
    if WINDOWED in document:
        return _from_windowed(document)
    memberships: dict[Cells, None] = {}
    assignments: dict[Cells, None] = {}
    people = [(f"user:{user}", listed) for user, listed in document["principals"].items()]
    people += [(f"group:{group}", listed) for group, listed in document["group_principals"].items()]
    for holder, listed in people:
        for principal in listed.split("\n"):
            kind, _, name = principal.partition(":")
            if principal.startswith(("role:", SCOPED)):
                assignments[(holder, *held_role(principal))] = None
            elif kind == "group" and principal != holder:
                memberships[holder.removeprefix("user:"), name] = None
    for kind, part in (("user", "scoped"), ("group", "group_scoped")):
        for name, scopes in document[part].items():
            for scope, roles in scopes.items():
                assignments |= {(f"{kind}:{name}", role.removeprefix("role:"), scope): None for role in roles}
    # What a role brings within a scope, it brings wherever that scope is.
    for holder, others in document.get("brought", {}).items():
        assignments |= {(f"role:{held_role(holder)[0]}", *held_role(other)): None for other in others}
    grants = (
        (holder, effect, privilege, key)
        for effect in GRANTS
        for privilege, keys in document[effect].items()
        for key, holders in keys.items()
        for holder, entry in holders.items()
        if entry is True
    )
    found = _tables(
        {
            "members": ((user, key) for key, users in document["members"].items() for user in users),
            "memberships": memberships,
            "assignments": assignments,
            "grants": grants,
            "owners": ((key, owner) for key, owners in document["owners"].items() for owner in owners),
            "service_admins": ((user,) for user in document["service_admins"]),
            "attributes": _attributes(document),
            "entities": ((key, parent, None) for key, parent in document.get("places", {}).items()),
        }
    )
    return State(lacks=FOR_FILTERS.difference(document.get(KEEPS, ())), **found)


def _tables(cells: Mapping[str, Iterable[Cells]]) -> dict[str, Any]:
    return {table: ColumnRows.of(table, of_table) for table, of_table in cells.items()}


def _attributes(document: Mapping[str, Any]) -> Iterator[Cells]:
    for user, values in document.get("user_attributes", {}).items():
        for name, value in values.items():
            yield from ((name, text, user, None) for text in attribute_texts(value))
    for key, values in document.get("entity_attributes", {}).items():
        for name, value in values.items():
            yield from ((name, text, None, key) for text in attribute_texts(value))


def _from_windowed(document: Mapping[str, Any]) -> State:
    """The rows of a state with windows, which has an index for each window."""
    parts = dict(document[WINDOWED])
    windows = parts.pop("windows")
    lasting = state_of_index(parts | {part: document[part] for part in HELD_ALWAYS if part in document})
    indexes: dict[Window, dict[str, Any]] = {}

    def enter(spans: list[list[int]], part: str, *keys: str, value: Any = True) -> None:
        for begin, end in spans:
            nothing: dict[str, Any] = {name: {} for name in (*windows, "members", "service_admins")}
            entry = indexes.setdefault(Window(begin, end), nothing)
            for key in (part, *keys[:-1]):
                entry = entry.setdefault(key, {})
            entry[keys[-1]] = value if keys[-1] not in entry or value is True else entry[keys[-1]] + value

    for part in ("allow", "deny"):
        for privilege, keys in windows[part].items():
            for key, holders in keys.items():
                for holder, origins in holders.items():
                    if not holder.startswith(SCOPED):
                        enter(origins[key], part, privilege, key, holder)
    for key, owners in windows["owners"].items():
        for holder, spans in owners.items():
            enter(spans, "owners", key, holder)
    for role, times in windows.get("brought", {}).items():
        for other, spans in times.items():
            enter(spans, "brought", role, other)
    for part in ("principals", "group_principals"):
        for name, times in windows[part].items():
            for principal, spans in times.items():
                enter(spans, part, name, value=f"\n{principal}")
    for part in ("scoped", "group_scoped"):
        for name, scopes in windows[part].items():
            for scope, times in scopes.items():
                for role, spans in times.items():
                    enter(spans, part, name, scope, value=[role])
    rows = {
        table: list(lasting.table(table).cells()) for table in TABLES if table != "attributes"
    }  # attributes have no windows
    found: dict[str, list[Window]] = {table: [ALWAYS] * len(table_rows) for table, table_rows in rows.items()}
    for window, index in indexes.items():
        state = state_of_index(index)
        for table in rows:
            rows[table] += state.table(table).cells()
            found[table] += [window] * len(getattr(state, table))
    timed = {
        table: tuple(table_rows)
        for table, table_rows in found.items()
        if any(window != ALWAYS for window in table_rows)
    }
    return replace(lasting, **_tables(rows), windows=timed)
