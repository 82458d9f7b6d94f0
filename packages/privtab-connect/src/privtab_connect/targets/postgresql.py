"""PostgreSQL: roles, memberships, grants and owners in the database of the connection, in one transaction.

Users are roles that can log in; groups and roles are roles that cannot, and are created if they are missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

from sqlalchemy.dialects.postgresql.base import PGDialect

from privtab.errors import PushError, UsageError
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
    difference,
    in_order,
)
from privtab_connect.pushdown.sql import RECORD, Quoting, Sql, connected, engine, recorded

_PLAIN = {
    "database": ("CONNECT", "TEMPORARY", "CREATE"),
    "schema": ("USAGE", "CREATE"),
    "table": ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN"),
    "column": ("SELECT", "INSERT", "UPDATE", "REFERENCES"),
    "sequence": ("USAGE", "SELECT", "UPDATE"),
    "function": ("EXECUTE",),
    "type": ("USAGE",),
}
TRAITS = Traits(
    kinds={
        "database": ("database",),
        "schema": ("schema",),
        "table": ("schema", "table"),
        "column": ("schema", "table", "column"),
        "sequence": ("schema", "sequence"),
        "function": ("schema", "function"),
        "type": ("schema", "type"),
    },
    privileges={kind: (*names, *(name + GRANT_OPTION for name in names)) for kind, names in _PLAIN.items()},
    grantees=WITH_EVERYONE,
    one_namespace=True,
)
LONGEST_NAME = 63
"""Bytes of a name; the server cuts longer ones short, which would make it another name."""
_RESERVED = ("public", "none", "current_role", "current_user", "session_user")

_OWN_SCHEMAS = f"nspname !~ '^pg_' and nspname <> 'information_schema' and nspname <> '{RECORD}'"
_CLASSES = (
    "select '{kind}', array[nspname, relname], relowner, relacl, '{sign}' from pg_class join pg_namespace n on n.oid = relnamespace "
    "where relkind in ({relkinds}) and {own}"
)
_OBJECTS = {
    "database": "select 'database', array[datname], datdba, datacl, 'd' from pg_database where datname = current_database()",
    "schema": f"select 'schema', array[nspname], nspowner, nspacl, 'n' from pg_namespace where {_OWN_SCHEMAS}",
    "table": _CLASSES.format(kind="table", sign="r", relkinds="'r', 'p', 'v', 'm', 'f'", own=_OWN_SCHEMAS),
    "sequence": _CLASSES.format(kind="sequence", sign="s", relkinds="'S'", own=_OWN_SCHEMAS),
    "function": (
        "select 'function', array[nspname, proname], proowner, proacl, 'f' from pg_proc join pg_namespace n on n.oid = pronamespace "
        f"where prokind in ('f', 'w') and {_OWN_SCHEMAS}"
    ),
    "type": (
        "select 'type', array[nspname, typname], typowner, typacl, 'T' from pg_type join pg_namespace n on n.oid = typnamespace "
        f"where typtype in ('d', 'e', 'r') and {_OWN_SCHEMAS}"
    ),
    "column": (
        "select 'column', array[nspname, relname, attname], relowner, attacl, 'c' "
        "from pg_attribute join pg_class c on c.oid = attrelid join pg_namespace n on n.oid = relnamespace "
        f"where attnum > 0 and not attisdropped and relkind in ('r', 'p', 'v', 'm', 'f') and {_OWN_SCHEMAS}"
    ),
}
_ALTERED = {
    "database": "DATABASE",
    "schema": "SCHEMA",
    "table": "TABLE",
    "sequence": "SEQUENCE",
    "function": "FUNCTION",
}
_QUOTING = Quoting(PGDialect(paramstyle="named"))  # type: ignore[no-untyped-call]


def name_problem(item: Account | Object) -> str | None:
    """As TargetModule.name_problem."""
    for name in item.names if isinstance(item, Object) else (item.name,):
        if not name:
            return "the name is empty"
        if len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME:
            return f"`{name:.40}…` has more than {LONGEST_NAME} bytes, and would be cut short"
    if isinstance(item, Account) and (item.name in _RESERVED or item.name.startswith("pg_")):
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
        # Privileges on columns allow part of a table, and go with some changes of the table's.
        self._kinds = tuple(kinds | {"column": None} if "table" in kinds else kinds)

    def read(self) -> Inventory:
        """As Session.read."""
        accounts, unlimited, by_id = self._accounts()
        objects: set[Object] = set()
        rights: set[Right] = set()
        inherent: set[Right] = set()
        overloaded: set[Object] = set()
        for kind, names, owner, *_ in self._objects(""):
            object_ = Object(kind, tuple(names))
            (overloaded if object_ in objects else objects).add(object_)
            rights.add(NativeOwnership(object_, by_id[owner]))
            inherent.add(NativeOwnership(object_, by_id[owner]))
        acl = ', lateral aclexplode(coalesce(acl, acldefault(sign::"char", owner))) a'
        for kind, names, owner, grantee, privilege, grantable in self._objects(
            acl, "a.grantee, a.privilege_type, a.is_grantable"
        ):
            object_ = Object(kind, tuple(names))
            account = by_id[grantee]
            grants = [NativeGrant(account, "allow", privilege, object_)]
            if grantable:
                grants.append(NativeGrant(account, "allow", privilege + GRANT_OPTION, object_))
            rights.update(grants)
            if grantee == owner:
                inherent.update(grants)
        rights |= self._memberships(by_id)
        objects -= overloaded
        own, others = self._recorded()
        [(database,)] = self._sql.rows("select current_database()")
        return Inventory(
            accounts=frozenset(accounts),
            objects=frozenset(objects),
            rights=frozenset(rights),
            inherent=frozenset(inherent),
            unlimited=frozenset(unlimited),
            recorded=own,
            recorded_elsewhere=others,
            within=(database,),
        )

    def _accounts(self) -> tuple[set[Account], set[Account], dict[int, Account]]:
        """All roles, those of superusers, and all by their ids."""
        by_id: dict[int, Account] = {0: EVERYONE}
        unlimited = set()
        for oid, name, login, superuser in self._sql.rows("select oid, rolname, rolcanlogin, rolsuper from pg_roles"):
            account = Account("login", name) if login else Account("role", name)
            by_id[oid] = account
            if superuser:
                unlimited.add(account)
        return {account for account in by_id.values() if account.kind != "everyone"}, unlimited, by_id

    def _objects(self, more: str, columns: str = "1") -> Iterator[Sequence[Any]]:
        """The objects of the mapped kinds: kind, names, owner, and further columns."""
        parts = [f"({_OBJECTS[kind]})" for kind in self._kinds]
        if parts:
            named = f"with named (kind, names, owner, acl, sign) as ({' union all '.join(parts)})"
            yield from self._sql.rows(f"{named} select kind, names::text[], owner, {columns} from named{more}")

    def _memberships(self, by_id: Mapping[int, Account]) -> set[Right]:
        query = "select member, roleid from pg_auth_members"
        links = [(by_id[member], by_id[role]) for member, role in self._sql.rows(query)]
        return {
            NativeMembership(member, role)
            for member, role in links
            if not (member.name.startswith("pg_") and role.name.startswith("pg_"))
        }

    def _recorded(self) -> tuple[frozenset[Right], frozenset[Right]]:
        [(table,)] = self._sql.rows(f"select to_regclass('{RECORD}.pushed')")
        if table is None:
            return frozenset(), frozenset()
        rows = self._sql.rows(f"select pusher, held from {_QUOTING.name(RECORD, 'pushed')}")
        return recorded(((pusher, right) for pusher, right in rows), self._pusher, self.where)

    def normalised(self, desired: frozenset[Right], inventory: Inventory) -> frozenset[Right]:
        """As Session.natural."""
        del inventory
        return desired

    def moved(self, inventory: Inventory, desired: frozenset[Right]) -> Inventory:
        """As Session.moved: the new owner starts with nothing, and the privileges of the old one go to the new one."""
        owners = {r.object: r.owner for r in inventory.rights if isinstance(r, NativeOwnership)}
        involved = {
            (r.object, account)
            for r in desired - inventory.rights
            if isinstance(r, NativeOwnership)
            for account in (r.owner, owners.get(r.object, r.owner))
        }
        moved = {object_ for object_, _ in involved}
        lost: set[Right] = {
            r for r in inventory.rights if isinstance(r, NativeGrant) and (r.object, r.account) in involved
        }
        lost |= {r for r in inventory.rights if isinstance(r, NativeOwnership) and r.object in moved}
        return replace(
            inventory,
            rights=inventory.rights - lost,
            inherent=inventory.inherent - lost,
            recorded=inventory.recorded - {right for right in lost if isinstance(right, NativeOwnership)},
        )

    def requests(self, plan: PushPlan) -> tuple[str, ...]:
        """As Session.requests."""
        created = [f"CREATE ROLE {_QUOTING.name(account.name)}" for account in sorted(plan.create)]
        granted = in_order(set(plan.grant))
        moved = {right.object for right in granted if isinstance(right, NativeOwnership)}
        revoked = [
            right
            for right in reversed(in_order(set(plan.revoke)))
            if not (isinstance(right, NativeOwnership) and right.object in moved)
        ]
        return (
            *created,
            *(statement for right in granted if isinstance(right, NativeOwnership) for statement in _granted(right)),
            *(statement for right in revoked for statement in _revoked(right)),
            *(statement for right in self._restored(plan) for statement in _granted(right)),
            *(
                statement
                for right in granted
                if not isinstance(right, NativeOwnership)
                for statement in _granted(right)
            ),
        )

    def _restored(self, plan: PushPlan) -> tuple[Right, ...]:
        """Privileges on columns that stay, and that PostgreSQL revokes with the same ones on their table."""
        lost = {
            (r.account, r.privilege, r.object.names)
            for r in plan.revoke
            if isinstance(r, NativeGrant) and r.object.kind == "table"
        }
        owners = {(r.owner, r.object.names) for r in plan.grant if isinstance(r, NativeOwnership)}
        return in_order(
            {
                r
                for r in plan.kept - plan.grant
                if isinstance(r, NativeGrant)
                and r.object.kind == "column"
                and ((r.account, r.privilege, r.object.names[:2]) in lost or (r.account, r.object.names[:2]) in owners)
            }
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
        """As Session.apply: in one transaction, which is rolled back if the rights are not those of the plan then."""
        self._sql.run(self.requests(plan))
        before, _ = self._recorded()
        self._sql.record(_QUOTING.name(RECORD, "pushed"), self._pusher, before, plan.record)
        after = self.read()
        left = difference(after, plan.desired, frozenset())
        if left.grant or (plan.revoke & after.rights):
            different = in_order(set(left.grant) | set(plan.revoke & after.rights))
            raise PushError(
                f"{self.where}: nothing was changed, since the database did not carry out the plan: {different[0]}"
            )
        self._sql.commit()


def _on(object_: Object) -> str:
    match object_.kind:
        case "column":
            return f"ON TABLE {_QUOTING.name(*object_.names[:2])}"
        case kind:
            return f"ON {kind.upper()} {_QUOTING.name(*object_.names)}"


def _what(privilege: str, object_: Object) -> str:
    plain = privilege.removesuffix(GRANT_OPTION)
    return f"{plain} ({_QUOTING.name(object_.names[2])})" if object_.kind == "column" else plain


def _who(account: Account) -> str:
    return "PUBLIC" if account.kind == "everyone" else _QUOTING.name(account.name)


def _granted(right: Right) -> tuple[str, ...]:
    match right:
        case NativeGrant():
            option = GRANT_OPTION if right.privilege.endswith(GRANT_OPTION) else ""
            what = _what(right.privilege, right.object)
            return (f"GRANT {what} {_on(right.object)} TO {_who(right.account)}{option}",)
        case NativeMembership():
            return (f"GRANT {_who(right.role)} TO {_who(right.account)}",)
        case NativeOwnership():
            altered = "DOMAIN" if right.object.kind == "type" else _ALTERED.get(right.object.kind)
            if altered is None:
                raise UsageError(f"a {right.object.kind} has no owner of its own in PostgreSQL")
            return (
                f"ALTER {altered} {_QUOTING.name(*right.object.names)} OWNER TO {_who(right.owner)}",
                f"REVOKE ALL {_on(right.object)} FROM {_who(right.owner)}",
            )
        case DefaultRole():
            raise UsageError("PostgreSQL has no default roles")
        case _:
            assert_never(right)


def _revoked(right: Right) -> tuple[str, ...]:
    match right:
        case NativeGrant():
            option = "GRANT OPTION FOR " if right.privilege.endswith(GRANT_OPTION) else ""
            return (
                f"REVOKE {option}{_what(right.privilege, right.object)} {_on(right.object)} FROM {_who(right.account)}",
            )
        case NativeMembership():
            return (f"REVOKE {_who(right.role)} FROM {_who(right.account)}",)
        case NativeOwnership():
            altered = "DOMAIN" if right.object.kind == "type" else _ALTERED[right.object.kind]
            return (f"ALTER {altered} {_QUOTING.name(*right.object.names)} OWNER TO CURRENT_USER",)
        case DefaultRole():
            return ()
        case _:
            assert_never(right)
