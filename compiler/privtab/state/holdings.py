"""What the reference meaning asks of a state: plain answers, from dictionaries that are built once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from privtab.ir.nodes import Program
from privtab.state.names import StateNames
from privtab.state.nodes import State

_NOBODY: frozenset[str] = frozenset()


class Holdings:
    """Who holds what, for one policy.

    Keys are `type:path`. `groups` arguments are the groups that a request brings: they count where the policy takes
    groups from the request, beside those of the state.
    """

    def __init__(self, program: Program, state: State) -> None:
        names = StateNames(program)
        sources = program.semantics.groups
        self._takes_request_groups = "request" in sources
        self._bound = {role.name for role in program.roles.values() if role.scope is not None}
        self._groups: dict[str, set[str]] = defaultdict(set)
        for user, group in state.memberships if "state" in sources else ():
            self._groups[user].add(group)

        self._everywhere: dict[str, set[str]] = defaultdict(set)
        self._scoped: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._roles: dict[str, set[str]] = defaultdict(set)
        for assignment in state.assignments:
            self._roles[assignment.principal].add(assignment.role)
            if assignment.scope is None:
                self._everywhere[assignment.principal].add(f"role:{assignment.role}")
            else:
                self._scoped[assignment.principal].add((f"role:{assignment.role}", str(assignment.scope)))

        grants: dict[str, dict[tuple[str, str], set[str]]] = {"allow": defaultdict(set), "deny": defaultdict(set)}
        for grant in state.grants:
            for privilege in names.given(grant.privilege, grant.entity.type):
                grants[grant.effect][privilege, str(grant.entity)].add(grant.grantee)
        # Frozen once: an entity can have thousands of grantees, and each of them may be asked about.
        self._allow = {on: frozenset(grantees) for on, grantees in grants["allow"].items()}
        self._deny = {on: frozenset(grantees) for on, grantees in grants["deny"].items()}

        owners: dict[str, set[str]] = defaultdict(set)
        for entity, owner in state.owners:
            owners[str(entity)].add(owner)
        self._owners = {key: frozenset(principals) for key, principals in owners.items()}
        self._members = {(user, str(entity)) for user, entity in state.members}
        self.service_admins: frozenset[str] = frozenset(state.service_admins)

    def groups(self, user: str, request_groups: Collection[str] = ()) -> frozenset[str]:
        """The names of the groups that the user is in."""
        brought = frozenset(request_groups) if self._takes_request_groups else _NOBODY
        return brought | self._groups.get(user, _NOBODY)

    def principals(self, user: str, groups: Collection[str] = ()) -> frozenset[str]:
        """`user:…`, `group:…` and `role:…` that the user is everywhere: roles assigned for a scope are not among them."""
        own = self._own(user, groups)
        return own | {role for principal in own for role in self._everywhere.get(principal, ())}

    def scoped(self, user: str, groups: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
        """(`role:…`, key of the scope) for each role that the user holds within a scope, sorted."""
        own = self._own(user, groups)
        return tuple(sorted({pair for principal in own for pair in self._scoped.get(principal, ())}))

    def roles(self, user: str, groups: Collection[str] = ()) -> frozenset[str]:
        """The names of the roles that the user holds, directly or through a group, everywhere or within a scope."""
        return frozenset({role for principal in self._own(user, groups) for role in self._roles.get(principal, ())})

    def alone(self, principal: str) -> tuple[frozenset[str], tuple[tuple[str, str], ...], frozenset[str]]:
        """What `principals`, `scoped` and `roles` say of somebody who is in a group, or holds a role, and nothing else.

        A role that the policy declares for a scope is held within each scope that the state assigns it for.
        """
        kind, _, name = principal.partition(":")
        if kind == "group":
            everywhere = frozenset({principal, *self._everywhere.get(principal, ())})
            return everywhere, tuple(sorted(self._scoped.get(principal, ()))), frozenset(self._roles.get(principal, ()))
        if name not in self._bound:
            return frozenset({principal}), (), frozenset({name})
        scopes = {scope for pairs in self._scoped.values() for role, scope in pairs if role == principal}
        return _NOBODY, tuple(sorted((principal, scope) for scope in scopes)), frozenset({name})

    def grants_on(self, privilege: str, key: str) -> tuple[frozenset[str], frozenset[str]]:
        """Who is allowed and who is denied the privilege by a grant on this very entity, aliases and sets resolved."""
        return self._allow.get((privilege, key), _NOBODY), self._deny.get((privilege, key), _NOBODY)

    def owners(self, key: str) -> frozenset[str]:
        """Who owns the entity: principals."""
        return self._owners.get(key, _NOBODY)

    def is_member(self, user: str, key: str) -> bool:
        """Whether the state's `members` have the user under the entity; who is in a group is what `groups` says."""
        return (user, key) in self._members

    def _own(self, user: str, groups: Collection[str]) -> frozenset[str]:
        return frozenset({f"user:{user}"} | {f"group:{group}" for group in self.groups(user, groups)})
