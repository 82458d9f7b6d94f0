"""Holders of principals, from the rows of a state: the users behind a principal, or the principals that hold it without others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from privtab.base import last_name
from privtab.engines import Index
from privtab.ir import Program
from privtab.state import GROUP_PREFIX, ROLE_PREFIX, Holdings, ScopeOverlap, State, scoped_principal, with_derived_rows
from privtab_analysis.entitlements.subjects import Numbers, Subject, Subjects
from privtab_analysis.entitlements.universe import named_principals, users

CHAIN = " → "
"""Between the principals of a chain."""
ANYONE = "anyone"
"""Among principals, one that no row names; among users, the empty name is such a one."""
USER = "user:"
MOST_KEPT = 2_000_000
"""The most users of roles that are looked up before they are asked about."""


class Holders:
    """The holders of principals, as names of subjects."""

    def __init__(self, program: Program, state: State, holdings: Holdings) -> None:
        self.program = program
        self.holdings = holdings
        self.rows = state
        self.state = with_derived_rows(program, state)
        """The rows, with the rows that follow from chains of groups and of roles."""
        self._assigned: dict[str, list[tuple[str, str | None]]] = {}

    def assigned(self, role: str) -> list[tuple[str, str | None]]:
        """(principal, key of the scope) of each row that assigns a `role:…`."""
        if role not in self._assigned:
            rows = self.state.column("assignments", "role").where([role.removeprefix(ROLE_PREFIX)])
            self._assigned[role] = list(self.state.texts("assignments", "principal", "scope", rows=rows))
        return self._assigned[role]

    def groups_in(self, group: str) -> set[str]:
        """A `group:…` and the groups that it contains."""
        rows = self.state.column("memberships", "group").where([group.removeprefix(GROUP_PREFIX)])
        members = map(str, self.state.column("memberships", "user").take(rows))
        return {group, *(member for member in members if member.startswith(GROUP_PREFIX))}

    def everywhere(self, principal: str) -> set[str]:
        """The holders of a principal without regard to scopes: for a role, only assignments without a scope count."""
        raise NotImplementedError

    def numbered(self, principal: str, numbers: Mapping[str, int]) -> Numbers:
        """The same by number; `numbers`: of the subjects, by name."""
        return self.numbers_of(self.everywhere(principal), numbers)

    def numbers_of(self, holders: Iterable[str], numbers: Mapping[str, int]) -> Numbers:
        """The numbers of holders, given those of the subjects by name."""
        return frozenset(map(numbers.__getitem__, holders))

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """For a `role:…`, pairs of a scope's key and the holders of the role within that scope."""
        raise NotImplementedError

    def is_known(self, principal: str) -> bool:  # noqa: ARG002  (overridden)
        """Return whether a group or a role with the name of an entity exists; nobody holds one that no row names."""
        return True

    def subject(self, name: str) -> Subject:
        """The subject with a name."""
        raise NotImplementedError


class UserHolders(Holders):
    """Users, with all their groups and roles; their names are bare."""

    def __init__(self, program: Program, state: State, holdings: Holdings) -> None:
        super().__init__(program, state, holdings)
        self._state_groups = "state" in program.semantics.groups
        self._of_everyone = holdings.above(program.semantics.everyones)
        self._everywhere: dict[str, set[str]] = {}
        self._numbered: dict[str, Numbers] = {}

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each known user, after 0 for one whom no row names: the same for every question."""
        return {name: number for number, name in enumerate(["", *self.known])}

    @cached_property
    def known(self) -> frozenset[str]:
        """Every user that some row of the state names."""
        return users(self.program, self.rows)

    def all(self) -> None:
        """Look up the users of every role, as far as they are not too many to be kept, for questions to come."""
        kept = 0
        for role in self.state.column("assignments", "role").names:
            kept += len(self.numbered(f"{ROLE_PREFIX}{role}", self.numbers))
            if kept > MOST_KEPT:
                return

    def everywhere(self, principal: str) -> set[str]:
        """The users that a principal stands for, counting only assignments without a scope."""
        if principal not in self._everywhere:
            kind, _, name = principal.partition(":")
            match kind:
                case "user":
                    found = {name}
                case "group" if name in self._of_everyone:
                    found = {"", *self.known}
                case "group":
                    rows = self.state.column("memberships", "group").where([name]) if self._state_groups else []
                    members = set(map(str, self.state.column("memberships", "user").take(rows)))
                    found = {member for member in members if not member.startswith(GROUP_PREFIX)}
                case _:
                    holders = [
                        p for p, scope in self.assigned(principal) if scope is None and not p.startswith(ROLE_PREFIX)
                    ]
                    found = {holder[5:] for holder in holders if holder.startswith(USER)}
                    found = found.union(*(self.everywhere(p) for p in holders if not p.startswith(USER)))
            self._everywhere[principal] = found
        return self._everywhere[principal]

    def numbered(self, principal: str, numbers: Mapping[str, int]) -> Numbers:
        """As `Holders.numbered`, kept for groups and roles; `numbers`: those of `UserHolders.numbers`, and more."""
        if principal.startswith(USER):
            return super().numbered(principal, numbers)
        if principal not in self._numbered:
            self._numbered[principal] = super().numbered(principal, self.numbers)
        return self._numbered[principal]

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """Pairs of a scope's key and the users who hold the role within that scope."""
        return [
            (scope, self.everywhere(p))
            for p, scope in self.assigned(role)
            if scope is not None and not p.startswith(ROLE_PREFIX)
        ]

    def subject(self, name: str) -> Subject:
        """A user."""
        held = self.holdings.of_user(name)
        return Subject.holding(f"user:{name}", name, held.principals, held.scoped, self.program.roles)

    def via(self, user: str, role: str) -> str | None:
        """The groups and roles through which a user holds a `role:…`, from the user on; None if they are assigned it themselves."""
        chains: dict[str, tuple[str, ...]] = {f"user:{user}": ()}
        while role not in chains:
            more: dict[str, tuple[str, ...]] = {}
            for principal, chain in chains.items():
                for container in self.containers(principal):
                    if container not in chains:
                        more[container] = min(more.get(container, (*chain, principal)), (*chain, principal))
            if not more:
                return None
            chains |= more
        return CHAIN.join(chains[role][1:]) or None

    def containers(self, principal: str) -> Iterator[str]:
        """The groups and roles that rows give a principal."""
        kind, _, name = principal.partition(":")
        columns = self.rows.column("memberships", "user"), self.rows.column("memberships", "group")
        if kind == "user":
            yield from (f"{GROUP_PREFIX}{group}" for group in self.program.semantics.everyones)
        if kind == "group" or (kind == "user" and self._state_groups):
            for group in columns[1].take(columns[0].where([name if kind == "user" else principal])):
                yield f"{GROUP_PREFIX}{group}"
        rows = self.rows.column("assignments", "principal").where([principal])
        yield from (f"{ROLE_PREFIX}{role}" for role in self.rows.column("assignments", "role").take(rows))


class PrincipalHolders(Holders):
    """Principals, each on its own: a user without groups and roles, a group with its roles, or a role; this with the key of a scope in a second line.

    All of them have what the groups of every user have.
    """

    def __init__(self, users: UserHolders, objects: Collection[str]) -> None:
        """`users`: of the same rows; `objects`: the keys on the paths of a request's objects, within which roles could be held."""
        super().__init__(users.program, users.rows, users.holdings)
        self._users = users
        self._objects = objects
        self._meet = ScopeOverlap(users.holdings.locations.keys)
        self._others: dict[str, list[tuple[str, str | None]]] = {}
        program, state = self.program, self.rows
        named = named_principals(state)
        self.groups = {f"{GROUP_PREFIX}{group}" for group in state.distinct(("memberships", "group"))}
        self.groups |= {principal for principal in named if principal.startswith(GROUP_PREFIX)}
        self._of_everyone = {f"{GROUP_PREFIX}{group}" for group in users.holdings.above(program.semantics.everyones)}
        self.groups |= self._of_everyone
        self._held = {f"{ROLE_PREFIX}{role}" for role in state.distinct(("assignments", "role"))}
        self._roles = self._held.union(f"{ROLE_PREFIX}{role}" for role in program.roles)
        self._roles |= {principal for principal in named if principal.startswith(ROLE_PREFIX)}

    def names(self, keys: Collection[str]) -> set[str]:
        """Every group and role; roles within the given scopes, where they count for some entities, by their keys."""
        like = {last_name(key.partition(":")[2]) for key in {*keys, *self._objects}}
        found = {member for member in self.state.column("memberships", "user").names if member.startswith(GROUP_PREFIX)}
        found |= self.groups
        named = {f"{ROLE_PREFIX}{name}" for name in like}
        found |= {role for role in self._roles | named if not self._scope_types(role)}
        rows = self.state.column("assignments", "scope").where(keys)
        scoped = {f"{ROLE_PREFIX}{role}" for role in self.state.column("assignments", "role").take(rows)}
        for role in scoped | named | {role for role in self._roles if self._scope_types(role)}:
            found.update(holder for _, holders in self.scoped(role) for holder in holders)
        return found

    def assigned(self, role: str) -> list[tuple[str, str | None]]:
        """As `Holders.assigned`, known once for both."""
        return self._users.assigned(role)

    def everywhere(self, principal: str) -> set[str]:
        """The principal itself, and the groups in it or the groups and roles that hold it; empty for roles that need a scope, or groups without rows."""
        kind = principal.partition(":")[0]
        if kind == "user":
            return {principal}
        if kind == "group":
            return self.groups_in(principal) if self.is_known(principal) else set()
        if self._scope_types(principal):
            return set()
        return {principal}.union(
            *(self._holders(p) for p, scope in self._assigned_otherwise(principal) if scope is None)
        )

    def numbers_of(self, holders: Iterable[str], numbers: Mapping[str, int]) -> Numbers:
        """As `Holders.numbers_of`; all numbers if every user is in one of the groups."""
        if self._of_everyone.isdisjoint(holders):
            return super().numbers_of(holders, numbers)
        return frozenset(numbers.values())

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """For each scope in which the role is or could be held: the role there, and the groups and roles that hold it there."""
        found: dict[str, set[str]] = defaultdict(set)
        for key in self._scopes_of(role):
            found[key].add(f"{role}\n{key}")
        for principal, scope in self._assigned_otherwise(role):
            if scope is not None:
                found[scope] |= self._holders(principal)
            if principal.startswith(ROLE_PREFIX):
                for key in self._scopes_of(principal):
                    common, both = self._meet.both(key, scope)
                    if common and both is not None:
                        found[both].add(f"{principal}\n{key}")
        return found.items()

    def is_known(self, principal: str) -> bool:
        """Return whether a row names the group, or assigns the role."""
        return principal in self.groups or principal in self._held

    def subject(self, name: str) -> Subject:
        """A principal by itself, as a subject."""
        principal, _, scope = name.partition("\n")
        user = name.removeprefix(USER) if name == ANYONE or name.startswith(USER) else None
        everywhere, scoped = set[str]() if user is None else {name}, list[tuple[str, str]]()
        groups = {*self._of_everyone, principal} if principal.startswith(GROUP_PREFIX) else self._of_everyone
        for group in sorted(groups):
            of_group, within, _ = self.holdings.of_principal(group)
            everywhere |= of_group
            scoped += within
        if user is None and principal not in groups:
            held = self.holdings.held_with(principal.removeprefix(ROLE_PREFIX), scope or None)
            everywhere |= {f"{ROLE_PREFIX}{role}" for role, within in held if within is None}
            scoped += ((f"{ROLE_PREFIX}{role}", within) for role, within in held if within is not None)
        return Subject.holding(name, user, everywhere, scoped, self.program.roles)

    def _assigned_otherwise(self, role: str) -> list[tuple[str, str | None]]:
        """As `assigned`, without the users who have the role everywhere: they are not what it is held through."""
        if role not in self._others:
            rows = self.assigned(role)
            self._others[role] = [row for row in rows if row[1] is not None or not row[0].startswith(USER)]
        return self._others[role]

    def _holders(self, principal: str) -> set[str]:
        """The holders other than users of a principal that holds a role."""
        return set() if principal.startswith(USER) else self.everywhere(principal)

    def _scopes_of(self, role: str) -> set[str]:
        """The scopes within which the role is assigned or, if it is declared for scopes, could be for the request's objects."""
        types = self._scope_types(role)
        found = {scope for _, scope in self._assigned_otherwise(role) if scope is not None}
        if not types:
            return found
        # Roles that hold this one may hold it within scopes of other types, for which it cannot be assigned itself.
        return {key for key in found.union(self._objects) if key.partition(":")[0] in types}

    def _scope_types(self, role: str) -> tuple[str, ...]:
        """The entity types that a `role:…` is assigned for; empty if it is held everywhere."""
        declared = self.program.roles.get(role.removeprefix(ROLE_PREFIX))
        return () if declared is None else declared.scopes


class SubjectsOnDemand(Subjects):
    """Subjects that are looked up among the rows of a state when a question comes to them."""

    def __init__(self, holders: Holders, numbers: Mapping[str, int], users: Mapping[str, int], index: Index) -> None:
        """`numbers`: of all subjects by name, as in `holders` and in order; `users`: of the subjects that are users."""
        self.through = {}
        self._holders_of = holders
        self._number(_Each(holders, [*numbers]), users, index)
        self._having = _Having(holders, numbers, index)
        self.holders = self._having
        self.within = defaultdict(dict)
        for principal, (role, scope) in index.within.items():
            if role.removeprefix(ROLE_PREFIX) in holders.program.roles:
                self.within[scope][role] = self._having[principal]

    def standing(self, kind: str, path: str) -> list[str]:
        """As `Subjects.standing`."""
        named = [f"{kind}:{name}" for name in dict.fromkeys((last_name(path), path))]
        found = [p for p in named if self._holders_of.is_known(p) or (kind == "role" and p is named[0])]
        scoped = [
            self._having.within(role, scope)
            for role in (found if kind == "role" else ())
            for scope, _ in self._holders_of.scoped(role)
        ]
        return [*found, *scoped]


class _Each(Sequence[Subject]):
    """Subjects by number, each made when it is first asked for."""

    def __init__(self, holders: Holders, names: Sequence[str]) -> None:
        self._holders_of = holders
        self._names = names
        self._known: dict[int, Subject] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number: Any) -> Any:
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._holders_of.subject(self._names[number])
        return found


class _Having(Mapping[str, Numbers]):
    """Principal → the subjects that have it."""

    def __init__(self, holders: Holders, numbers: Mapping[str, int], index: Index) -> None:
        self._holders_of = holders
        self._numbers = numbers
        self._within = dict(index.within)
        self._known: dict[str, Numbers] = {}
        self._scoped: dict[str, dict[str, set[str]]] = {}

    def within(self, role: str, scope: str) -> str:
        """The principal for a role within a scope."""
        principal = scoped_principal(role, scope)
        self._within[principal] = role, scope
        return principal

    def get(self, principal: str, default: Any = None) -> Any:  # noqa: ARG002  (of `Mapping`)
        """As `Mapping.get`; nobody has a principal that no row names."""
        found = self._known.get(principal)
        if found is None:
            found = self._known[principal] = self._having(principal)
        return found

    def _having(self, principal: str) -> Numbers:
        if principal not in self._within:
            return self._holders_of.numbered(principal, self._numbers)
        role, scope = self._within[principal]
        if role not in self._scoped:
            of_role = self._scoped[role] = {}
            for key, names in self._holders_of.scoped(role):
                of_role.setdefault(key, set()).update(names)
        return self._holders_of.numbers_of(self._scoped[role].get(scope, ()), self._numbers)

    def __getitem__(self, principal: str) -> Numbers:
        found: Numbers = self.get(principal)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
