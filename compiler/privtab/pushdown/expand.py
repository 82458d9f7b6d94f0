"""Grants that follow from all rows together, for targets without inheritance, denials or scopes.

For each privilege and each object, the reference says which users hold it. A principal that rows allow it keeps the grant if all its
members are among these users; the others get it directly. So nobody gets more or less, and roles remain roles where that is exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from privtab.ir.names import PrivilegeNames
from privtab.ir.nodes import Program
from privtab.pushdown.document import Document
from privtab.pushdown.holders import Holders, users_of
from privtab.pushdown.mapping import NativeNames
from privtab.pushdown.rights import Account, Inventory, NativeGrant, NativeMembership
from privtab.request import Entity
from privtab.state.nodes import State


def expanded(
    program: Program,
    state: State,
    document: Document,
    inventory: Inventory,
    names: NativeNames,
    memberships: Collection[NativeMembership],
) -> Iterator[NativeGrant]:
    """The grants on every object that is there now. `state`: that of one moment."""
    expansion = _Expansion(program, state, names, memberships)
    entities = names.entities(inventory.objects)
    for privilege, natives in document.privileges.items():
        if privilege in document.left_out["privileges"]:
            continue
        holders = {
            entity: expansion.holders.of(privilege, entity, expansion.users)
            for entity in entities
            if entity.type in natives
        }
        if document.inherits:
            holders = _everywhere(names, holders)
        covered: dict[Entity, frozenset[str]] = {}
        for entity, users in holders.items():
            above = names.path(entity)[:-1] if document.inherits else ()
            covered[entity] = users.union(*(covered.get(container, frozenset()) for container in above))
            new = users.difference(*(covered.get(container, frozenset()) for container in above))
            for account in expansion.accounts(privilege, entity, new, covered[entity]):
                for native in natives[entity.type]:
                    yield NativeGrant(account, "allow", native, entities[entity])


def _everywhere(names: NativeNames, holders: Mapping[Entity, frozenset[str]]) -> dict[Entity, frozenset[str]]:
    """For targets in which grants count below: on each entity, the users who also hold the privilege on everything in it."""
    found = dict(holders)
    for entity in reversed(list(holders)):
        for container in names.path(entity)[:-1]:
            if container in found:
                found[container] &= holders[entity]
    return found


class _Expansion:
    """Who is in which account, and which principals rows allow something."""

    def __init__(
        self, program: Program, state: State, names: NativeNames, memberships: Collection[NativeMembership]
    ) -> None:
        self._program = program
        self._names = names
        self.users = users_of(state)
        self.holders = Holders(program, state)
        self._users_by_account = {names.account(f"user:{user}"): user for user in self.users}
        self._members: dict[Account, set[Account]] = defaultdict(set)
        for membership in memberships:
            self._members[membership.role].add(membership.account)
        self._allowed: dict[tuple[str, Entity], set[str]] = defaultdict(set)
        self._denied: dict[tuple[str, Entity], set[str]] = defaultdict(set)
        privileges = PrivilegeNames(program)
        for row in state.grants:
            rows = self._allowed if row.effect == "allow" else self._denied
            for privilege in privileges.privileges_of(row.privilege, row.entity.type, row.effect):
                rows[privilege, row.entity].add(row.grantee)

    def accounts(
        self, privilege: str, entity: Entity, needed: frozenset[str], may: frozenset[str]
    ) -> Iterator[Account]:
        """The accounts to grant a privilege on an entity, so that `needed` hold it and nobody but `may` does."""
        path = self._path(entity)
        allowed = {principal for key in path for principal in self._allowed.get((privilege, key), ())}
        denied = {principal for key in path for principal in self._denied.get((privilege, key), ())}
        left = set(needed)
        for principal in sorted(allowed - denied):
            account = self._names.account(principal)
            users = self._reached(account)
            if users <= may and (users & needed or not users) and account not in self._users_by_account:
                left -= users
                yield account
        for user in sorted(left):
            yield self._names.account(f"user:{user}")

    def _path(self, entity: Entity) -> list[Entity]:
        """The entities whose grants count for one."""
        if self._program.semantics.inheritance != "down":
            return [entity]
        found, taken = [], 0
        for type_ in self._program.chain(entity.type):
            taken += not self._program.entities[type_].single
            found.append(Entity(type_, "/".join(entity.names[:taken])))
        return found

    def _reached(self, account: Account) -> frozenset[str]:
        """The users who hold what an account holds."""
        seen, waiting = {account}, [account]
        while waiting:
            for member in self._members[waiting.pop()] - seen:
                seen.add(member)
                waiting.append(member)
        return frozenset(self._users_by_account[member] for member in seen if member in self._users_by_account)
