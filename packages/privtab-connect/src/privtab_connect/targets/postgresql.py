"""PostgreSQL: roles, memberships, grants and owners in the database of the connection, in one transaction.

Users are roles that can log in; groups and roles are roles that cannot, and are created if they are missing. A role that can log in and has
members is both. A member that does not inherit (`NOINHERIT`) has the privilege SET on the role: it may switch to the role.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

from sqlalchemy.dialects.postgresql.base import PGDialect

from privtab.base import UsageError
from privtab_connect.errors import PushError
from privtab_connect.names import names_of
from privtab_connect.pushdown import Options
from privtab_connect.pushdown.document import MappingDocument
from privtab_connect.pushdown.rights import (
    EVERYONE,
    GRANT_OPTION,
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
    accounts_of,
    difference,
    in_order,
)
from privtab_connect.pushdown.sql import RECORD, Quoting, Sql, connected, engine, recorded, restored
from privtab_connect.targets.postgresql_roles import ADMIN, SET, Roles, role_object

_NAMES = names_of("postgresql")
TRAITS = Traits(
    kinds=_NAMES.paths,
    privileges={
        kind: (*names, *(name + GRANT_OPTION for name in names if kind != "role"))
        for kind, names in _NAMES.privileges.items()
    },
    grantees=WITH_EVERYONE,
    one_namespace=True,
    role_kind="role",
)
LONGEST_NAME = 63
"""Bytes of a name; the server cuts longer ones short, which would make it another name."""
_OBJECTS = f"""
with named as ({_NAMES.queries["objects"]})
select kind, names, owner, routine{{columns}} from named{{more}} where kind in ({{kinds}})
  and (kind = 'database' or names[1] <> '{RECORD}' and names[1] not in ({_NAMES.queries["system_schemas"]}))
"""
_OF_DATABASE = Account("role", "pg_database_owner")
"""The role that the owner of the database is a member of."""
_QUOTING = Quoting(PGDialect(paramstyle="named"))  # type: ignore[no-untyped-call]


def name_problem(item: Account | Object) -> str | None:
    """As TargetModule.name_problem."""
    for name in item.names if isinstance(item, Object) else (item.name,):
        if not name:
            return "the name is empty"
        if len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME:
            return f"`{name:.40}…` has more than {LONGEST_NAME} bytes, and would be cut short"
    if isinstance(item, Account) and _NAMES.is_reserved(item.name):
        return "the name is reserved"
    return None


@contextlib.contextmanager
def opened(where: str, document: MappingDocument, pusher: str, options: Options) -> Iterator[PostgreSql]:
    """As TargetModule.opened."""
    del options
    created, shown = engine(where, "postgresql")
    with connected(created, shown) as sql:
        yield PostgreSql(sql, document, pusher)


class PostgreSql:
    """One push to a database."""

    def __init__(self, sql: Sql, document: MappingDocument, pusher: str) -> None:
        self.where = sql.where
        self._sql = sql
        self._pusher = pusher
        kinds = dict.fromkeys(document.objects.values())
        self._roles = Roles(accounts={}, isolated=frozenset(), mapped=kinds.pop("role", "unmapped") is None)
        # Privileges on columns allow part of a table, and go with some changes of the table's.
        self._kinds = tuple(kinds | {"column": None} if "table" in kinds else kinds)
        self._routines: dict[Object, str] = {}
        """Name of a routine in SQL: with its arguments, as functions, procedures and aggregates may share a name."""
        self._tables: set[tuple[str, ...]] = set()

    def read(self) -> Inventory:
        """As Session.read."""
        # Without a search path, the server names types by their schemas, so that everybody's names of routines are the same.
        self._sql.rows("select set_config('search_path', '', true)")
        by_id, unlimited = self._read_roles()
        predefined = frozenset(account for account in by_id.values() if account.name.startswith("pg_"))
        objects = {role_object(account) for account in by_id.values() if account != EVERYONE}
        rights: set[Right] = set()
        inherent: set[Right] = set()
        for kind, names, owner, routine in self._objects():
            object_ = Object(kind, tuple(names))
            objects.add(object_)
            rights.add(NativeOwnership(object_, by_id[owner]))
            if routine is not None:
                self._routines[object_] = routine
            if kind == "table":
                self._tables.add(object_.names)
            if kind == "database":
                inherent.add(self._of_database(by_id[owner]))
        inherent |= {right for right in rights if isinstance(right, NativeOwnership)}
        of_predefined = self._sql.rows(_NAMES.queries["predefined"])
        inherent |= {
            NativeGrant(self._roles.accounts[role], "allow", privilege, object_)
            for role, kind, privilege in of_predefined
            for object_ in objects
            if object_.kind == kind and role in self._roles.accounts
        }
        acl = ', lateral aclexplode(coalesce(acl, acldefault(sign::"char", owner))) a'
        rights_of = ", a.grantee, a.privilege_type, a.is_grantable"
        for kind, names, owner, _, grantee, privilege, grantable in self._objects(rights_of, acl):
            object_ = Object(kind, tuple(names))
            account = by_id[grantee]
            grants = [NativeGrant(account, "allow", privilege, object_)]
            if grantable:
                grants.append(NativeGrant(account, "allow", privilege + GRANT_OPTION, object_))
            rights.update(grants)
            if grantee == owner:
                inherent.update(grants)
        for right in self._memberships(by_id):
            rights.add(right)
            role = right.role if isinstance(right, NativeMembership) else self._roles.accounts[right.object.names[0]]
            if {right.account, role} <= predefined:
                inherent.add(right)
        own, others = self._recorded()
        [(database,)] = self._sql.rows("select current_database()")
        return Inventory(
            accounts=frozenset(self._roles.accounts.values()),
            objects=frozenset(objects),
            rights=frozenset(rights | inherent),
            predefined=predefined,
            inherent=frozenset(inherent),
            unlimited=frozenset(unlimited),
            recorded=own,
            recorded_elsewhere=others,
            within=(database,),
        )

    def _read_roles(self) -> tuple[dict[int, Account], set[Account]]:
        """Return all roles by their ids, and the superusers."""
        by_id: dict[int, Account] = {0: EVERYONE}
        accounts: dict[str, Account] = {}
        unlimited: set[Account] = set()
        isolated: set[Account] = set()
        query = "select oid, rolname, rolcanlogin, rolsuper, rolinherit from pg_roles"
        for oid, name, login, superuser, inherits in self._sql.rows(query):
            account = accounts[name] = by_id[oid] = Account("login" if login else "role", name)
            if superuser:
                unlimited.add(account)
            if not inherits:
                isolated.add(account)
        self._roles = replace(self._roles, accounts=accounts, isolated=frozenset(isolated))
        return by_id, unlimited

    def _objects(self, columns: str = "", more: str = "") -> Iterator[Sequence[Any]]:
        """The objects of the mapped kinds: kind, names, owner, how SQL names a routine, and further columns."""
        kinds = ", ".join(f"'{kind}'" for kind in ("", *self._kinds))
        yield from self._sql.rows(_OBJECTS.format(columns=columns, more=more, kinds=kinds))

    def _memberships(self, by_id: Mapping[int, Account]) -> Iterator[NativeMembership | NativeGrant]:
        """Roles that accounts hold, that they may switch to without holding them, and that they may grant."""
        for member, role, inherits, switches, admin in self._sql.rows(_NAMES.queries["memberships"]):
            if inherits:
                yield NativeMembership(by_id[member], by_id[role])
            elif switches:
                yield NativeGrant(by_id[member], "allow", SET, role_object(by_id[role]))
            if admin and switches and self._roles.mapped:
                yield NativeGrant(by_id[member], "allow", ADMIN, role_object(by_id[role]))

    def _of_database(self, owner: Account) -> Right:
        """The membership that the owner of the database has by the server itself."""
        if owner in self._roles.isolated:
            return NativeGrant(owner, "allow", SET, role_object(_OF_DATABASE))
        return NativeMembership(owner, _OF_DATABASE)

    def _recorded(self) -> tuple[frozenset[Right], frozenset[Right]]:
        [(table,)] = self._sql.rows(f"select to_regclass('{RECORD}.pushed')")
        if table is None:
            return frozenset(), frozenset()
        rows = self._sql.rows(f"select pusher, held from {_QUOTING.name(RECORD, 'pushed')}")
        return recorded(((pusher, right) for pusher, right in rows), self._pusher, self.where)

    def normalised(self, desired: frozenset[Right], inventory: Inventory) -> frozenset[Right]:
        """As Session.natural: a grant option with its privilege, and what follows from other memberships without its own."""
        options = (r for r in desired if isinstance(r, NativeGrant) and r.privilege.endswith(GRANT_OPTION))
        desired |= {replace(right, privilege=right.privilege.removesuffix(GRANT_OPTION)) for right in options}
        found, problems = self._roles.normalised(desired, self.moved(inventory, desired))
        if problems:
            raise PushError(f"{self.where}: nothing is pushed: {'; '.join(problems)}")
        return found

    def moved(self, inventory: Inventory, desired: frozenset[Right]) -> Inventory:
        """As Session.moved: the new owner starts with nothing, and the privileges of the old one go to the new one.

        What the state's owners have of their objects is no more than the state says: an owner may lack privileges.
        """
        owners = {r.object: r.owner for r in inventory.rights if isinstance(r, NativeOwnership)}
        owned = {(r.object, r.owner) for r in desired if isinstance(r, NativeOwnership)}
        involved = {(o, account) for o, new in owned for account in (new, owners.get(o, new)) if owners.get(o) != new}
        moved = {object_ for object_, _ in involved}
        old = {(object_, account) for object_, account in involved if owners.get(object_) == account}
        lost: set[Right] = {
            r for r in inventory.rights if isinstance(r, NativeGrant) and (r.object, r.account) in involved
        }
        lost |= {r for r in inventory.rights if isinstance(r, NativeOwnership) and r.object in moved}
        databases = [(o, new) for o, new in owned if o.kind == "database" and o in moved]
        lost |= {self._of_database(owners[o]) for o, _ in databases if o in owners}
        gained = {self._of_database(new) for _, new in databases}
        stated = {
            r for r in inventory.inherent if isinstance(r, NativeGrant) and (_whole(r.object), r.account) in owned
        }
        lost |= {
            r
            for r in inventory.rights
            if isinstance(r, NativeGrant) and r.object.kind == "column" and (_whole(r.object), r.account) in old
        }
        return replace(
            inventory,
            rights=(inventory.rights - lost) | gained,
            inherent=(inventory.inherent - lost - stated) | gained,
            recorded=inventory.recorded - {right for right in lost if isinstance(right, NativeOwnership)},
        )

    def requests(self, plan: PushPlan) -> tuple[str, ...]:
        """As Session.requests."""
        created = [f"CREATE ROLE {_QUOTING.name(account.name)}" for account in sorted(plan.create)]
        granted = in_order(set(plan.grant))
        # The sequences and types of a table go with the table to its owner.
        kinds = [*TRAITS.kinds]
        owned = sorted(
            (right for right in granted if isinstance(right, NativeOwnership)), key=lambda r: kinds.index(r.object.kind)
        )
        moved = {right.object for right in owned}
        revoked = [
            right
            for right in reversed(in_order(set(plan.revoke)))
            if not (isinstance(right, NativeOwnership) and right.object in moved)
        ]
        return (
            *created,
            *(statement for right in owned for statement in self._granted(right)),
            *(statement for right in revoked for statement in self._revoked(right)),
            *(statement for right in restored(plan) for statement in self._granted(right)),
            *(
                statement
                for right in granted
                if not isinstance(right, NativeOwnership)
                for statement in self._granted(right)
            ),
        )

    def prepare(self) -> None:
        """Make the record if it is missing, and keep other pushes waiting until this one has ended."""
        table = _QUOTING.name(RECORD, "pushed")
        self._sql.run(["SELECT pg_advisory_xact_lock(hashtext('privtab.pushed'))"])
        [(record_table,)] = self._sql.rows(f"select to_regclass('{RECORD}.pushed')")
        if record_table is None:
            self._sql.run(
                [
                    f"CREATE SCHEMA IF NOT EXISTS {_QUOTING.name(RECORD)}",
                    f"CREATE TABLE {table} (pusher text NOT NULL, held text NOT NULL, PRIMARY KEY (pusher, held))",
                ]
            )

    def apply(self, plan: PushPlan) -> None:
        """As Session.apply: in one transaction, which is rolled back if the rights then differ from the plan."""
        self._sql.run(self.requests(plan))
        before, _ = self._recorded()
        self._sql.record(_QUOTING.name(RECORD, "pushed"), self._pusher, before, plan.record)
        after = self.read()
        left = difference(after, plan.desired, frozenset())
        accounts = {account for right in plan.grant for account in accounts_of(right)}
        more = {
            right
            for right in after.rights - plan.kept - after.inherent
            if isinstance(right, NativeGrant | NativeMembership) and right.account in accounts
        }
        different = in_order(set(left.grant) | (plan.revoke & after.rights) | more)
        if different:
            raise PushError(
                f"{self.where}: nothing was changed, since the database did not carry out the plan: {different[0]}"
            )
        self._sql.commit()

    def _granted(self, right: Right) -> tuple[str, ...]:
        match right:
            case NativeGrant(account, _, privilege, Object("role", names)):
                option = " WITH ADMIN OPTION" if privilege == ADMIN else ""
                return (f"GRANT {_QUOTING.name(*names)} TO {_who(account)}{option}",)
            case NativeGrant():
                option = GRANT_OPTION if right.privilege.endswith(GRANT_OPTION) else ""
                what = _what(right.privilege, right.object)
                return (f"GRANT {what} {self._on(right.object)} TO {_who(right.account)}{option}",)
            case NativeMembership():
                return (f"GRANT {_who(right.role)} TO {_who(right.account)}",)
            case NativeOwnership():
                revoked = f"REVOKE ALL {self._on(right.object)} FROM {_who(right.owner)}"
                return (*self._owned(right.object, _who(right.owner)), revoked)
            case DefaultRole():
                raise UsageError("PostgreSQL has no default roles")
            case _:
                assert_never(right)

    def _revoked(self, right: Right) -> tuple[str, ...]:
        match right:
            case NativeGrant(account, _, privilege, Object("role", names)):
                option = "ADMIN OPTION FOR " if privilege == ADMIN else ""
                return (f"REVOKE {option}{_QUOTING.name(*names)} FROM {_who(account)}",)
            case NativeGrant():
                option = "GRANT OPTION FOR " if right.privilege.endswith(GRANT_OPTION) else ""
                what = _what(right.privilege, right.object)
                return (f"REVOKE {option}{what} {self._on(right.object)} FROM {_who(right.account)}",)
            case NativeMembership():
                return (f"REVOKE {_who(right.role)} FROM {_who(right.account)}",)
            case NativeOwnership():
                return self._owned(right.object, "CURRENT_USER")
            case DefaultRole():
                return ()
            case _:
                assert_never(right)

    def _owned(self, object_: Object, owner: str) -> tuple[str, ...]:
        """Return the statements that set an owner; the type of a table's rows goes with the table."""
        if object_.kind in ("column", "role"):
            raise UsageError(f"a {object_.kind} has no owner of its own in PostgreSQL")
        if object_.kind == "type" and object_.names in self._tables:
            return ()
        return (f"ALTER {self._on(object_).removeprefix('ON ')} OWNER TO {owner}",)

    def _on(self, object_: Object) -> str:
        match object_.kind:
            case "column":
                return f"ON TABLE {_QUOTING.name(*object_.names[:2])}"
            case "function":
                return f"ON ROUTINE {self._routines[object_]}"
            case kind:
                return f"ON {kind.upper()} {_QUOTING.name(*object_.names)}"


def _whole(object_: Object) -> Object:
    """The table of a column, and any other object itself."""
    return Object("table", object_.names[:2]) if object_.kind == "column" else object_


def _who(account: Account) -> str:
    return "PUBLIC" if account.kind == "everyone" else _QUOTING.name(account.name)


def _what(privilege: str, object_: Object) -> str:
    plain = privilege.removesuffix(GRANT_OPTION)
    return f"{plain} ({_QUOTING.name(object_.names[2])})" if object_.kind == "column" else plain
