"""Memberships of PostgreSQL that are not inherited, and the right to grant a role.

A role with NOINHERIT holds nothing of the roles that it is a member of; a login that reaches such a role may switch to what this is a
member of. Rows of a state say which users may switch to a role, and not over which memberships. Both are privileges on the role here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from privtab_connect.pushdown.rights import (
    Account,
    Inventory,
    NativeGrant,
    NativeMembership,
    Object,
    Right,
    in_order,
    linked,
)

SET, ADMIN = "SET", "ADMIN OPTION"
"""The privileges on a role: to be a member that does not inherit, and to grant it."""


def role_object(account: Account) -> Object:
    """The object that an account is for users who switch to it or grant it."""
    return Object("role", (account.name,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The roles of a server, by their names, and the roles with NOINHERIT."""

    accounts: Mapping[str, Account]
    isolated: frozenset[Account]
    mapped: bool
    """True if rows say who may switch to a role."""

    def links(
        self, rights: Iterable[Right], more: Mapping[Account, set[Account]] | None = None
    ) -> dict[Account, set[Account]]:
        """The roles of accounts, by memberships and privileges on roles, and `more`."""
        found = defaultdict(set, {account: set(roles) for account, roles in (more or {}).items()})
        for right in rights:
            match right:
                case NativeMembership(account, role):
                    found[account].add(role)
                case NativeGrant(account, _, _, Object("role")):
                    found[account].add(self._role(right))
        return found

    def _role(self, right: NativeGrant) -> Account:
        """The role that a privilege is about."""
        name = right.object.names[0]
        return self.accounts.get(name, Account("role", name))

    def normalised(self, desired: frozenset[Right], inventory: Inventory) -> tuple[frozenset[Right], list[str]]:
        """The desired rights, with the memberships by which users may switch, and what the accounts make impossible.

        `inventory`: as it is after the owners change.
        """
        direct = _on_roles(inventory.rights)
        wanted = _on_roles(desired)
        if not direct and not wanted and not self.isolated:
            return desired, []
        holds = self.links(right for right in desired if isinstance(right, NativeMembership))
        logins = [account for account in inventory.accounts - inventory.unlimited if account.kind == "login"]
        held = {user: linked([user], holds) for user in logins}
        switching = self.links(right for right in wanted if right.privilege == SET)
        users: dict[Account, set[Account]] = defaultdict(set)
        """Users who hold a role, or may switch to it, by the state."""
        for user, roles in held.items():
            for role in roles | switching.get(user, set()):
                users[role].add(user)

        def follows(right: NativeGrant) -> bool:
            """Return whether every user who may be the member may also be the role by the state."""
            return users[right.account] <= users[self._role(right)]

        kept = {right for right in direct if right.privilege == SET}
        kept = {r for r in kept if r in wanted or r in inventory.inherent or (self.mapped and follows(r))}
        kept |= {
            replace(right, privilege=SET)
            for right in wanted
            if right.privilege == ADMIN and right.account in self.isolated and right.account.kind != "login"
        }
        links = self.links(kept, holds)
        waiting = [right for right in sorted(wanted - direct) if right.privilege == SET]
        while waiting:
            # A login that inherits may switch only by a role that does not, and that it holds or may switch to.
            ways = (way for right in waiting for way in self._ways(right, links) if follows(way))
            if (way := next(ways, None)) is None:
                break
            kept.add(way)
            links.setdefault(way.account, set()).add(self._role(way))
            waiting = [r for r in waiting if self._role(r) not in linked([r.account], links)]
        kept |= {right for right in waiting if self._role(right) not in linked([right.account], links)}
        derived = self._derived(held, links, wanted)
        granting = {
            right
            for right in wanted
            if right.privilege == ADMIN
            and (right not in derived or right in direct)
            and (right not in derived or replace(right, privilege=SET) in kept or self._holds(right, desired))
        }
        kept |= {replace(right, privilege=SET) for right in granting if right.account in self.isolated}
        found = (desired - wanted) | kept | granting
        wider = (r for r in sorted(kept - direct) if replace(r, privilege=ADMIN) not in granting and not follows(r))
        problems = [f"whoever is {right.account} could switch to {right.object}, too" for right in wider]
        return found, problems + self._problems(found, inventory)

    def _ways(self, right: NativeGrant, links: Mapping[Account, set[Account]]) -> Iterator[NativeGrant]:
        """Yield memberships by which a user would reach a role: the user's own, and memberships of roles that the user reaches; none if it is reached."""
        role, reached = self._role(right), linked([right.account], links)
        if role not in reached:
            around = linked([role], links)
            for account in sorted((reached & self.isolated) - around, key=lambda a: (a != right.account, a)):
                yield replace(right, account=account)

    def _derived(
        self,
        held: Mapping[Account, set[Account]],
        links: Mapping[Account, set[Account]],
        wanted: Iterable[NativeGrant],
    ) -> set[NativeGrant]:
        """Return what users may switch to and grant because of roles that they hold or may switch to, using all `links` between roles."""
        granting = self.links(right for right in wanted if right.privilege == ADMIN)
        derived: set[NativeGrant] = set()
        for user, roles in held.items():
            for role in linked([user], links) - roles:
                derived.add(NativeGrant(user, "allow", SET, role_object(role)))
                derived |= {NativeGrant(user, "allow", ADMIN, role_object(other)) for other in granting.get(role, ())}
        return derived

    def _holds(self, right: NativeGrant, desired: frozenset[Right]) -> bool:
        """Return whether the account of a privilege on a role is to hold the role."""
        return NativeMembership(right.account, self._role(right)) in desired

    def _problems(self, desired: frozenset[Right], inventory: Inventory) -> list[str]:
        """The memberships that would be others than desired, as the accounts inherit."""
        problems = []
        for right in in_order(set(desired - inventory.rights)):
            match right:
                case NativeMembership(account, role) if account in self.isolated:
                    problems.append(f"{account} does not inherit what {role} holds (NOINHERIT)")
                case NativeGrant(account, _, privilege, Object("role", (name,))) if account not in self.isolated:
                    if privilege == SET:
                        problems.append(f"{account} would hold role {name}, and not merely switch to it (INHERIT)")
                    elif not self._holds(right, desired):
                        problems.append(f"{account} would hold role {name} beside the right to grant it (INHERIT)")
        return problems


def _on_roles(rights: Iterable[Right]) -> set[NativeGrant]:
    return {right for right in rights if isinstance(right, NativeGrant) and right.object.kind == "role"}
