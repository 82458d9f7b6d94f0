"""The users or principals for whom a condition holds, by set algebra."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import assert_never

from privtab.entitlements.universe import named_principals
from privtab.ir.formula import RequestAlgebra
from privtab.ir.nodes import (
    Atom,
    Compare,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnsBelow,
    Self,
    ServiceAdmin,
    Target,
)
from privtab.names import last_name, path_of, refers_to
from privtab.paths import base_type
from privtab.reference.evaluate import EvaluationContext
from privtab.state.chains import GROUP, ROLE, ScopeOverlap
from privtab.state.hierarchy import closed
from privtab.state.nodes import State

CHAIN = " → "
"""Between the principals of a chain."""


class PrincipalSets(RequestAlgebra[set[str] | None]):
    """The users or principals for whom a condition holds, as sets; None stands for everyone."""

    unassigned = False
    """Whether to count a role that is assigned to no one."""

    def __init__(self, context: EvaluationContext, state: State) -> None:
        super().__init__(context.program, context.flags, context.types, context.levels)
        self.context = context
        self.holdings = context.holdings
        self.rows = state
        self.state = closed(context.program, state)
        """The rows, with those that follow from chains of groups and of roles."""
        self._bearers_of: dict[Atom, set[str] | None] = {}
        self._assigned: dict[str, list[tuple[str, str | None]]] = {}

    def assigned(self, role: str) -> list[tuple[str, str | None]]:
        """(principal, key of the scope) of each row that assigns a `role:…`."""
        if role not in self._assigned:
            rows = self.state.column("assignments", "role").where([role.removeprefix("role:")])
            columns = (self.state.column("assignments", name).take(rows) for name in ("principal", "scope"))
            self._assigned[role] = [(str(p), scope) for p, scope in zip(*columns, strict=True)]
        return self._assigned[role]

    def groups_in(self, group: str) -> set[str]:
        """A `group:…` and the groups that it contains."""
        rows = self.state.column("memberships", "group").where([group.removeprefix(GROUP)])
        members = map(str, self.state.column("memberships", "user").take(rows))
        return {group, *(member for member in members if member.startswith(GROUP))}

    def unscoped_bearers(self, principal: str) -> set[str]:
        """The bearers of a principal without regard to scopes: of roles, only assignments without a scope count."""
        raise NotImplementedError

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """For a `role:…`, pairs of a scope's key and the bearers of the role within that scope."""
        raise NotImplementedError

    def user_bearer(self, user: str) -> str:
        """The bearer that stands for a user as such."""
        raise NotImplementedError

    def group_names(self) -> Iterable[str]:
        """Every known group."""
        raise NotImplementedError

    def role_names(self) -> Iterable[str]:
        """Every role that is assigned."""
        return self.state.column("assignments", "role").names

    def member_bearers(self, key: str) -> set[str]:
        """The users whom the state's `members` have under an entity."""
        rows = self.state.column("members", "of").where([key])
        return {self.user_bearer(str(user)) for user in self.state.column("members", "user").take(rows)}

    def atom(self, atom: Atom) -> set[str] | None:
        """The bearers for whom an atom holds."""
        if atom not in self._bearers_of:
            self._bearers_of[atom] = self._atom(atom)
        return self._bearers_of[atom]

    def all_of(self, values: Iterable[set[str] | None]) -> set[str] | None:
        """The bearers for whom all parts hold."""
        found: set[str] | None = None
        for bearers in values:
            if bearers is not None:
                found = set(bearers) if found is None else found & bearers
                if not found:
                    return found
        return found

    def any_of(self, values: Iterable[set[str] | None]) -> set[str] | None:
        """The bearers for whom some part holds."""
        found: set[str] = set()
        for bearers in values:
            if bearers is None:
                return None
            found |= bearers
        return found

    def _comparing(self, compare: Compare) -> set[str] | None:
        """The users whose attributes in the state compare so; everyone or nobody if it is not about these."""
        if not any(term.kind == "user" and self.context.sent(term) is None for term in compare.terms):
            return None if self.context.compares(compare) else set()
        users = self.rows.column("attributes", "user").names
        return {self.user_bearer(user) for user in users if self.context.compares(compare, user)}

    def _atom(self, atom: Atom) -> set[str] | None:
        match atom:
            case ServiceAdmin():
                return {self.user_bearer(user) for user in self.holdings.service_admins}
            case Has():
                return self._has(atom.privilege, atom.target)
            case Owner():
                path = self.context.path(atom.target)
                return self._any(self.holdings.owners(path[-1])) if path else set()
            case Member():
                return self._members(atom.target)
            case Self():
                path = self.context.path(atom.target)
                name = last_name(path_of(path[-1])) if path else ""
                return {self.user_bearer(name)} if name else set()
            case Holds():
                return self._holding(atom.target)
            case HasBelow():
                return {b for path in self.context.paths_from(atom.target) for b in self._has_on(atom.privilege, path)}
            case Compare():
                return self._comparing(atom)
            case OwnsBelow():
                return {
                    b
                    for path in self.context.paths_from(atom.target)
                    for b in self._any(self.holdings.owners(path[-1]))
                }
            case _:
                assert_never(atom)

    def _has(self, privilege: str, target: Target) -> set[str]:
        path = self.context.path(target)
        return self._has_on(privilege, path) if path else set()

    def _has_on(self, privilege: str, path: tuple[str, ...]) -> set[str]:
        keys = self.context.relevant_keys(privilege, path)
        allowed: set[str] = set()
        denied: set[str] = set()
        for key in keys:
            allow, deny = self.holdings.grants_on(privilege, key)
            allowed |= self._bearers_within(allow, path)
            allowed |= self._by_default(privilege, path, key)
            if self.program.semantics.deny == "overrides":
                denied |= self._bearers_within(deny, path)
        allowed -= denied
        owner = self.program.semantics.owner
        if owner is not None and privilege in owner.holds:
            for key in keys:
                allowed |= self._any(self.holdings.owners(key))
        return allowed

    def _any(self, principals: Iterable[str]) -> set[str]:
        return {bearer for principal in principals for bearer in self.unscoped_bearers(principal)}

    def _bearers_within(self, principals: Iterable[str], path: tuple[str, ...]) -> set[str]:
        found = self._any(principals)
        for principal in principals:
            if principal.startswith("role:"):
                for scope, bearers in self.scoped(principal):
                    if scope in path:
                        found |= bearers
        return found

    def _by_default(self, privilege: str, path: tuple[str, ...], key: str) -> set[str]:
        type_ = key.partition(":")[0]
        granting_roles = [
            f"role:{r.name}" for r in self.program.roles.values() if privilege in dict(r.grants).get(type_, ())
        ]
        return self._bearers_within(granting_roles, path[: path.index(key) + 1])

    def _members(self, target: Target) -> set[str]:
        path = self.context.path(target)
        if not path:
            return set()
        found = self.member_bearers(path[-1])
        if self.program.entities[base_type(target.type)].principal == "group":
            found |= self._any(f"group:{group}" for group in self.group_names() if refers_to(group, path_of(path[-1])))
        return found

    def _holding(self, target: Target) -> set[str]:
        path = self.context.path(target)
        if not path:
            return set()
        role_names = {r for r in self.role_names() if refers_to(r, path_of(path[-1]))}
        role_names |= {last_name(path_of(path[-1]))} if self.unassigned else set()
        found = self._any(f"role:{role}" for role in role_names)
        for role in role_names:
            for _, bearers in self.scoped(f"role:{role}"):
                found |= bearers
        return found


class UserSets(PrincipalSets):
    """Users, with all their groups and roles."""

    def __init__(self, context: EvaluationContext, state: State) -> None:
        super().__init__(context, state)
        self._state_groups = "state" in context.program.semantics.groups
        self._everywhere: dict[str, set[str]] = {}

    def unscoped_bearers(self, principal: str) -> set[str]:
        """The users that a principal stands for, counting only assignments without a scope."""
        if principal not in self._everywhere:
            kind, _, name = principal.partition(":")
            match kind:
                case "user":
                    found = {name}
                case "group":
                    rows = self.state.column("memberships", "group").where([name]) if self._state_groups else []
                    members = set(map(str, self.state.column("memberships", "user").take(rows)))
                    found = {member for member in members if not member.startswith(GROUP)}
                case _:
                    assignees = (p for p, scope in self.assigned(principal) if scope is None and not p.startswith(ROLE))
                    found = {user for p in assignees for user in self.unscoped_bearers(p)}
            self._everywhere[principal] = found
        return self._everywhere[principal]

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """Pairs of a scope's key and the users who hold the role within that scope."""
        return [
            (scope, self.unscoped_bearers(p))
            for p, scope in self.assigned(role)
            if scope is not None and not p.startswith(ROLE)
        ]

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
        """What rows say that a principal is in or holds."""
        kind, _, name = principal.partition(":")
        columns = self.rows.column("memberships", "user"), self.rows.column("memberships", "group")
        if kind == "group" or (kind == "user" and self._state_groups):
            for group in columns[1].take(columns[0].where([name if kind == "user" else principal])):
                yield f"{GROUP}{group}"
        rows = self.rows.column("assignments", "principal").where([principal])
        yield from (f"{ROLE}{role}" for role in self.rows.column("assignments", "role").take(rows))

    def user_bearer(self, user: str) -> str:
        """The user's name, unchanged."""
        return user

    def group_names(self) -> Iterable[str]:
        """The groups of the memberships."""
        return self.state.column("memberships", "group").names if self._state_groups else ()


class SinglePrincipalSets(PrincipalSets):
    """Principals, each on its own: a user without groups and roles, a group with its roles, or a role."""

    unassigned = True

    def __init__(self, context: EvaluationContext, state: State) -> None:
        super().__init__(context, state)
        self._meet = ScopeOverlap(context.holdings.locations.keys)
        self._groups = state.distinct(("memberships", "group")) | {
            p.removeprefix("group:") for p in named_principals(state) if p.startswith("group:")
        }

    def unscoped_bearers(self, principal: str) -> set[str]:
        """The principal itself, and the groups in it or the groups and roles that hold it; empty for roles that need a scope."""
        kind = principal.partition(":")[0]
        if kind == "user":
            return {principal}
        if kind == "group":
            return self.groups_in(principal)
        if self._scope(principal) is not None:
            return set()
        return {principal}.union(*(self._holders(p) for p, scope in self.assigned(principal) if scope is None))

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """For each scope in which the role is or could be held: the role there, and the groups and roles that hold it there."""
        found: dict[str, set[str]] = defaultdict(set)
        for key in self._scopes_of(role):
            found[key].add(f"{role}\n{key}")
        for principal, scope in self.assigned(role):
            if scope is not None:
                found[scope] |= self._holders(principal)
            if principal.startswith(ROLE):
                for key in self._scopes_of(principal):
                    common, both = self._meet.both(key, scope)
                    if common and both is not None:
                        found[both].add(f"{principal}\n{key}")
        return found.items()

    def _holders(self, principal: str) -> set[str]:
        """The bearers other than users of a principal that holds a role."""
        return set() if principal.startswith("user:") else self.unscoped_bearers(principal)

    def _scopes_of(self, role: str) -> set[str]:
        """The scopes within which the role is assigned or, if it is declared for a scope, could be for the request's objects."""
        type_ = self._scope(role)
        found = {scope for _, scope in self.assigned(role) if scope is not None}
        if type_ is None:
            return found
        # Roles that hold this one may hold it within scopes of other types, for which it cannot be assigned itself.
        found.update(key for keys in self.context.keys.values() for key in keys)
        return {key for key in found if key.partition(":")[0] == type_}

    def _scope(self, role: str) -> str | None:
        """The entity type that a `role:…` is scoped to; None if it is held everywhere."""
        declared = self.program.roles.get(role.removeprefix("role:"))
        return None if declared is None else declared.scope

    def user_bearer(self, user: str) -> str:
        """The principal `user:…`."""
        return f"user:{user}"

    def group_names(self) -> Iterable[str]:
        """Every group that the state names."""
        return self._groups
