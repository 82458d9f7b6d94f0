"""Read states from bundles: their index, or rows from which an equivalent index can be built."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from privtab.engines.index import Index, PrivilegeNumbers, StatePart, combined_document, in_parts
from privtab.engines.python import is_windowed
from privtab.errors import DecisionUnavailable, HasWindows, UsageError
from privtab.moments import ALWAYS, HELD_ALWAYS, WINDOWED, Window
from privtab.names import SCOPED
from privtab.shard_names import GRANTS
from privtab.spark.state.schemas import TABLES, program_of
from privtab.state.attribute_rows import texts
from privtab.state.names import FOR_FILTERS, KEEPS
from privtab.state.nodes import Cells, ColumnRows, State
from privtab.state.principal_rows import held_role
from privtab.state.written import as_written

if TYPE_CHECKING:
    from privtab.spark.policies import OpenPolicy


_ARCHIVES = (".tar.gz", ".tgz")


def from_index(document: Mapping[str, Any]) -> State:
    """The rows that an index was built from, as far as they can be recovered."""
    if is_windowed(document):
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
            yield from ((name, text, user, None) for text in texts(value))
    for key, values in document.get("entity_attributes", {}).items():
        for name, value in values.items():
            yield from ((name, text, None, key) for text in texts(value))


def _from_windowed(document: Mapping[str, Any]) -> State:
    """The rows of a state with windows: those of an index for each window, together."""
    parts = dict(document[WINDOWED])
    windows = parts.pop("windows")
    lasting = from_index(parts | {part: document[part] for part in HELD_ALWAYS if part in document})
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
    rows = {table: list(lasting.table(table).cells()) for table in TABLES}
    found: dict[str, list[Window]] = {table: [ALWAYS] * len(table_rows) for table, table_rows in rows.items()}
    for window, index in indexes.items():
        state = from_index(index)
        for table in rows:
            rows[table] += state.table(table).cells()
            found[table] += [window] * len(getattr(state, table))
    timed = {
        table: tuple(table_rows)
        for table, table_rows in found.items()
        if any(window != ALWAYS for window in table_rows)
    }
    return replace(lasting, **_tables(rows), windows=timed)


def is_bundle(state: Any) -> bool:
    """Whether a state is given as the path or address of a bundle, or as a folder with the bundles of a sharded state."""
    if not isinstance(state, str | os.PathLike):
        return False
    if is_address(state):
        return True
    path = Path(state)
    if path.is_dir():
        return (path / ".manifest").is_file() or any(file.name.endswith(_ARCHIVES) for file in path.iterdir())
    return path.name.endswith(_ARCHIVES)


def is_address(state: str | os.PathLike[str]) -> bool:
    """Whether a state is the address of a bundle."""
    return str(state).startswith(("http://", "https://"))


def require_complete(index: Index) -> Index:
    """The index unchanged; raises DecisionUnavailable if shards are missing, since their content is unknown."""
    if index.missing:
        raise missing_shards_error(index.missing)
    return index


def missing_shards_error(roots: Collection[str]) -> DecisionUnavailable:
    """The exception for missing shards of a state."""
    named = ", ".join(f"`{root}`" for root in sorted(roots)[:3])
    return DecisionUnavailable(
        f"the state is incomplete: {len(roots)} of its shards are missing, such as {named}", retry=False
    )


def rows_of_bundles(policy: OpenPolicy, where: str) -> State:
    """The rows of a state in a bundle, or in the bundles of a folder.

    Raises UsageError if none is for the policy's system, and DecisionUnavailable if shards are missing.
    """
    try:
        bundled(policy, where)  # raises for unsuitable bundles
    except HasWindows as timed:
        return cast("State", timed.state)
    return _rows(policy, where)


def _rows(policy: OpenPolicy, where: str) -> State:
    """The rows in the bundles of a folder, which are suitable."""
    from privtab.client import _config
    from privtab.client.embedded import bundle_location

    bundles = bundle_location(where, _config.resolve({})).read({}, lambda document: document)
    found = (bundle.content.states for bundle in bundles)
    document, missing = combined_document(states[policy.system] for states in found if policy.system in states)
    if missing:
        raise missing_shards_error(missing)
    return from_index(document)


def bundled(policy: OpenPolicy, where: str) -> Index:
    """The index in a bundle, or in the bundles of a folder; raises UsageError if there is none for the policy's system.

    Raises HasWindows if its rows hold for a time.
    """
    from privtab.client import _config
    from privtab.client.embedded import bundle_location

    numbers = PrivilegeNumbers()

    def keep(document: Mapping[str, Any]) -> Index | StatePart | Mapping[str, Any]:
        if in_parts(document):
            return StatePart(document, numbers)
        return document if is_windowed(document) else Index(document)

    states: dict[str, list[Any]] = {}
    for found in bundle_location(where, _config.resolve({})).read({}, keep):
        for name, index in found.content.states.items():
            states.setdefault(name, []).append(index)
    of_system = states.get(policy.system)
    if not of_system:
        systems = ", ".join(f"`{name}`" for name in sorted(states)) or "no state"
        raise UsageError(f"{where} holds {systems}, but no state of `{policy.system}`")
    whole_states = [index for index in of_system if not isinstance(index, StatePart)]
    if whole_states and len(of_system) > 1:
        raise UsageError(f"{where} holds several states of `{policy.system}`: name one of them")
    if whole_states and isinstance(whole_states[0], Mapping):
        as_written(program_of(policy), from_index(whole_states[0])).plain("Spark")
    combined_index: Index = whole_states[0] if whole_states else Index.of(of_system)
    if combined_index.windows:
        as_written(program_of(policy), _rows(policy, where)).plain("Spark")
    return combined_index


def bundle_size(state: str | os.PathLike[str]) -> int:
    """Bytes of a bundle, or of those in a folder; 0 for one at an address, whose size is not known in advance."""
    path = Path(state)
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
