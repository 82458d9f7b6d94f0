"""The parts of an index from rows, one by one, each with its window. `large_index` makes those of a large state without windows.

What holds at any time is in the parts themselves, what holds for a time beside them, in the form of `windowed`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias, TypeVar

from privtab.ir.formula import uses_below
from privtab.ir.nodes import Program
from privtab.moments import ALWAYS, HELD_ALWAYS, WINDOWED, Window, intersection
from privtab.request import Entity
from privtab.state import attribute_rows, below, located, roles_of_roles
from privtab.state.names import StateNames, UsedParts, kept_part, uses
from privtab.state.nodes import State
from privtab.state.principal_rows import SEPARATOR, HeldRoles, scoped_entries, scopes_of_roles
from privtab.state.windowed import spans_of, split

IndexDocument: TypeAlias = dict[str, Any]
Parts: TypeAlias = tuple[IndexDocument, IndexDocument]
"""Parts of what holds at any time, and of what holds for a time."""
T = TypeVar("T", bound="str | tuple[str, str]")
_LASTING = [ALWAYS]
"""The windows of what is held at any time; shared, and never changed."""
Held: TypeAlias = dict[str, dict[T, list[Window]]]
"""Holder (`user:…`, `group:…`) → what they hold → the windows in which they do."""


def document(program: Program, state: State) -> IndexDocument:
    """The index of a closed state without its revision; one without windows if none makes a difference."""
    keys = located.locations(program, state).keys
    of_grants, timed_grants = _grants(program, state, keys)
    of_owners, timed_owners = _owners(state)
    of_people, timed_people = _people(program, state, uses(program))
    found: IndexDocument = {
        **of_grants,
        **of_owners,
        "members": _truths(state.texts("members", "of", "user")),
        "service_admins": dict.fromkeys(sorted(set(state.service_admins)), True),
        **of_people,
        **attribute_rows.part(program, state),
        **kept_part(program, state),
        **located.parts(program, state),
    }
    windows = {**timed_grants, **timed_owners, **timed_people}
    if uses(program).roles_of_roles:
        found[roles_of_roles.PART], windows[roles_of_roles.PART] = roles_of_roles.parts(program, state)
    if not any(windows.values()):
        return found | (below.parts(program, found, keys) if uses_below(program) else {})
    parts = {part: found.pop(part) for part in sorted(found) if part not in HELD_ALWAYS}
    parts["windows"] = windows
    if uses_below(program):
        windows |= below.parts(program, parts, keys)
    return {WINDOWED: parts, **found}


def _grants(program: Program, state: State, keys: Callable[[Entity], list[str]]) -> Parts:
    """By effect: privilege → entity → grantees, each with `true`, or for a role within a scope with the entities of its rows.

    For a time: the same with the entities of the rows and the times of each. `keys`: those on the path of an entity.
    """
    names, scopes = StateNames(program), scopes_of_roles(state)
    found: dict[str, dict[str, dict[str, dict[str, Any]]]] = {"allow": {}, "deny": {}}
    timed: dict[str, dict[str, Any]] = {"allow": {}, "deny": {}}
    granted_privileges: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def add_for_a_time(place: tuple[str, str, str, str], origin: str, windows: Iterable[Window]) -> None:
        holding = [window for window in windows if window != ALWAYS and window.begin < window.end]
        if holding:
            effect, privilege, key, principal = place
            entities = timed[effect].setdefault(privilege, {})
            entities.setdefault(key, {}).setdefault(principal, {}).setdefault(origin, []).extend(holding)

    of_roles: list[tuple[tuple[Any, ...], Window]] = []
    for row, window in _rows(state, "grants", "grantee", "effect", "privilege", "entity"):
        grantee, effect, name, key = row
        if grantee in scopes:
            of_roles.append((row, window))
        type_ = key.partition(":")[0]
        granted = granted_privileges.get((name, type_, effect))
        if granted is None:
            granted = granted_privileges[name, type_, effect] = names.privileges_of(name, type_, effect)
        if window is not ALWAYS:
            for privilege in granted:
                add_for_a_time((effect, privilege, key, grantee), key, (window,))
            continue
        for privilege in granted:
            entities = found[effect].get(privilege)
            if entities is None:
                entities = found[effect][privilege] = {}
            holders = entities.get(key)
            if holders is None:
                entities[key] = {grantee: True}
            else:
                holders[grantee] = True
    entries = scoped_entries(program, of_roles, scopes, keys) if of_roles else {}
    for place, origins in entries.items():
        effect, privilege, key, principal = place
        lasting = sorted(origin for origin, windows in origins.items() if ALWAYS in windows)
        if lasting:
            found[effect][privilege].setdefault(key, {})[principal] = lasting
        for origin, windows in origins.items():
            add_for_a_time(place, origin, windows)
    always = {
        effect: {privilege: _sorted(of_effect[privilege]) for privilege in sorted(of_effect)}
        for effect, of_effect in found.items()
    }
    return always, spans_of(timed)


def _owners(state: State) -> Parts:
    timed: Held[str] = {}
    always: list[tuple[str, str]] = []
    for (key, owner), window in _rows(state, "owners", "entity", "owner"):
        if window is ALWAYS:
            always.append((key, owner))
        elif window.begin < window.end:
            timed.setdefault(key, {}).setdefault(owner, []).append(window)
    return {"owners": _truths(always)}, {"owners": spans_of(timed)}


def _people(program: Program, state: State, used: UsedParts) -> Parts:
    """Everything that is looked up by the name of a user or a group."""
    roles = HeldRoles(program, state)
    groups, changing = _groups(state, used)
    principal_of: dict[tuple[str, str | None], str | None] = {}
    """Role and scope → the principal for them; None if nothing depends on it."""
    held: Held[str] = {}
    """Principal → the principals that it has through its roles."""
    scoped: Held[tuple[str, str]] = {}
    """Principal → scopes and the declared roles that it holds there."""
    for (holder, name, scope), window in _rows(state, "assignments", "principal", "role", "scope"):
        if (name, scope) not in principal_of:
            principal_of[name, scope] = roles.principal(name, scope)
        of_role = principal_of[name, scope]
        of_holder = held.setdefault(holder, {})
        if of_role is not None:
            of_holder[of_role] = _LASTING if window is ALWAYS else [*of_holder.get(of_role, ()), window]
        if scope is not None and roles.is_declared(name):
            scoped.setdefault(holder, {}).setdefault((scope, f"role:{name}"), []).append(window)
        if window is not ALWAYS:
            changing.add(holder)
    for principal in roles.grantees:
        if not principal.startswith("role:"):
            held.setdefault(principal, {}).setdefault(principal, _LASTING)
    holders = {*held, *groups}
    if used.group_membership:
        contained = {group for own in groups.values() for group in own}
        for group in {p for p in (*holders, *contained) if p.startswith("group:")}:
            held.setdefault(group, {}).setdefault(group, _LASTING)
    found: IndexDocument = {"within": dict(sorted(roles.within.items(), key=lambda item: item[1]))}
    timed: IndexDocument = {}
    for kind, part, scoped_part in (("user", "principals", "scoped"), ("group", "group_principals", "group_scoped")):
        named = holders if kind == "user" or used.request_groups else used.everyone & holders
        members = {p: groups.get(p, {}) for p in sorted(p for p in named if p.startswith(f"{kind}:"))}
        found[part], timed[part], found[scoped_part], timed[scoped_part] = {}, {}, {}, {}
        for name, principals, later in _held(members, held, changing):
            if principals:
                found[part][name] = SEPARATOR.join(principals)
            if later:
                timed[part][name] = later
        for name, pairs, later_pairs in _held(members, scoped, changing):
            for scope, role in pairs:
                found[scoped_part].setdefault(name, {}).setdefault(scope, []).append(role)
            for (scope, role), times in later_pairs.items():
                timed[scoped_part].setdefault(name, {}).setdefault(scope, {})[role] = times
    return found, timed


def _groups(state: State, used: UsedParts) -> tuple[Held[str], set[str]]:
    """Users and groups → the groups that contain them; and those for which one does only for a time."""
    groups: Held[str] = {}
    changing: set[str] = set()
    for (user, group), window in _rows(state, "memberships", "user", "group"):
        member = user if user.startswith("group:") else f"user:{user}"
        if member is user or used.state_groups:
            groups.setdefault(member, {}).setdefault(f"group:{group}", []).append(window)
            if window is not ALWAYS:
                changing.add(member)
    return groups, changing


def _held(
    members: Mapping[str, Mapping[str, list[Window]]], values_of: Held[T], changing: set[str]
) -> Iterator[tuple[str, list[T], dict[T, list[list[int]]]]]:
    """For each name what it has together with its groups: at any time, and for a time; both sorted.

    `members`: the groups of each; `changing`: those whose rows, or whose groups' rows, hold for a time.
    """
    for member, own_groups in members.items():
        name = member.partition(":")[2]
        if member in changing or not changing.isdisjoint(own_groups):
            times: dict[T, list[Window]] = defaultdict(list)
            for holder, windows in {member: [ALWAYS], **own_groups}.items():
                for value, own in values_of.get(holder, {}).items():
                    times[value] += intersection(windows, own)
            always, later = split(dict(sorted(times.items())))
            yield name, always, later
            continue
        found = [values for holder in (member, *own_groups) if (values := values_of.get(holder))]
        if found:
            yield name, sorted(found[0] if len(found) == 1 else {value for values in found for value in values}), {}


def _rows(state: State, table: str, *columns: str) -> Iterator[tuple[tuple[Any, ...], Window]]:
    """The rows of a table as texts, each with its window: `ALWAYS` itself where that is it."""
    windows = state.windows.get(table)
    each = repeat(ALWAYS) if windows is None else (ALWAYS if window == ALWAYS else window for window in windows)
    return zip(state.texts(table, *columns), each, strict=windows is not None)


def _truths(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Key → names, each with `true`: a set in JSON."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in pairs:
        found.setdefault(key, {})[value] = True
    return _sorted(found)


def _sorted(found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        key: holders if len(holders := found[key]) == 1 else {name: holders[name] for name in sorted(holders)}
        for key in sorted(found)
    }
