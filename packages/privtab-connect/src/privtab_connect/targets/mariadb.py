"""MariaDB: roles, default roles and grants of a server. It commits each change at once.

Users are accounts with the mapping document's host; groups and roles are roles, and are created if they are missing. A login has one
default role only: whoever holds several gets a role of their own that holds these.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from sqlalchemy.dialects.mysql.base import MySQLDialect

from privtab.base import UsageError
from privtab_connect.errors import PushError
from privtab_connect.names import names_of
from privtab_connect.pushdown import Options
from privtab_connect.pushdown.document import MappingDocument
from privtab_connect.pushdown.rights import (
    EVERYONE,
    WITH_EVERYONE,
    Account,
    DefaultRole,
    Inventory,
    NativeGrant,
    NativeMembership,
    NativeOwnership,
    Object,
    PushPlan,
    Right,
    Traits,
    in_order,
    linked,
)
from privtab_connect.pushdown.sql import RECORD, Quoting, Sql, connected, engine, recorded, restored

_NAMES = names_of("mariadb")
TRAITS = Traits(
    kinds=_NAMES.paths,
    privileges=_NAMES.privileges,
    inherits=True,
    grantees=WITH_EVERYONE,
    owners=False,
    login_hosts=True,
)
PATTERN = "databases like"
"""The kind of object of grants on databases whose names fit a pattern; only reported, and revoked on request."""
_OWN_ROLE = "roles of "
_LONGEST = {"login": 128 - len(_OWN_ROLE), "role": 128}
_LONGEST_OBJECT = 64
_BMP = 0xFFFF
_QUOTING = Quoting(MySQLDialect(paramstyle="named"))


def name_problem(item: Account | Object) -> str | None:
    """As TargetModule.name_problem."""
    names = item.names if isinstance(item, Object) else (item.name,)
    longest = _LONGEST_OBJECT if isinstance(item, Object) else _LONGEST.get(item.kind, 0)
    for name in names:
        if not name:
            return "the name is empty"
        if len(name) > longest:
            return f"`{name:.40}…` has more than {longest} characters"
        if any(ord(character) > _BMP for character in name):
            return f"`{name}` has a character above U+FFFF"
        if name != name.rstrip():
            return f"`{name}` ends with a space"
    if isinstance(item, Account) and item.kind == "role":
        if item.name.startswith(_OWN_ROLE):
            return f"pushes give names that begin with `{_OWN_ROLE}` to roles of one user"
        if _NAMES.is_reserved(item.name.upper()):
            return "the name is reserved"
    return None


@contextlib.contextmanager
def opened(where: str, document: MappingDocument, pusher: str, options: Options) -> Iterator[MariaDb]:
    """As TargetModule.opened."""
    del document, options
    created, shown = engine(where, "mysql", "mariadb")
    with connected(created, shown) as sql:
        yield MariaDb(sql, pusher)


class MariaDb:
    """One push to a server."""

    def __init__(self, sql: Sql, pusher: str) -> None:
        self.where = sql.where
        self._sql = sql
        self._pusher = pusher

    def prepare(self) -> None:
        """As Session.prepare."""
        [(locked,)] = self._sql.rows("SELECT GET_LOCK('privtab.pushed', 60)")
        if locked != 1:
            raise PushError(f"{self.where}: another push has been running for a minute")
        database, table = _QUOTING.name(RECORD), _QUOTING.name(RECORD, "pushed")
        self._sql.run(
            [
                f"CREATE DATABASE IF NOT EXISTS {database} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
                f"CREATE TABLE IF NOT EXISTS {table} (`pusher` text NOT NULL, `held` text NOT NULL)",
            ]
        )

    def read(self) -> Inventory:
        """As Session.read."""
        accounts, rights = self._accounts()
        rights |= self._grants(accounts)
        unlimited = {r.account for r in rights if isinstance(r, NativeGrant) and r.privilege == "SUPER"}
        inherent = {r for r in rights if isinstance(r, DefaultRole) or _holder(r) in unlimited}
        [(user,)] = self._sql.rows("SELECT CURRENT_USER()")
        links = self._sql.rows("SELECT User, Host, Role, Admin_option FROM mysql.roles_mapping")
        for name, host, role, admin in links:
            membership = NativeMembership(_account(name, host, accounts), Account("role", role))
            rights.add(membership)
            if admin == "Y" and (f"{name}@{host}" == user or membership.account in unlimited):
                inherent.add(membership)
        own, others = self._recorded()
        return Inventory(
            accounts=frozenset(accounts),
            objects=frozenset(self._objects()),
            rights=frozenset(rights),
            inherent=frozenset(inherent),
            unlimited=frozenset(unlimited),
            recorded=own,
            recorded_elsewhere=others,
        )

    def _accounts(self) -> tuple[set[Account], set[Right]]:
        """All accounts, and their default roles."""
        accounts: set[Account] = set()
        rights: set[Right] = set()
        for name, host, text in self._sql.rows("SELECT User, Host, Priv FROM mysql.global_priv"):
            described = json.loads(text)
            account = Account("role", name) if described.get("is_role") and name != "PUBLIC" else _login(name, host)
            accounts.add(account)
            if described.get("default_role"):
                rights.add(DefaultRole(account, Account("role", described["default_role"])))
        return accounts, rights

    def _grants(self, accounts: set[Account]) -> set[Right]:
        """Return the privileges of accounts on the server and on objects in it, as far as pushes know them."""
        found: set[Right] = set()
        for name, host, kind, *names, privileges, _ in self._sql.rows(_NAMES.queries["grants"]):
            account = _account(name, host, accounts)
            object_ = Object(kind, tuple(name for name in names if name is not None))
            known = _NAMES.privileges["database" if kind == PATTERN else kind]
            words = set(privileges.split(",")) & set(known) if privileges else ()
            found |= {NativeGrant(account, "allow", word, object_) for word in words}
        return found

    def _objects(self) -> set[Object]:
        rows = self._sql.rows(_NAMES.queries["objects"])
        found = {
            Object(kind, tuple(name for name in names if name is not None))
            for kind, *names in rows
            if names[0] != RECORD
        }
        return found | {Object("server", ())}

    def _recorded(self) -> tuple[frozenset[Right], frozenset[Right]]:
        there = self._sql.rows(
            f"SELECT 1 FROM information_schema.tables WHERE table_schema = '{RECORD}' AND table_name = 'pushed'"
        )
        rows = self._sql.rows(f"SELECT `pusher`, `held` FROM {_QUOTING.name(RECORD, 'pushed')}") if there else ()
        return recorded(((pusher, held) for pusher, held in rows), self._pusher, self.where)

    def normalised(self, desired: frozenset[Right], inventory: Inventory) -> frozenset[Right]:
        """As Session.normalised: every login that holds a role has one in force as soon as it connects.

        Where a role that the login holds has its others by memberships that are there, that is this one.
        """
        held: dict[Account, set[Account]] = defaultdict(set)
        rights: set[Right] = set()
        for right in desired:
            if isinstance(right, NativeMembership) and right.account.kind == "login":
                held[right.account].add(right.role)
            else:
                rights.add(right)
        stated = {right for right in rights if isinstance(right, NativeMembership)}
        follows = {  # from what every login that holds the one holds
            right
            for right in inventory.rights
            if isinstance(right, NativeMembership)
            and right.account.kind == "role"
            and all(right.role in roles for roles in held.values() if right.account in roles)
        }
        links: dict[Account, set[Account]] = defaultdict(set)
        for membership in stated | follows:
            links[membership.account].add(membership.role)
        defaults = {right.account: right.role for right in inventory.rights if isinstance(right, DefaultRole)}
        for account, roles in held.items():
            order = sorted(roles, key=lambda role: (role != defaults.get(account), role))
            role = next((one for one in order if roles <= linked([one], links)), None)
            if role is None:
                role = Account("role", f"{_OWN_ROLE}{account.name}")
                rights |= {NativeMembership(role, other) for other in roles}
            else:
                reached = linked([role], links)
                rights |= {right for right in follows if right.account in reached}
            rights |= {NativeMembership(account, role), DefaultRole(account, role)}
        return frozenset(rights)

    def moved(self, inventory: Inventory, desired: frozenset[Right]) -> Inventory:
        """As Session.moved: a new default role takes the place of another one."""
        accounts = {right.account for right in desired - inventory.rights if isinstance(right, DefaultRole)}
        lost = {r for r in inventory.rights if isinstance(r, DefaultRole) and r.account in accounts}
        return replace(inventory, rights=inventory.rights - lost, recorded=inventory.recorded - lost)

    def requests(self, plan: PushPlan) -> tuple[str, ...]:
        """As Session.requests."""
        return (
            *(f"CREATE ROLE {_who(account)}" for account in sorted(plan.create)),
            *map(_revoked, reversed(in_order(set(plan.revoke)))),
            *map(_granted, restored(plan)),
            *map(_granted, in_order(set(plan.grant))),
        )

    def apply(self, plan: PushPlan) -> None:
        """As Session.apply. New rights are recorded before they are granted, old ones as long as they are not revoked."""
        table = _QUOTING.name(RECORD, "pushed")
        before, _ = self._recorded()
        self._sql.record(table, self._pusher, before, before | plan.record)
        self._sql.commit()
        self._sql.run(self.requests(plan))
        self._sql.record(table, self._pusher, before | plan.record, plan.record)
        self._sql.commit()
        after = self.read()
        if any(isinstance(right, NativeMembership) and right.account.kind == "role" for right in after.rights):
            # Until the server reads its grants again, a change of a role takes away from others what they inherit.
            self._sql.run(["FLUSH PRIVILEGES"])
        different = in_order(set((plan.desired - after.rights) | (plan.revoke & after.rights)))
        if different:
            raise PushError(f"{self.where}: the server did not carry out the plan: {different[0]}")


def _account(name: str, host: str, accounts: set[Account]) -> Account:
    """The account of a row of the grant tables."""
    role = Account("role", name)
    return role if not host and role in accounts else _login(name, host)


def _login(name: str, host: str) -> Account:
    return EVERYONE if not host and name == "PUBLIC" else Account("login", name, host)


def _holder(right: Right) -> Account | None:
    return None if isinstance(right, NativeOwnership) else right.account


def _on(object_: Object) -> str:
    match object_.kind:
        case "server":
            return "ON *.*"
        case "database":
            escaped = object_.names[0].replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
            return f"ON {_QUOTING.name(escaped)}.*"
        case "databases like":
            return f"ON {_QUOTING.name(*object_.names)}.*"
        case "column" | "table":
            return f"ON {_QUOTING.name(*object_.names[:2])}"
        case kind:
            return f"ON {kind.upper()} {_QUOTING.name(*object_.names)}"


def _what(right: NativeGrant) -> str:
    column = f" ({_QUOTING.name(right.object.names[2])})" if right.object.kind == "column" else ""
    return f"{right.privilege}{column} {_on(right.object)}"


def _who(account: Account) -> str:
    if account.kind == "everyone":
        return "PUBLIC"
    return _QUOTING.name(account.name) + (f"@{_QUOTING.name(account.host)}" if account.kind == "login" else "")


def _granted(right: Right) -> str:
    match right:
        case NativeGrant():
            return f"GRANT {_what(right)} TO {_who(right.account)}"
        case NativeMembership():
            return f"GRANT {_who(right.role)} TO {_who(right.account)}"
        case DefaultRole():
            return f"SET DEFAULT ROLE {_who(right.role)} FOR {_who(right.account)}"
        case NativeOwnership():
            raise UsageError("MariaDB has no owners")
        case _:
            assert_never(right)


def _revoked(right: Right) -> str:
    match right:
        case NativeGrant():
            return f"REVOKE {_what(right)} FROM {_who(right.account)}"
        case NativeMembership():
            return f"REVOKE {_who(right.role)} FROM {_who(right.account)}"
        case DefaultRole():
            return f"SET DEFAULT ROLE NONE FOR {_who(right.account)}"
        case NativeOwnership():
            raise UsageError("MariaDB has no owners")
        case _:
            assert_never(right)
