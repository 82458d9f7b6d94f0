"""The parts of an index from rows, one by one, each with its window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeAlias, TypeVar

from privtab.base.moments import ALWAYS, Window, intersection
from privtab.base.request import Entity
from privtab.base.shard_names import GRANTS
from privtab.ir.formula import direct_atoms, uses_below
from privtab.ir.nodes import Below, HasBelow, Program
from privtab.state.index_parts import IndexDocument, IndexParts, Parts, spans, spans_of, split
from privtab.state.links import GROUP_PREFIX, ROLE_PREFIX
from privtab.state.names import StateNames
from privtab.state.nodes import State
from privtab.state.principal_rows import SEPARATOR, HeldRoles, ScopedEntries

T = TypeVar("T", bound="str | tuple[str, str]")
_LASTING = [ALWAYS]
"""The windows of what is held at any time; shared, and never changed."""
Held: TypeAlias = dict[str, dict[T, list[Window]]]
"""Holder (`user:…`, `group:…`) → what they hold → the windows in which they do."""


class RowIndex(IndexParts):
    """The parts of an index as nested maps."""

    def grants(self, scoped: ScopedEntries) -> Parts:
        """As IndexParts.grants."""
        names = StateNames(self.program)
        found: dict[str, dict[str, dict[str, dict[str, Any]]]] = {"allow": {}, "deny": {}}
        timed: dict[str, dict[str, Any]] = {"allow": {}, "deny": {}}
        granted_privileges: dict[tuple[str, str, str], tuple[str, ...]] = {}

        def add_for_a_time(place: tuple[str, str, str, str], origin: str, windows: Iterable[Window]) -> None:
            holding = [window for window in windows if window != ALWAYS and window.begin < window.end]
            if holding:
                effect, privilege, key, principal = place
                entities = timed[effect].setdefault(privilege, {})
                entities.setdefault(key, {}).setdefault(principal, {}).setdefault(origin, []).extend(holding)

        for (grantee, effect, name, key), window in _rows(
            self.state, "grants", "grantee", "effect", "privilege", "entity"
        ):
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
        for place, origins in scoped.items():
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

    def pairs(self, table: str, key: str, name: str) -> tuple[IndexDocument, IndexDocument]:
        """As IndexParts.pairs."""
        always: dict[str, dict[str, Any]] = {}
        timed: Held[str] = {}
        for (entity, principal), window in _rows(self.state, table, key, name):
            if window is ALWAYS:
                always.setdefault(entity, {})[principal] = True
            elif window.begin < window.end:
                timed.setdefault(entity, {}).setdefault(principal, []).append(window)
        return _sorted(always), spans_of(timed)

    def names(self, table: str, name: str) -> dict[str, bool]:
        """As IndexParts.names."""
        return dict.fromkeys(sorted(self.state.column(table, name).names), True)

    def below(self, document: Mapping[str, Any]) -> IndexDocument:
        """As IndexParts.below."""
        return _below_parts(self.program, document, self.keys) if uses_below(self.program) else {}

    def held_by_name(self, roles: HeldRoles) -> _HeldByName:
        """As IndexParts.held_by_name."""
        return _HeldByName(self.state, roles)


class _HeldByName:
    def __init__(self, state: State, roles: HeldRoles) -> None:
        self._principals: Held[str] = {}
        self._scoped: Held[tuple[str, str]] = {}
        """Scopes and the declared roles that are held there."""
        self._groups: Held[str] = {}
        """The groups that contain a user or a group."""
        self._changing: set[str] = set()
        """Those whose own rows hold for a time."""
        for (user, group), window in _rows(state, "memberships", "user", "group"):
            member = user if user.startswith(GROUP_PREFIX) else f"user:{user}"
            if member is user or roles.used.state_groups:
                self._groups.setdefault(member, {}).setdefault(f"{GROUP_PREFIX}{group}", []).append(window)
                if window is not ALWAYS:
                    self._changing.add(member)
        principal_of: dict[tuple[str, str | None], str | None] = {}
        for (holder, name, scope), window in _rows(state, "assignments", "principal", "role", "scope"):
            if (name, scope) not in principal_of:
                principal_of[name, scope] = roles.principal(name, scope)
            of_role = principal_of[name, scope]
            of_holder = self._principals.setdefault(holder, {})
            if of_role is not None:
                of_holder[of_role] = _LASTING if window is ALWAYS else [*of_holder.get(of_role, ()), window]
            if scope is not None and roles.is_declared(name):
                of_scopes = self._scoped.setdefault(holder, {})
                of_scopes.setdefault((scope, f"{ROLE_PREFIX}{name}"), []).append(window)
            if window is not ALWAYS:
                self._changing.add(holder)
        for principal in roles.named_themselves:
            self._principals.setdefault(principal, {}).setdefault(principal, _LASTING)
        self._holders = {*self._principals, *self._groups}
        if roles.used.group_membership:
            contained = {group for own in self._groups.values() for group in own}
            for group in {p for p in (*self._holders, *contained) if p.startswith(GROUP_PREFIX)}:
                self._principals.setdefault(group, {}).setdefault(group, _LASTING)

    def principals(self, kind: str, named: Collection[str] | None) -> tuple[IndexDocument, IndexDocument]:
        found: IndexDocument = {}
        timed: IndexDocument = {}
        for name, principals, later in self._held(self._principals, kind, named):
            if principals:
                found[name] = SEPARATOR.join(principals)
            if later:
                timed[name] = later
        return found, timed

    def scoped(self, kind: str, named: Collection[str] | None) -> tuple[IndexDocument, IndexDocument]:
        found: IndexDocument = {}
        timed: IndexDocument = {}
        for name, pairs, later in self._held(self._scoped, kind, named):
            for scope, role in pairs:
                found.setdefault(name, {}).setdefault(scope, []).append(role)
            for (scope, role), times in later.items():
                timed.setdefault(name, {}).setdefault(scope, {})[role] = times
        return found, timed

    def _held(
        self, values_of: Held[T], kind: str, named: Collection[str] | None
    ) -> Iterator[tuple[str, list[T], dict[T, list[list[int]]]]]:
        """For each name what it has together with its groups: at any time, and for a time; both sorted."""
        prefix = f"{kind}:"
        for member in sorted(p for p in self._holders if p.startswith(prefix) and (named is None or p in named)):
            own_groups = self._groups.get(member, {})
            name = member.removeprefix(prefix)
            if member in self._changing or not self._changing.isdisjoint(own_groups):
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


def _sorted(found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        key: holders if len(holders := found[key]) == 1 else {name: holders[name] for name in sorted(holders)}
        for key in sorted(found)
    }


Entry = Any
"""`true`, or alternatives: each a list of principals whom a caller must not have, since they are denied the privilege."""


def _below_parts(program: Program, document: Mapping[str, Any], keys: Callable[[Entity], list[str]]) -> dict[str, Any]:
    """The parts `below` and `owned_below` of an index, from its finished `allow`, `deny` and `owners`; `keys`: the keys on a path.

    `below`: privilege → entity → principal → entry, for the entities of the types that conditions ask about.
    `owned_below`: entity → owners of something below it, each with `true`.

    In a document with windows (`py`), for `windows` in the index: an entry is by entity of the row below the `times` of the row,
    and `denied`, principals whom a denial concerns there, each with its times. Owners have times.
    """
    privileges, owned = _types_asked_below(program)
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


def _types_asked_below(program: Program) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
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
