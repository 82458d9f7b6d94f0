"""Answers of each system that an import document asks, as Python values, and a policy that takes all of their rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from privtab_connect.importing.answers import Answers

LAKE = """\
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: {column:}}}}
privileges: [SELECT, UPDATE]
semantics: {inheritance: down, deny: overrides, everyone: everybody, owner: {kinds: [user, group], holds: [SELECT]}}
tables:
  table: {read: SELECT (table)}
"""
HIVE = LAKE.replace("{catalog: {schema: {table: {column:}}}}", "{schema: {table: {column:}}}")
METALAKE = LAKE.replace(
    "{catalog: {schema: {table: {column:}}}}", "{metalake: {catalog: {schema: {table:}}}, role:, user:}"
)
POLARIS = LAKE.replace(
    "{catalog: {schema: {table: {column:}}}}", "{catalog: {namespace: {table:, view:, policy:, semantic_model:}}}"
)
SERVER = LAKE.replace("{catalog: {schema: {table: {column:}}}}", "{server: {database: {table:}}, role:}")
DATABASE = LAKE.replace("{catalog: {schema: {table: {column:}}}}", "{database: {schema: {table:}}, role:}").replace(
    "{inheritance", "{hierarchy: [roles], inheritance"
)
POLICIES: Mapping[str, str] = {
    "gravitino": METALAKE, "mariadb": SERVER, "polaris": POLARIS, "postgresql": DATABASE, "ranger": HIVE,
    "scim": HIVE, "tables": HIVE, "unitycatalog": LAKE,
}  # fmt: skip
VALUES: Mapping[str, Mapping[str, str]] = {"gravitino": {"metalake": "m"}, "mariadb": {"server": "s"}}

_M = "/api/metalakes/m"


def _owner(name: str, type_: str = "USER") -> dict[str, Any]:
    return {"code": 0, "owner": {"name": name, "type": type_}}


def _item(*users: str, allowed: bool = True, **more: Any) -> dict[str, Any]:
    accesses = [{"type": "select", "isAllowed": allowed}, {"type": "update", "isAllowed": True}]
    return {"users": [*users], "groups": [], "roles": [], "accesses": accesses, "delegateAdmin": False, **more}


def _policy(number: int, **more: Any) -> dict[str, Any]:
    kinds = ("database", "table", "column")
    resources = {
        kind: {"values": ["*" if kind == "column" else f"{kind}{number}"], "isExcludes": False} for kind in kinds
    }
    own = {"id": number, "name": f"p{number}", "service": "hive", "isEnabled": True, "policyType": 0, "zoneName": ""}
    return {**own, "resources": resources, "policyItems": [_item("ann")], "denyPolicyItems": [], "options": {}, **more}


def _people(*items: dict[str, Any]) -> dict[str, Any]:
    return {"schemas": ["list"], "totalResults": len(items), "startIndex": 1, "Resources": [*items]}


def _members(*ids: str) -> list[dict[str, Any]]:
    return [{"value": id_, "type": "User", "display": f"number {id_}"} for id_ in ids]


ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "scim": {
        "/Users": _people(
            {"id": "1", "userName": "ann", "active": True},
            {"id": "2", "userName": "bob"},
            {"id": "3", "userName": "Eve", "active": True},
        ),
        "/Groups": _people(
            {"id": "g", "displayName": "staff", "members": _members("1", "2")},
            {"id": "h", "displayName": "suspended", "members": [*_members("3"), {"value": "2"}]},
        ),
    },
    "ranger": {
        "/service/plugins/policies": {
            "startIndex": 0, "totalCount": 4, "pageSize": 200,
            "policies": [
                _policy(1, denyPolicyItems=[_item("eve", groups=["temps"]), _item("bob", conditions=[])]),
                _policy(2, isEnabled=False, isDenyAllElse=True),
                _policy(3, policyItems=[_item("ann", allowed=False), _item("bob", roles=["r"])], validitySchedules=[]),
                _policy(4, additionalResources=[{"database": {"values": ["x"]}, "table": {"values": ["*"]}, "column": {"values": ["*"]}}],
                        policyItems=[], denyPolicyItems=[_item("carl")]),
            ],
        }
    },
    "unitycatalog": {
        "^/api/1.0/unity-control/scim2/Users": {"totalResults": 1, "Resources": [{"userName": "ann@x", "active": True, "id": "1"}]},
        "/catalogs": {"catalogs": [{"name": "c", "owner": "ann@x", "isolation_mode": "OPEN"}], "next_page_token": ""},
        "/permissions/catalog/c": {"privilege_assignments": [{"principal": "hr", "privileges": ["SELECT", "UPDATE"]}]},
        "/schemas": {"schemas": [{"name": "s", "owner": "bob@x"}]},
        "/permissions/schema/c.s": {"privilege_assignments": [{"principal": "eve@x", "privileges": ["SELECT"]}]},
        "/tables": {"tables": [{"name": "t", "owner": "it", "columns": [{"name": "x", "mask": None}], "properties": {"a": "b"}}]},
        "/permissions/table/c.s.t": {"privilege_assignments": [{"principal": "ann@x", "privileges": ["UPDATE"]}]},
    },
    "gravitino": {
        f"{_M}/users": {"code": 0, "users": [{"name": "ann", "roles": ["r"], "audit": {}}, {"name": "bob", "roles": []}]},
        f"{_M}/groups": {"code": 0, "groups": [{"name": "hr", "roles": ["r"]}]},
        f"{_M}/roles": {"code": 0, "names": ["r"]},
        f"{_M}/roles/r": {"code": 0, "role": {"name": "r", "properties": {}, "securableObjects": [
            {"fullName": "m", "type": "METALAKE", "privileges": [{"name": "select", "condition": "ALLOW"}]},
            {"fullName": "c.s.t", "type": "TABLE", "privileges": [
                {"name": "select", "condition": "DENY"}, {"name": "update", "condition": "allow"}]},
        ]}},
        f"{_M}/owners/ROLE/r": _owner("ann"),
        f"{_M}/owners/METALAKE/m": _owner("ann"),
        f"{_M}/catalogs": {"code": 0, "identifiers": [{"namespace": ["m"], "name": "c"}]},
        f"{_M}/owners/CATALOG/c": _owner("hr", "GROUP"),
        f"{_M}/catalogs/c/schemas": {"code": 0, "identifiers": [{"namespace": ["m", "c"], "name": "s"}]},
        f"{_M}/catalogs/c/schemas/s/tables": {"code": 0, "identifiers": [{"namespace": ["m", "c", "s"], "name": "t"}]},
        f"{_M}/owners/TABLE/c.s.t": _owner("bob"),
    },
    "polaris": {
        "/principal-roles": {"roles": [{"name": "e", "federated": False, "properties": {}}]},
        "/principal-roles/e/principals": {"principals": [{"name": "etl", "clientId": "x"}]},
        "/catalogs": {"catalogs": [{"name": "c", "type": "INTERNAL"}]},
        "/catalogs/c/catalog-roles": {"roles": [{"name": "reader"}]},
        "/catalogs/c/catalog-roles/reader/principal-roles": {"roles": [{"name": "e"}]},
        "/catalogs/c/catalog-roles/reader/grants": {"grants": [
            {"type": "catalog", "privilege": "SELECT"},
            {"type": "namespace", "namespace": ["n"], "privilege": "UPDATE"},
            {"type": "table", "namespace": ["n"], "tableName": "t", "privilege": "SELECT"},
            {"type": "view", "namespace": ["n"], "viewName": "v", "privilege": "SELECT"},
            {"type": "policy", "namespace": ["n"], "policyName": "p", "privilege": "SELECT"},
            {"type": "semantic-model", "namespace": ["n"], "semanticModelName": "s", "privilege": "SELECT"},
        ]},
    },
    "tables": {
        "tables": [{"table": name, "columns": ["user"]}
                   for name in ("members", "memberships", "assignments", "grants", "owners", "service_admins")],
        "select * from members": [{"user": "ann", "of": "schema:s"}],
        "select * from memberships": [{"user": "eve", "group": "temps", "from": None, "until": "2099-01-01T00:00:00Z"}],
        "select * from assignments": [{"principal": "group:temps", "role": "r", "scope": None},
                                      {"principal": "user:ann", "role": "r", "scope": "schema:s"}],
        "select * from grants": [
            {"grantee": "user:ann", "effect": "allow", "privilege": "SELECT", "entity": "schema:s", "from": None, "until": None},
            {"grantee": "role:r", "effect": "deny", "privilege": "SELECT", "entity": "table:s/t", "from": None, "until": None},
        ],
        "select * from owners": [{"entity": "schema:s", "owner": "user:bob"}],
        "select * from service_admins": [{"user": "root"}],
    },
    "mariadb": {
        "as principal": [
            {"id": "ann@%", "name": "ann", "host": "%", "kind": "user", "principal": "ann"},
            {"id": "r@", "name": "r", "host": "", "kind": "role", "principal": "r"},
            {"id": "PUBLIC@", "name": "PUBLIC", "host": "", "kind": "group", "principal": "PUBLIC"},
        ],
        "select id, role from held": [{"id": "ann@%", "role": "r"}],
        "from lost join given": [
            {"id": "ann@%", "kind": "server", "a": None, "b": None, "c": None, "privileges": "SELECT"},
            {"id": "r@", "kind": "database", "a": "d", "b": None, "c": None, "privileges": "SELECT,UPDATE"},
            {"id": "PUBLIC@", "kind": "table", "a": "d", "b": "t", "c": None, "privileges": "SELECT"},
        ],
        "several-hosts": [{"name": "admin-option", "denies": "", "what": "the right to grant"}],
    },
    "postgresql": {
        "looks_like_another": [
            {"id": "1", "role": "ann", "login": True, "superuser": False, "kind": "user", "looks_like_another": False},
            {"id": "2", "role": "hr", "login": False, "superuser": False, "kind": "role", "looks_like_another": False},
            {"id": "0", "role": "public", "login": False, "superuser": False, "kind": "group", "looks_like_another": False},
        ],
        "from link order by": [{"link": "holds", "member": "1", "role": "2"}],
        "from entry": [
            {"kind": "schema", "path": ["d", "s"], "owner": "1", "grantee": "2", "privilege": "UPDATE", "grantable": False,
             "revoked": False, "option": "GRANT_UPDATE"},
            {"kind": "table", "path": ["d", "s", "t"], "owner": "1", "grantee": "0", "privilege": "SELECT", "grantable": False,
             "revoked": False, "option": "GRANT_SELECT"},
        ],
        "'row-level-security' as name": [{"name": "role-attribute", "denies": False, "what": "CREATEDB of ann"}],
        "as version": [{"version": 160001}],
        "from pg_parameter_acl, aclexplode(paracl)": [{"what": "SET on parameter x"}],
    },
}  # fmt: skip


class RecordedAnswers(Answers):
    """Answers by address, or by a text that is in a query."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__("recorded answers")
        self._answers = answers

    def get(self, address: str, page: str = "", about: str = "", first: str = "") -> Any:  # noqa: ARG002
        """As Answers.get."""
        return None if page else copy.deepcopy(self._answers.get(unquote(address.partition("?")[0])))

    def query(self, sql: str, values: Mapping[str, object]) -> tuple[list[str], Iterator[dict[str, Any]]]:  # noqa: ARG002
        """As Answers.query."""
        asked = " ".join(sql.split())
        (rows,) = (rows for part, rows in self._answers.items() if part in asked and (asked == part or "*" not in part))
        columns = {name: None for row in rows for name in row}
        return [*columns], iter(copy.deepcopy(rows))

    def tables(self) -> list[dict[str, Any]]:
        """As Answers.tables."""
        return copy.deepcopy(self._answers["tables"])
