"""The parts of an index from rows, one by one, each with its window. `large_index` makes those of a large state without windows.

Where rows hold for a time (docs/decisions/0215), the document is

    {"windowed": {"revision": …, the usual parts of what holds at any time …,
                  "windows": {the same parts, with the times in the place of `true` …}},
     "members": …, "service_admins": …, "within": …}

The parts that windows concern lie below `windowed`, where a policy or an engine that knows no windows looks for nothing: it finds
no state, instead of one whose denials it would overlook. Times are lists of `[from, until]` in nanoseconds, ascending and apart.
A principal that somebody has through two rows, such as a role of a group, has the times in which both hold.

By `below` and `owned_below`, `or below` is one look-up. Roles that roles hold are active with them; a policy that lets requests narrow
such roles has in its index

    {"brought": {principal of a role: {principal of a role that it holds: true}}}

A role within a scope is a principal of its own (`principal_rows.py`). In a state with windows, these parts are split as others are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias, TypeVar

from privtab.base.errors import UsageError
from privtab.base.moments import ALWAYS, HELD_ALWAYS, WINDOWED, Window, intersection, union
from privtab.base.request import Entity
from privtab.base.shard_names import GRANTS
from privtab.ir.formula import direct_atoms, uses_below
from privtab.ir.nodes import Below, HasBelow, Program
from privtab.state import attribute_rows, located
from privtab.state.chains import ROLE_PREFIX, ScopeOverlap
from privtab.state.links import with_derived_rows
from privtab.state.located import locations
from privtab.state.names import StateNames, UsedParts, kept_part
from privtab.state.nodes import State
from privtab.state.principal_rows import SEPARATOR, HeldRoles, scoped_entries, scoped_principal, scopes_of_roles

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
    """What holds at any time, and what holds for a time, with its times; both in the order of the map."""
    times = {value: spans(windows) for value, windows in windows_of.items()}
    always = [value for value, own in times.items() if own == [list(ALWAYS)]]
    return always, {value: own for value, own in times.items() if own and own != [list(ALWAYS)]}


BROUGHT = "brought"

RolesOfRoles: TypeAlias = dict[str, dict[str, list[Window]]]
"""Principal of a role → those of the roles that it holds, each with the windows in which it does; sorted."""


def brought_part(program: Program, state: State) -> dict[str, Any]:
    """The part of the index of a state without windows; nothing if the policy has no use for it."""
    return {BROUGHT: brought_parts(program, state)[0]} if UsedParts.of(program).roles_of_roles else {}


def brought_parts(program: Program, state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """What roles bring at any time, and what they bring for a time."""
    always: dict[str, Any] = {}
    timed: dict[str, Any] = {}
    for role, others in held_roles(program, state).items():
        lasting, later = split(others)
        if lasting:
            always[role] = dict.fromkeys(lasting, True)
        if later:
            timed[role] = later
    return always, timed


def held_roles(program: Program, state: State) -> RolesOfRoles:
    """The roles that each role holds which is assigned to a user or a group."""
    state = with_derived_rows(program, state)
    role_links: dict[str, list[tuple[str, str | None, Window]]] = {}
    scopes: dict[str, set[str | None]] = {}
    rows = state.texts("assignments", "principal", "role", "scope")
    for (principal, name, scope), window in zip(rows, state.windows_of("assignments"), strict=True):
        if principal.startswith(ROLE_PREFIX):
            role_links.setdefault(principal, []).append((f"{ROLE_PREFIX}{name}", scope, window))
        else:
            scopes.setdefault(f"{ROLE_PREFIX}{name}", set()).add(scope)
    overlap = ScopeOverlap(locations(program, state).keys)
    found: RolesOfRoles = {}
    for role in role_links.keys() & scopes.keys():
        for scope in scopes[role]:
            for other, own, window in role_links[role]:
                common, both = overlap.both(scope, own)
                if common:
                    links = found.setdefault(scoped_principal(role, scope), {})
                    links.setdefault(scoped_principal(other, both), []).append(window)
    return {role: dict(sorted(found[role].items())) for role in sorted(found)}


Entry = Any
"""`true`, or alternatives: each a list of principals whom a caller must not have, since they are denied the privilege."""


def below_parts(program: Program, document: Mapping[str, Any], keys: Callable[[Entity], list[str]]) -> dict[str, Any]:
    """The parts `below` and `owned_below` of an index, from its finished `allow`, `deny` and `owners`; `keys`: the keys on a path.

    `below`: privilege → entity → principal → entry, for the entities of the types that conditions ask about.
    `owned_below`: entity → owners of something below it, each with `true`.

    In a document with windows (`py`), for `windows` in the index: an entry is by entity of the row below the `times` of the row,
    and `denied`, principals whom a denial concerns there, each with its times. Owners have times.
    """
    privileges, owned = types_asked_below(program)
    windows: Mapping[str, Any] | None = document.get("windows")
    below: dict[str, Any] = {}
    for privilege in sorted(privileges):
        inherited = program.inherits(privilege)
        found: dict[str, dict[str, Any]] = {}
        allowed, denied = (_times(document, effect, privilege) for effect in GRANTS)
        for key, holders in allowed.items():
            path = keys(Entity.parse(key))
            above = [upper for upper in path[:-1] if upper.partition(":")[0] in privileges[privilege]]
            blockers: dict[str, list[Window]] = {}
            for on in (path if inherited else path[-1:]) if above else ():
                for principal, times in denied.get(on, {}).items():
                    blockers.setdefault(principal, []).extend(times)
            blocked = {principal: spans(blockers[principal]) for principal in sorted(blockers)}
            for entries in (found.setdefault(upper, {}) for upper in above):
                for principal, times in holders.items():
                    if windows is None:
                        entries[principal] = _either(entries.get(principal), [list(blocked)] if blocked else True)
                    else:
                        entry = {"times": spans(times), "denied": blocked}
                        entries.setdefault(principal, {})[key] = entry
        if found:
            below[privilege] = _ordered(found)
    owners: dict[str, dict[str, list[Window]]] = {}
    for key, holders in _times(document, "owners").items() if owned else ():
        for upper in keys(Entity.parse(key))[:-1]:
            if upper.partition(":")[0] in owned:
                for principal, times in holders.items():
                    owners.setdefault(upper, {}).setdefault(principal, []).extend(times)
    owning = {
        key: {principal: windows is None or spans(times) for principal, times in own.items()}
        for key, own in owners.items()
    }
    return {"below": below, "owned_below": _ordered(owning)}


def _times(document: Mapping[str, Any], part: str, *privilege: str) -> dict[str, dict[str, list[Window]]]:
    """Entity → principal → windows, of a part, or of one privilege in it."""
    always, timed = (
        own.get(part, {}).get(*privilege, {}) if privilege else own.get(part, {})
        for own in (document, document.get("windows", {}))
    )
    found = {key: {principal: [ALWAYS] for principal in holders} for key, holders in always.items()}
    for key, holders in timed.items():
        for principal, entry in holders.items():
            # Grants have the times of each row apart, since those of a role within a scope are elsewhere.
            spans = [span for times in entry.values() for span in times] if privilege else entry
            found.setdefault(key, {}).setdefault(principal, []).extend(Window(*span) for span in spans)
    return found


def _ordered(value: Any) -> Any:
    """Nested maps, sorted."""
    return {key: _ordered(value[key]) for key in sorted(value)} if isinstance(value, Mapping) else value


def types_asked_below(program: Program) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """The types on which conditions ask for each privilege `or below`, and those on which ownership below counts."""
    privileges: dict[str, frozenset[str]] = {}
    owned: set[str] = set()
    owner = program.semantics.owner
    for atom in _atoms(program):
        if not isinstance(atom, HasBelow) or (owner is not None and atom.privilege in owner.holds):
            owned.update(program.types_of(atom.target))
        if isinstance(atom, HasBelow):
            privileges[atom.privilege] = privileges.get(atom.privilege, frozenset()).union(
                program.types_of(atom.target)
            )
    return privileges, frozenset(owned)


def _atoms(program: Program) -> Iterator[Below]:
    for rule in program.rules.values():
        yield from (atom for atom in direct_atoms(rule.item_condition) if isinstance(atom, Below))


def _either(known: Entry, entry: Entry) -> Entry:
    """Two entries together: alternatives that ask for no less than another are left out."""
    if known is None or known is True or entry is True:
        return entry if known is None else True
    sets = {frozenset(alternative) for alternative in (*known, *entry)}
    return sorted(sorted(alternative) for alternative in sets if not any(other < alternative for other in sets))


IndexDocument: TypeAlias = dict[str, Any]
Parts: TypeAlias = tuple[IndexDocument, IndexDocument]
"""Parts of what holds at any time, and of what holds for a time."""
T = TypeVar("T", bound="str | tuple[str, str]")
_LASTING = [ALWAYS]
"""The windows of what is held at any time; shared, and never changed."""
Held: TypeAlias = dict[str, dict[T, list[Window]]]
"""Holder (`user:…`, `group:…`) → what they hold → the windows in which they do."""


def row_index_document(program: Program, state: State) -> IndexDocument:
    """The index of a closed state without its revision; one without windows if none makes a difference.

    For example:

        Index({"revision": "", **row_index_document(program, state)})
    """
    keys = located.locations(program, state).keys
    of_grants, timed_grants = _grants(program, state, keys)
    of_owners, timed_owners = _owners(state)
    of_people, timed_people = _people(program, state, UsedParts.of(program))
    found: IndexDocument = {
        **of_grants,
        **of_owners,
        "members": _truths(state.texts("members", "of", "user")),
        "service_admins": dict.fromkeys(sorted(set(state.service_admins)), True),
        **of_people,
        **attribute_rows.attribute_parts(program, state),
        **kept_part(program, state),
        **located.parts(program, state),
    }
    windows = {**timed_grants, **timed_owners, **timed_people}
    if UsedParts.of(program).roles_of_roles:
        found[BROUGHT], windows[BROUGHT] = brought_parts(program, state)
    if not any(windows.values()):
        return found | (below_parts(program, found, keys) if uses_below(program) else {})
    parts = {part: found.pop(part) for part in sorted(found) if part not in HELD_ALWAYS}
    parts["windows"] = windows
    if uses_below(program):
        windows |= below_parts(program, parts, keys)
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
