"""The parts of an index: what is in each, decided once for rows (`row_index.py`) and for columns of numbers (`large_index.py`).

Where rows hold for a time (docs/decisions/0215), the document is

    {"windowed": {"revision": …, the usual parts of what holds at any time …,
                  "windows": {the same parts, with the times in the place of `true` …}},
     "members": …, "service_admins": …, "within": …}

The parts that windows concern lie below `windowed`, where a policy or an engine that knows no windows looks for nothing: it finds
no state, instead of one whose denials it would overlook. Times are lists of `[from, until]` in nanoseconds, ascending and apart.
A principal that somebody has through two rows, such as a role of a group, has the times in which both hold.

By `below` and `owned_below`, `or below` is one look-up. Roles that roles hold are active with them; a policy that lets
requests narrow such roles has in its index

    {"brought": {principal of a role: {principal of a role that it holds: true}}}

A role within a scope is a principal of its own (`principal_rows.py`). In a state with windows, these parts are split as others are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from privtab.base.errors import UsageError
from privtab.base.moments import ALWAYS, HELD_ALWAYS, WINDOWED, Window, union
from privtab.base.shard_names import FURTHER_HELD
from privtab.ir.nodes import Program
from privtab.state import located
from privtab.state.attribute_rows import attribute_parts
from privtab.state.links import ROLE_PREFIX, ScopeOverlap, with_derived_rows
from privtab.state.names import UsedParts, kept_part
from privtab.state.nodes import State
from privtab.state.principal_rows import HeldRoles, ScopedEntries, scoped_entries, scoped_principal

V = TypeVar("V")
Spans: TypeAlias = list[list[int]]
"""The times of one entry."""

MOST_WINDOWS = 1_000
"""Limit on the times of one entry: each look-up goes through them."""


def spans(windows: Iterable[Window]) -> Spans:
    """Windows as in the document. Raises UsageError if they are too many."""
    found = [list(window) for window in union(windows)]
    if len(found) > MOST_WINDOWS:
        message = f"somebody holds the same in {len(found):,} separate times; {MOST_WINDOWS:,} is the most"
        raise UsageError(message)
    return found


def spans_of(value: Any) -> Any:
    """Nested maps with lists of windows at the ends, with these as in the document; sorted."""
    if isinstance(value, Mapping):
        return {key: spans_of(value[key]) for key in sorted(value)}
    return spans(value)


def split(windows_of: Mapping[V, Iterable[Window]]) -> tuple[list[V], dict[V, Spans]]:
    """The rows that hold at any time, and the rows that hold for a time, with their times; both in the order of the map."""
    times = {value: spans(windows) for value, windows in windows_of.items()}
    always = [value for value, own in times.items() if own == [list(ALWAYS)]]
    return always, {value: own for value, own in times.items() if own and own != [list(ALWAYS)]}


BROUGHT = "brought"
IndexDocument: TypeAlias = dict[str, Any]
Parts: TypeAlias = tuple[IndexDocument, IndexDocument]
"""By name, parts of what holds at any time, and of what holds for a time."""


class HeldByName(Protocol):
    """The rights of users and groups, together with their groups: at any time, and for a time.

    `kind`: `user` or `group`; `named`: only these of the kind.
    """

    def principals(self, kind: str, named: Collection[str] | None) -> tuple[Any, Any]:
        """Name → the principals, joined by `SEPARATOR`; for a time: name → principal → times."""

    def scoped(self, kind: str, named: Collection[str] | None) -> tuple[Any, Any]:
        """Name → scope → the declared roles that are held there; for a time: name → scope → role → times."""


class IndexParts(ABC):
    """The parts of the index of a state; a storage of rows says how each is made."""

    def __init__(self, program: Program, state: State) -> None:
        self.program = program
        self.state = with_derived_rows(program, state)
        self.used = UsedParts.of(program)
        self.keys = located.locations(program, self.state).keys
        """The keys on the path of an entity."""

    def whole(self) -> IndexDocument:
        """The index without its revision; one without windows if none makes a difference."""
        found, windows = self.of_entities()
        of_people, timed = self.of_people()
        found |= of_people | located.parts(self.program, self.state)
        windows |= timed
        if not any(windows.values()):
            return found | self.below(found)
        parts = {part: found.pop(part) for part in sorted(found) if part not in HELD_ALWAYS}
        parts["windows"] = windows
        windows |= self.below(parts)
        return {WINDOWED: parts, **found}

    def of_entities(self) -> Parts:
        """The parts that are looked up by entity, which shards have, but for `below`."""
        found, windows = self.grants(scoped_entries(self.program, self.state, self.keys))
        found["owners"], windows["owners"] = self.pairs("owners", "entity", "owner")
        found["members"], _ = self.pairs("members", "of", "user")
        return found | self._attributes(of_entities=True), windows

    def of_people(self) -> Parts:
        """The parts that are looked up by the name of a user or a group."""
        found: IndexDocument = {"service_admins": self.names("service_admins", "user")}
        windows: IndexDocument = {}
        roles = HeldRoles(self.program, self.state)
        held = self.held_by_name(roles)
        for kind, part, scoped_part in (
            ("user", "principals", "scoped"),
            ("group", "group_principals", "group_scoped"),
        ):
            named = None if kind == "user" or self.used.request_groups else self.used.everyone
            found[part], windows[part] = held.principals(kind, named)
            found[scoped_part], windows[scoped_part] = held.scoped(kind, named)
        found["within"] = dict(sorted(roles.within.items(), key=lambda item: item[1]))
        if self.used.roles_of_roles:
            found[BROUGHT], windows[BROUGHT] = _brought(self.program, self.state)
        return found | self._attributes(of_entities=False) | kept_part(self.program, self.state), windows

    def below(self, document: Mapping[str, Any]) -> IndexDocument:  # noqa: ARG002  (of rows alone)
        """The parts for `or below`, from the finished other parts; none for a policy without it."""
        return {}

    def _attributes(self, *, of_entities: bool) -> IndexDocument:
        parts = attribute_parts(self.program, self.state)
        return {part: values for part, values in parts.items() if (part in FURTHER_HELD) == of_entities}

    @abstractmethod
    def grants(self, scoped: ScopedEntries) -> Parts:
        """By effect: privilege → entity → grantees, each with `true`, or for a role within a scope with the entities of its rows.

        For a time: the same with the entities of the rows and the times of each.
        """

    @abstractmethod
    def pairs(self, table: str, key: str, name: str) -> tuple[Any, Any]:
        """Key → names, each with `true`, or for a time with its times; both are columns of a table."""

    @abstractmethod
    def names(self, table: str, name: str) -> Any:
        """The texts of a column, each with `true`."""

    @abstractmethod
    def held_by_name(self, roles: HeldRoles) -> HeldByName:
        """The rights of users and groups."""


def _brought(program: Program, state: State) -> tuple[IndexDocument, IndexDocument]:
    """By role that is assigned to a user or a group, the roles that it holds: at any time, and for a time."""
    links: dict[str, list[tuple[str, str | None, Window]]] = {}
    scopes: dict[str, set[str | None]] = {}
    rows = state.texts("assignments", "principal", "role", "scope")
    for (principal, name, scope), window in zip(rows, state.windows_of("assignments"), strict=True):
        if principal.startswith(ROLE_PREFIX):
            links.setdefault(principal, []).append((f"{ROLE_PREFIX}{name}", scope, window))
        else:
            scopes.setdefault(f"{ROLE_PREFIX}{name}", set()).add(scope)
    overlap = ScopeOverlap(located.locations(program, state).keys)
    found: dict[str, dict[str, list[Window]]] = {}
    for role in links.keys() & scopes.keys():
        for scope in scopes[role]:
            for other, own, window in links[role]:
                common, both = overlap.both(scope, own)
                if common:
                    brought = found.setdefault(scoped_principal(role, scope), {})
                    brought.setdefault(scoped_principal(other, both), []).append(window)
    always: IndexDocument = {}
    timed: IndexDocument = {}
    for role in sorted(found):
        lasting, later = split(dict(sorted(found[role].items())))
        if lasting:
            always[role] = dict.fromkeys(lasting, True)
        if later:
            timed[role] = later
    return always, timed
