"""The index of a state in which rows hold for a time (docs/decisions/0215).

    {"windowed": {"revision": …, the usual parts of what holds at any time …,
                  "windows": {the same parts, with the times in the place of `true` …}},
     "members": …, "service_admins": …, "within": …}

The parts that windows concern lie below `windowed`, where a policy or an engine that knows no windows looks for nothing: it finds
no state, instead of one whose denials it would overlook. Times are lists of `[from, until]` in nanoseconds, ascending and apart.
A principal that somebody has through two rows, such as a role of a group, has the times in which both hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from privtab.errors import UsageError
from privtab.moments import ALWAYS, HELD_ALWAYS, WINDOWED, Window, intersection, union
from privtab.state.names import UsedParts
from privtab.state.nodes import Effect, State
from privtab.state.roles_of_roles import RolesOfRoles

IndexDocument: TypeAlias = dict[str, Any]
Spans: TypeAlias = list[list[int]]
"""The times of one entry."""
Times: TypeAlias = dict[str, list[Window]]
"""Name → windows in which it is held."""

MOST_WINDOWS = 1_000
"""Limit on the times of one entry: each look-up goes through them."""


def document(
    state: State,
    index_of: Callable[[State], IndexDocument],
    grants: Callable[[State], Mapping[Effect, Mapping[str, Any]]],
    roles: Callable[[str, str | None], tuple[str | None, bool]],
    used_parts: UsedParts,
    roles_of_roles: RolesOfRoles | None = None,
) -> IndexDocument:
    """The index of a state with windows, without its revision; that of a state without them if no window makes a difference.

    `index_of` gives the index of a state without windows, `grants` its grants by effect, with the scopes of this one; `roles` gives the
    principal for a role within a scope, None if nothing depends on it, and whether the policy declares the role. `roles_of_roles`: what roles
    hold, if requests may say which roles are active.
    """
    complete = index_of(replace(state, windows={}))
    always = {
        table: [row for row, window in enumerate(windows) if window == ALWAYS]
        for table, windows in state.windows.items()
    }
    lasting = state.only(always)
    found: IndexDocument = {**complete, "owners": _owners(lasting)}
    found.update(grants(lasting).items())
    windows_of: IndexDocument = {"allow": {}, "deny": {}, "owners": {}}
    for window, rows in _by_window(state, "grants"):
        for effect, privileges in grants(rows).items():
            _add_grants(windows_of[effect], privileges, window)
    for window, rows in _by_window(state, "owners"):
        for key, owners in _owners(rows).items():
            for owner in owners:
                windows_of["owners"].setdefault(key, {}).setdefault(owner, []).append(window)
    windows_of = _spans(windows_of)
    windows_of |= _People(state, roles, used_parts).parts(found)
    if roles_of_roles is not None:
        found["brought"], windows_of["brought"] = _split(roles_of_roles)
    if not any(windows_of.values()):
        return found
    parts = {part: found.pop(part) for part in sorted(found) if part not in HELD_ALWAYS}
    return {WINDOWED: {**parts, "windows": windows_of}, **found}


def _by_window(state: State, table: str) -> Iterator[tuple[Window, State]]:
    """The rows of a table that have a window, by window; no other rows."""
    rows: dict[Window, list[int]] = defaultdict(list)
    for row, window in enumerate(state.windows.get(table, ())):
        if window != ALWAYS and window.begin < window.end:
            rows[window].append(row)
    for window in sorted(rows):
        yield window, State(windows={table: ()}, **{table: getattr(state, table)}).only({table: rows[window]})


def _owners(state: State) -> dict[str, dict[str, bool]]:
    found: dict[str, dict[str, bool]] = {}
    for key, owner in sorted(state.texts("owners", "entity", "owner")):
        found.setdefault(key, {})[owner] = True
    return found


def _add_grants(found: IndexDocument, privileges: Mapping[str, Any], window: Window) -> None:
    """Enter grants of one window: privilege → entity → principal → entity of the row → windows."""
    for privilege, entities in privileges.items():
        for key, holders in entities.items():
            for principal, entry in holders.items():
                windows_by_origin = found.setdefault(privilege, {}).setdefault(key, {}).setdefault(principal, {})
                for origin in (key,) if entry is True else entry:
                    windows_by_origin.setdefault(origin, []).append(window)


def _split(roles_of_roles: RolesOfRoles) -> tuple[IndexDocument, IndexDocument]:
    """What roles bring at any time, and what they bring for a time."""
    always: IndexDocument = {}
    timed: IndexDocument = {}
    for role, others in roles_of_roles.items():
        for other, windows in others.items():
            times = spans(windows)
            if times == [list(ALWAYS)]:
                always.setdefault(role, {})[other] = True
            elif times:
                timed.setdefault(role, {})[other] = times
    return always, timed


def _spans(value: Any) -> Any:
    """Nested maps with lists of windows at the ends, with these as in the document; sorted."""
    if isinstance(value, Mapping):
        return {key: _spans(value[key]) for key in sorted(value)}
    return spans(value)


def spans(windows: Iterable[Window]) -> Spans:
    """Windows as in the document. Raises UsageError if they are too many."""
    found = [list(window) for window in union(windows)]
    if len(found) > MOST_WINDOWS:
        message = f"somebody holds the same in {len(found):,} separate times; {MOST_WINDOWS:,} is the most"
        raise UsageError(message)
    return found


class _People:
    """Who has which principals when: the users and groups that a row with a window concerns."""

    def __init__(
        self, state: State, roles: Callable[[str, str | None], tuple[str | None, bool]], used: UsedParts
    ) -> None:
        self.role_principals: dict[str, Times] = defaultdict(dict)
        """Holder (`user:…`, `group:…`) → principals of their roles → windows."""
        self.scoped: dict[str, dict[tuple[str, str], list[Window]]] = defaultdict(dict)
        """Holder → (scope, declared role) → windows."""
        self.groups: dict[str, Times] = defaultdict(dict)
        """User or group (`user:…`, `group:…`) → groups → windows."""
        changing: set[str] = set()
        for (holder, role, scope), window in _rows(state, "assignments", "principal", "role", "scope"):
            principal, declared = roles(role, scope)
            if principal is not None:
                self.role_principals[holder].setdefault(principal, []).append(window)
            if scope is not None and declared:
                self.scoped[holder].setdefault((scope, f"role:{role}"), []).append(window)
            if window != ALWAYS:
                changing.add(holder)
        for (user, group), window in _rows(state, "memberships", "user", "group"):
            member = user if user.startswith("group:") else f"user:{user}"
            if member is user or used.state_groups:
                self.groups[member].setdefault(f"group:{group}", []).append(window)
                if window != ALWAYS or f"group:{group}" in changing:
                    changing.add(member)
        self.users: set[str] = {holder[5:] for holder in changing if holder.startswith("user:")}
        self.request_groups: set[str] = {holder[6:] for holder in changing if holder.startswith("group:")}
        if not used.request_groups:
            self.request_groups = set()

    def parts(self, found: IndexDocument) -> IndexDocument:
        """The parts of `windows` for users and groups; takes what they hold for a time only out of `found`."""
        windows_by_part: IndexDocument = {}
        for part, scoped, kind, names in (
            ("principals", "scoped", "user", self.users),
            ("group_principals", "group_scoped", "group", self.request_groups),
        ):
            windows_by_part[part], windows_by_part[scoped] = {}, {}
            for name in sorted(names):
                holders = {f"{kind}:{name}": [ALWAYS], **self.groups.get(f"{kind}:{name}", {})}
                self._principals(name, holders, found[part], windows_by_part[part])
                self._scopes(name, holders, found[scoped], windows_by_part[scoped])
        return windows_by_part

    def _principals(self, name: str, holders: Times, found: dict[str, str], timed: IndexDocument) -> None:
        """Split the principals of one name, `found[name]`, into those held at any time and the others."""
        if name not in found:
            return
        windows_of: Times = defaultdict(list)
        for holder, windows in holders.items():
            windows_of[holder] += windows
            for principal, held_windows in self.role_principals.get(holder, {}).items():
                windows_of[principal] += intersection(windows, held_windows)
        principals = found.pop(name).split("\n")
        spans_of = {principal: spans(windows_of[principal]) for principal in principals}
        always = [principal for principal in principals if spans_of[principal] == [list(ALWAYS)]]
        if always:
            found[name] = "\n".join(always)
        changing = {
            principal: held_windows
            for principal, held_windows in spans_of.items()
            if held_windows and held_windows != [list(ALWAYS)]
        }
        if changing:
            timed[name] = changing

    def _scopes(self, name: str, holders: Times, found: dict[str, dict[str, list[str]]], timed: IndexDocument) -> None:
        """As `_principals`, for declared roles within scopes."""
        windows_of: dict[tuple[str, str], list[Window]] = defaultdict(list)
        for holder, windows in holders.items():
            for role_and_scope, held_windows in self.scoped.get(holder, {}).items():
                windows_of[role_and_scope] += intersection(windows, held_windows)
        found.pop(name, None)
        always: dict[str, list[str]] = {}
        for scope, role in sorted(windows_of):
            role_spans = spans(windows_of[scope, role])
            if role_spans == [list(ALWAYS)]:
                always.setdefault(scope, []).append(role)
            elif role_spans:
                timed.setdefault(name, {}).setdefault(scope, {})[role] = role_spans
        if always:
            found[name] = always


def _rows(state: State, table: str, *columns: str) -> Iterator[tuple[tuple[Any, ...], Window]]:
    return zip(state.texts(table, *columns), state.windows_of(table), strict=True)
