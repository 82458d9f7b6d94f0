"""Look-ups in a state for the reference engine, from its columns, of which only the necessary rows are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from privtab.base.attributes import AttributeValue
from privtab.ir.names import privilege_names
from privtab.ir.nodes import Program
from privtab.state.attribute_rows import value_of
from privtab.state.links import GROUP_PREFIX, ScopeOverlap, with_derived_rows
from privtab.state.located import locations
from privtab.state.nodes import State

_NOBODY: frozenset[str] = frozenset()
_MOST_USERS = 100
"""Users whose holdings are kept: questions come in runs about the same few."""


class UserHoldings(NamedTuple):
    """The holdings of a user."""

    principals: frozenset[str]
    """Those that count everywhere, `user:…`, `group:…` and `role:…`, without roles assigned for a scope."""
    scoped: tuple[tuple[str, str], ...]
    """(`role:…`, key of the scope) for each role that is held within a scope, sorted."""
    roles: frozenset[str]
    """The names of the roles, held directly, through a group or a role, everywhere or within a scope."""
    groups: frozenset[str]
    """The names of the groups."""


class Holdings:
    """The holdings of all principals, for one policy.

    Keys are `type:path`. `groups` arguments are the groups that a request brings: if the policy takes groups from the
    request, they count in addition to those of the state.

        Holdings(program, state).of_user("ann").roles  # frozenset({"analyst"})
    """

    def __init__(self, program: Program, state: State) -> None:
        plain = state.plain("the reference engine, which is given the state of one moment,")
        self._state = with_derived_rows(program, plain)
        self._names = privilege_names(program)
        sources = program.semantics.groups
        self._takes_state_groups = "state" in sources
        self._takes_request_groups = "request" in sources
        self._everyone = program.semantics.everyones
        self._nests_groups = "groups" in program.semantics.hierarchy
        self._bound = {role.name for role in program.roles.values() if role.scopes}
        self.locations = locations(program, state)
        self._scopes = ScopeOverlap(self.locations.keys)
        self._grants: dict[str, Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {}
        self._owners: dict[str, frozenset[str]] = {}
        self._members: dict[str, frozenset[str]] = {}
        self._users: dict[tuple[str, frozenset[str]], UserHoldings] = {}
        self._attributes = program.attributes.from_origin("state")
        self._named: tuple[str, ...] | None = None
        self.service_admins: frozenset[str] = frozenset(state.service_admins)

    def groups(self, user: str, request_groups: Collection[str] = ()) -> frozenset[str]:
        """The names of the groups that the user is in, with the groups that contain these."""
        from_request = frozenset(request_groups) if self._takes_request_groups else _NOBODY
        found = self.above(from_request | self._everyone)
        return found | self._values_where("memberships", "user", user, "group") if self._takes_state_groups else found

    def above(self, groups: Collection[str]) -> frozenset[str]:
        """Some groups, with the groups that contain them."""
        found = frozenset(groups)
        if not self._nests_groups:
            return found
        return found.union(
            *(self._values_where("memberships", "user", f"{GROUP_PREFIX}{group}", "group") for group in found)
        )

    def of_user(self, user: str, groups: Collection[str] = ()) -> UserHoldings:
        """The holdings of a user."""
        key = user, frozenset(groups)
        found = self._users.get(key)
        if found is None:
            if len(self._users) >= _MOST_USERS:
                self._users.clear()
            found = self._users[key] = self._of_user(user, key[1])
        return found

    def _of_user(self, user: str, groups: frozenset[str]) -> UserHoldings:
        own = self.groups(user, groups)
        direct = {f"user:{user}", *(f"group:{group}" for group in own)}
        role_pairs = self.held_by(direct)
        principals, scoped = _divided(direct, role_pairs)
        return UserHoldings(
            principals=principals,
            scoped=scoped,
            roles=frozenset(role for role, _ in role_pairs),
            groups=own,
        )

    def narrowed(
        self, user: str, groups: Collection[str], active: Collection[str]
    ) -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
        """`principals` and `scoped` of a user of whose roles only some are active, with the roles that these hold."""
        direct = {f"user:{user}", *(f"group:{group}" for group in self.groups(user, groups))}
        role_pairs = {
            pair for role, scope in set(self.held_by(direct)) if role in active for pair in self.held_with(role, scope)
        }
        return _divided(direct, role_pairs)

    def of_principal(
        self, principal: str, *, everywhere: bool = False
    ) -> tuple[frozenset[str], tuple[tuple[str, str], ...], frozenset[str]]:
        """As `of_user`, without the groups, for a user who only belongs to one group, or only holds one role.

        A role that the policy declares for a scope is held within each scope for which the state assigns it; `everywhere`: like
        other roles.
        """
        kind, _, name = principal.partition(":")
        if kind == "group":
            own = {f"{GROUP_PREFIX}{group}" for group in self.above([name])}
            role_pairs = self.held_by(own)
        else:
            own = set()
            bound = name in self._bound and not everywhere
            scopes = self._values_where("assignments", "role", name, "scope") if bound else [None]
            role_pairs = [pair for scope in scopes for pair in self.held_with(name, scope)]
        names = {role for role, _ in role_pairs} | ({name} if kind == "role" else set())
        return *_divided(own, role_pairs), frozenset(names)

    def held_with(self, role: str, scope: str | None) -> list[tuple[str, str | None]]:
        """The principals from a role held within a scope: (role, key of the scope) for the role and the roles that it holds."""
        found = [(role, scope)]
        for other, own in self.held_by([f"role:{role}"]):
            common, both = self._scopes.both(scope, own)
            if common:
                found.append((other, both))
        return found

    def grants_on(self, privilege: str, key: str) -> tuple[frozenset[str], frozenset[str]]:
        """The principals that a grant on this very entity allows or denies the privilege, with aliases and sets resolved."""
        if key not in self._grants:
            self._grants[key] = self._read_grants(key)
        return self._grants[key].get(privilege, (_NOBODY, _NOBODY))

    def _read_grants(self, key: str) -> Mapping[str, tuple[frozenset[str], frozenset[str]]]:
        """For each privilege, the principals that are allowed and denied it on an entity."""
        rows = self._state.column("grants", "entity").where([key])
        type_ = key.partition(":")[0]
        found: dict[str, tuple[set[str], set[str]]] = {}
        for grantee, effect, name in self._state.texts("grants", "grantee", "effect", "privilege", rows=rows):
            for privilege in self._names.privileges_of(name, type_, effect):
                found.setdefault(privilege, (set(), set()))[effect == "deny"].add(grantee)
        # Frozen once: an entity can have thousands of grantees, and each of them may be looked up.
        return {privilege: (frozenset(allow), frozenset(deny)) for privilege, (allow, deny) in found.items()}

    def named(self) -> tuple[str, ...]:
        """The entities that grants, owners and the scopes of assignments name."""
        if self._named is None:
            columns = (("grants", "entity"), ("owners", "entity"), ("assignments", "scope"))
            self._named = tuple(sorted(self._state.distinct(*columns)))
        return self._named

    def owners(self, key: str) -> frozenset[str]:
        """The principals that own the entity."""
        if key not in self._owners:
            self._owners[key] = self._values_where("owners", "entity", key, "owner")
        return self._owners[key]

    def is_member(self, user: str, key: str) -> bool:
        """Return whether the state's `members` have the user under the entity; for membership in groups, see `groups`."""
        if user not in self._members:
            self._members[user] = self._values_where("members", "user", user, "of")
        return key in self._members[user]

    def attribute(self, owner: Literal["user", "entity"], name: str, attribute: str) -> AttributeValue | None:
        """The value that the state gives an attribute of a user or of an entity, by name or key; None if there is none."""
        rows = self._state.column("attributes", owner).where([name])
        found = self._state.texts("attributes", "attribute", "value", rows=rows)
        texts = [value for named, value in found if named == attribute]
        declared = self._attributes.of(owner).get(attribute)
        return None if declared is None else value_of(declared, texts)

    def _values_where(self, table: str, column: str, text: str, result_column: str) -> frozenset[str]:
        """The values of one column in the rows that have a text in another column."""
        found = self._state.column(table, result_column).take(self._state.column(table, column).where([text]))
        return frozenset(value for value in found if value is not None)

    def held_by(self, principals: Collection[str]) -> list[tuple[str, str | None]]:
        """(role, key of the scope) for each role that one of the principals holds, at any distance."""
        rows = self._state.column("assignments", "principal").where(principals)
        return list(self._state.texts("assignments", "role", "scope", rows=rows))


def _divided(
    principals: Collection[str], role_pairs: Collection[tuple[str, str | None]]
) -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
    """Some principals with the roles that are held everywhere; and those within a scope, as `UserHoldings.scoped`."""
    everywhere = {f"role:{role}" for role, scope in role_pairs if scope is None}
    scoped = {(f"role:{role}", scope) for role, scope in role_pairs if scope is not None}
    return frozenset(principals) | everywhere, tuple(sorted(scoped))
