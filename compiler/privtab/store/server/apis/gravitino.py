"""The REST API of Apache Gravitino for access control, and for creating what it controls, in front of a store.

Paths and payloads are those of the Access Control page of version 1.1.0. What an object consists of (columns, properties,
comments) is not kept: answers to a creation repeat it, later ones lack it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import unquote

from starlette.routing import Route

from privtab.errors import (
    AccessDenied,
    InvalidRequest,
    PrivtabError,
    StateInvalid,
    StoreConflict,
    UsageError,
)
from privtab.names import decode_name, encode_name
from privtab.request import Entity, Request
from privtab.serving.guard import Refused
from privtab.store.guarded import DesiredChange, WriteOptions
from privtab.store.server.app import StoreScope, StoreServer, route
from privtab.store.server.calls import Answer, Call, NotFound, flag
from privtab.store.view import Snapshot

PREFIX = "/api/metalakes"
MEDIA = "application/vnd.gravitino.v1+json"
FOLDERS = {
    "catalogs": "catalog",
    "schemas": "schema",
    "tables": "table",
    "topics": "topic",
    "filesets": "fileset",
    "models": "model",
}
"""The objects that are created, listed, loaded and dropped, by the part of the path that holds them."""
_CREATING = ("create", "register", "add")
_LOADING = ("load", "get")
_KINDS = {400: "IllegalArgumentException", 403: "ForbiddenException", 404: "NotFoundException"}
_CODES = {400: 1001, 403: 1008, 404: 1003, 405: 1006, 409: 1004}


class _Exists(StoreConflict):
    """What is to be created exists already."""


def routes(server: StoreServer) -> list[Route]:
    """The endpoints. Raises UsageError unless the policy is of this system."""
    needed = {"metalake", "catalog", "schema", "user", "group", "role"}
    if not needed <= server.guarded.program.entities.keys():
        raise UsageError(f"the policy of {server.guarded.program.system} has no {', '.join(sorted(needed))}")
    api = _Api(server)
    return [
        route(server, path, partial(_answer, api, method), scope, method, failed=failure, media=MEDIA)
        for path in (PREFIX, f"{PREFIX}/{{rest:path}}")
        for method, scope in (
            ("GET", StoreScope.READ),
            ("POST", StoreScope.WRITE),
            ("PUT", StoreScope.WRITE),
            ("DELETE", StoreScope.WRITE),
        )
    ]


def failure(error: PrivtabError | Refused) -> Answer:
    """The answer to an error, as the system's ErrorResponse."""
    match error:
        case Refused():
            status = error.status
        case AccessDenied():
            status = 403
        case NotFound():
            status = 404
        case StoreConflict():
            status = 409
        case StateInvalid() | UsageError() | InvalidRequest():
            status = 400
        case _:
            status = 503
    kind = "AlreadyExistsException" if isinstance(error, _Exists) else _KINDS.get(status, "RuntimeException")
    message = str(error) if status != 503 else "the store cannot be read or written at the moment"
    return status, {"code": _CODES.get(status, 1002), "type": kind, "message": message, "stack": []}


def _answer(api: _Api, method: str, server: StoreServer, call: Call) -> Answer:
    del server
    try:
        names = [unquote(part, errors="strict") for part in call.raw_path.removeprefix(PREFIX).split("/") if part]
    except UnicodeDecodeError:
        raise UsageError("the path is not UTF-8") from None
    return 200, {"code": 0, **_ApiRequest(api, call).answer(method, names)}


class _Api:
    """What the server holds, as the journal tells: the objects that were created, by whom and when."""

    def __init__(self, server: StoreServer) -> None:
        self.server = server
        self.guarded = server.guarded
        self._lock = Lock()
        self._read = 0
        self._created: dict[Entity, Mapping[str, str]] = {}

    def created(self) -> dict[Entity, Mapping[str, str]]:
        """The objects that were created and not deleted since, each with its `audit`."""
        with self._lock:
            for entry in self.guarded.store.log(self._read):
                self._read = entry.number
                resource = entry.request.get("resource")
                if resource is None:
                    continue
                entity = Entity(resource["type"], resource["id"])
                if entry.action in _CREATING:
                    self._created[entity] = {"creator": entry.actor, "createTime": entry.at}
                elif entry.action == self.guarded.authority.deleting(entity.type):
                    inside = f"{entity.id}/"
                    top = entity.type in ("metalake", "catalog", "schema")
                    gone = [e for e in self._created if e == entity or (top and e.id.startswith(inside))]
                    for each in gone:
                        del self._created[each]
            return dict(self._created)


class _ApiRequest:
    """One request."""

    def __init__(self, api: _Api, call: Call) -> None:
        self.guarded = api.guarded
        self.program = api.guarded.program
        self.call = call
        self.user = call.user
        self.created = api.created()
        self.snapshot: Snapshot = api.guarded.view.now()

    def answer(self, method: str, names: Sequence[str]) -> dict[str, Any]:
        """The answer to a method and a path below `/api/metalakes`."""
        match (method, *names):
            case ("GET",):
                return {
                    "metalakes": [self.described(entity) for entity in self.listed(self.all("metalake", ()), "load")]
                }
            case ("POST",):
                return {"metalake": self.create("metalake", ())}
            case ("GET", metalake, "users" | "groups" | "roles" as kind):
                return self.principals(kind, metalake)
            case ("POST", metalake, "users" | "groups" as kind):
                return self.add_principal(kind.removesuffix("s"), metalake)
            case ("POST", metalake, "roles"):
                return self.create_role(metalake)
            case ("GET", metalake, "users" | "groups" | "roles" as kind, name):
                return self.principal(kind.removesuffix("s"), metalake, name)
            case ("DELETE", metalake, "users" | "groups" | "roles" as kind, name):
                done = self.delete(_entity(kind.removesuffix("s"), metalake, name))
                return {"deleted" if kind == "roles" else "removed": done}
            case ("GET", metalake, "objects", type_, name, "roles"):
                return self.roles_of_object(metalake, self.secured(metalake, type_, name))
            case ("PUT", metalake, "permissions", "roles", role, type_, name, "grant" | "revoke" as verb):
                return self.permit(metalake, role, self.secured(metalake, type_, name), verb)
            case ("PUT", metalake, "permissions", "users" | "groups" as kind, name, "grant" | "revoke" as verb):
                return self.assign(metalake, kind.removesuffix("s"), name, verb)
            case ("GET", metalake, "owners", type_, name):
                return {"owner": self.owner(self.secured(metalake, type_, name))}
            case ("PUT", metalake, "owners", type_, name):
                return self.set_owner(metalake, self.secured(metalake, type_, name))
            case _:
                return self.objects(method, names)

    # --- metalakes, catalogs and what they hold ---

    def objects(self, method: str, names: Sequence[str]) -> dict[str, Any]:
        """Create, list, load or drop an object: `m/catalogs/c/schemas/s`."""
        if not names:
            raise Refused(405, f"{method} is not supported here")
        folders = names[1::2]
        types = [FOLDERS.get(folder) for folder in folders]
        path = [encode_name(name) for name in names[::2]]
        type_ = types[-1] if types else "metalake"
        chain = ["metalake", *types]
        if type_ is None or type_ not in self.program.entities or list(self.program.chain(type_)) != chain:
            raise NotFound("there is no such path")
        if len(names) % 2 == 0:
            if method == "GET":
                self.need("list", Entity(type_, "/".join(path)))
                found = self.listed(self.all(type_, path), "list")
                namespace = [decode_name(name) for name in path]
                return {"identifiers": [{"namespace": namespace, "name": _last(entity)} for entity in found]}
            if method == "POST":
                return {type_: self.create(type_, path)}
            raise Refused(405, f"{method} is not supported here")
        entity = Entity(type_, "/".join(path))
        if method == "GET":
            self.need(self.loading(type_), entity)
            return {type_: self.described(self.existing(entity))}
        if method == "DELETE":
            return {"dropped": self.delete(entity)}
        raise Refused(405, f"{method} is not supported here")

    def create(self, type_: str, path: Sequence[str]) -> dict[str, Any]:
        entity = Entity(type_, "/".join([*path, encode_name(self.text("name"))]))
        operation = next(name for name in _CREATING if (type_, name) in self.program.rules)
        self.need(operation, entity)
        self.check_new(entity)
        self.guarded.perform(self.desired(operation=operation, resource=entity), self.how())
        fields = {name: value for name, value in self.call.body.items() if name != "audit"}
        return {**fields, "name": _last(entity), "audit": {"creator": self.user}}

    def delete(self, entity: Entity) -> bool:
        """Delete an object, or a principal with its rows; false if there is none."""
        operation = self.guarded.authority.deleting(entity.type)
        assert operation is not None
        self.need(operation, entity)
        if not self.exists(entity):
            return False
        self.guarded.delete(self.desired(resource=entity), self.how())
        return True

    # --- users, groups and roles ---

    def principals(self, kind: str, metalake: str) -> dict[str, Any]:
        type_ = kind.removesuffix("s")
        self.need("list", Entity(type_, encode_name(metalake)))
        found = self.listed(self.all(type_, (encode_name(metalake),)), "list")
        if kind != "roles" and flag(self.call.query, "details"):
            return {kind: [self.described(entity) for entity in found]}
        return {"names": [_last(entity) for entity in found]}

    def principal(self, type_: str, metalake: str, name: str) -> dict[str, Any]:
        entity = _entity(type_, metalake, name)
        self.need("get", entity)
        return {type_: self.described(self.existing(entity))}

    def add_principal(self, type_: str, metalake: str) -> dict[str, Any]:
        entity = _entity(type_, metalake, self.text("name"))
        self.need("add", entity)
        self.check_new(entity)
        if type_ == "user":
            row = {"user": self.text("name"), "of": f"metalake:{encode_name(metalake)}"}
            self.guarded.change(self.desired(add={"members": [row]}, resource=entity), self.how())
        else:
            self.guarded.perform(self.desired(operation="add", resource=entity), self.how())
        return {type_: {"name": _last(entity), "roles": [], "audit": {"creator": self.user}}}

    def create_role(self, metalake: str) -> dict[str, Any]:
        """Create a role, then grant it the privileges of the body: each is decided before anything is written."""
        entity = _entity("role", metalake, self.text("name"))
        role = f"role:{self.text('name')}"
        self.need("create", entity)
        if any(_last(other) == _last(entity) for other in self.all("role")) or self.rows("grants", grantee=role):
            raise _Exists(f"role {_last(entity)} exists: names of roles are unique in a store")
        granted: dict[Entity, list[dict[str, str]]] = {}
        for described in self.items(self.call.body.get("securableObjects", []), "securableObjects"):
            object_ = self.secured(metalake, _text(described, "type"), _text(described, "fullName"))
            granted.setdefault(object_, []).extend(self.grants(role, object_, described.get("privileges")))
        changes = [self.desired(add={"grants": rows}) for rows in granted.values() if rows]
        for change in changes:
            self.guarded.propose(change)
        self.guarded.perform(self.desired(operation="create", resource=entity), self.how())
        for number, change in enumerate(changes):
            self.guarded.change(change, self.how(f"grant {number}"))
        return {"role": self.fresh(entity)}

    def roles_of_object(self, metalake: str, entity: Entity) -> dict[str, Any]:
        self.need(self.loading(entity.type), entity)
        holders = {row["grantee"] for row in self.rows("grants", entity=str(entity))}
        roles = [role for role in self.all("role", (encode_name(metalake),)) if f"role:{_last(role)}" in holders]
        return {"names": [_last(role) for role in self.listed(roles, "list")]}

    # --- permissions and owners ---

    def permit(self, metalake: str, role: str, object_: Entity, verb: str) -> dict[str, Any]:
        """Grant privileges on an object to a role, or revoke them."""
        rows = self.grants(f"role:{role}", object_, self.call.body.get("privileges"))
        self.need_rows("grants", verb, object_)
        entity = self.existing(_entity("role", metalake, role))
        if verb == "revoke":
            rows = [row for row in rows if row in self.snapshot.tables["grants"]]
        self.change("grants", verb, rows, object_)
        return {"role": self.fresh(entity)}

    def assign(self, metalake: str, type_: str, name: str, verb: str) -> dict[str, Any]:
        """Give roles to a user or a group, or take them away: each is decided before anything is written."""
        principal = _entity(type_, metalake, name)
        names = self.call.body.get("roleNames")
        if not isinstance(names, list) or not names or not all(isinstance(role, str) for role in names):
            raise UsageError("`roleNames` must be a list of names")
        roles = [_entity("role", metalake, role) for role in dict.fromkeys(names)]
        for role in roles:
            self.need_rows("assignments", verb, role)
        for entity in (principal, *roles):
            self.existing(entity)
        for number, role in enumerate(roles):
            row = {"principal": f"{type_}:{name}", "role": _last(role)}
            if verb == "grant" or row in self.snapshot.tables["assignments"]:
                self.change("assignments", verb, [row], role, f"role {number}")
        return {type_: self.fresh(principal)}

    def owner(self, entity: Entity) -> dict[str, Any] | None:
        self.need(self.loading(entity.type), entity)
        self.existing(entity)
        for row in self.rows("owners", entity=str(entity)):
            kind, _, name = row["owner"].partition(":")
            return {"name": name, "type": kind.upper()}
        return None

    def set_owner(self, metalake: str, entity: Entity) -> dict[str, Any]:
        name, kind = self.text("name"), self.text("type").lower()
        self.need("set_owner", entity)
        self.existing(entity)
        if kind != "user":
            raise UsageError("only a USER can be an owner")
        self.existing(_entity("user", metalake, name))
        row = {"entity": str(entity), "owner": f"user:{name}"}
        old = [other for other in self.rows("owners", entity=str(entity)) if other != row]
        desired = self.desired(add={"owners": [row]}, remove={"owners": old} if old else {}, resource=entity)
        self.guarded.change(desired, self.how())
        return {"set": True}

    # --- decisions ---

    def need(self, operation: str, entity: Entity) -> None:
        """Raise AccessDenied unless the user may do an operation."""
        request = Request(user=self.user, action=operation, resource=entity)
        self.snapshot.vocabulary.check(request)
        decision = self.snapshot.opened().engine.decide(request)
        if not decision.allowed:
            raise AccessDenied(request, decision)

    def need_rows(self, table: str, verb: str, entity: Entity) -> None:
        operation = self.guarded.authority.operation(table, "add" if verb == "grant" else "remove", entity.type)
        if operation is None:
            raise UsageError(f"nothing can be granted on a {entity.type}")
        self.need(operation, entity)

    def listed(self, entities: Iterable[Entity], operation: str) -> list[Entity]:
        """The objects that the user sees."""
        found = sorted(entities, key=str)
        requests = [Request(user=self.user, action=operation, resource=entity) for entity in found]
        answers = self.snapshot.allowed(requests)
        return [entity for entity, seen in zip(found, answers, strict=True) if seen]

    def loading(self, type_: str) -> str:
        return next(name for name in _LOADING if (type_, name) in self.program.rules)

    # --- what there is ---

    def all(self, type_: str, path: Sequence[str] = ()) -> Iterator[Entity]:
        """The objects of a type, those in `path` alone if it is given."""
        inside = "".join(f"{name}/" for name in path)
        known = {*self.created, *self.snapshot.entities} if type_ != "user" else set()
        if type_ == "user":
            known = {_in(Entity.parse(row["of"]), "user", row["user"]) for row in self.snapshot.tables["members"]}
        yield from (entity for entity in known if entity.type == type_ and entity.id.startswith(inside))

    def exists(self, entity: Entity) -> bool:
        return entity in self.all(entity.type)

    def existing(self, entity: Entity) -> Entity:
        if not self.exists(entity):
            raise NotFound(f"{entity.type} {_last(entity)} does not exist")
        return entity

    def check_new(self, entity: Entity) -> None:
        if self.exists(entity):
            raise _Exists(f"{entity.type} {_last(entity)} exists already")

    def rows(self, table: str, **cells: str) -> list[Mapping[str, str]]:
        expected = cells.items()
        return [row for row in self.snapshot.tables[table] if expected <= row.items()]

    def secured(self, metalake: str, type_: str, name: str) -> Entity:
        """The object of a type and a full name, as in `TABLE`, `catalog1.schema1.table1`."""
        type_ = type_.lower()
        if type_ not in self.program.entities:
            raise UsageError(f"`{type_.upper()}` is no type of metadata object")
        if type_ == "metalake":
            return Entity(type_, encode_name(name))
        # A role, a tag or a catalog has one name, which may have dots.
        names = [name] if self.program.depth(type_) == 2 else name.split(".")
        return Entity(type_, "/".join(encode_name(part) for part in (metalake, *names)))

    def described(self, entity: Entity) -> dict[str, Any]:
        name = _last(entity)
        found: dict[str, Any] = {"name": name, "audit": dict(self.created.get(entity, {}))}
        match entity.type:
            case "user" | "group":
                rows = self.rows("assignments", principal=f"{entity.type}:{name}")
                roles = {_last(role) for role in self.all("role", entity.names[:1])}
                found["roles"] = sorted({row["role"] for row in rows} & roles)
            case "role":
                found |= {"properties": {}, "securableObjects": self.securable(f"role:{name}", entity.names[0])}
        return found

    def securable(self, role: str, metalake: str) -> list[dict[str, Any]]:
        found: dict[str, list[dict[str, str]]] = {}
        for row in self.rows("grants", grantee=role):
            privilege = {"name": row["privilege"], "condition": row["effect"].upper()}
            if Entity.parse(row["entity"]).names[0] == metalake:
                found.setdefault(row["entity"], []).append(privilege)
        return [
            {
                "fullName": ".".join(map(decode_name, entity.names[1:] or entity.names)),
                "type": entity.type.upper(),
                "privileges": privileges,
            }
            for entity, privileges in ((Entity.parse(key), listed) for key, listed in sorted(found.items()))
        ]

    # --- changes ---

    def change(self, table: str, verb: str, rows: list[dict[str, str]], resource: Entity, part: str = "") -> None:
        if not rows:
            return
        changed = {table: rows}
        desired = self.desired(
            add=changed if verb == "grant" else {}, remove={} if verb == "grant" else changed, resource=resource
        )
        self.guarded.change(desired, self.how(part))

    def desired(self, **parts: Any) -> DesiredChange:
        return DesiredChange(user=self.user, **parts)

    def how(self, part: str = "") -> WriteOptions:
        """`part` tells the changes of one request apart."""
        how = self.call.write_options
        if part and how.request_id is not None:
            return WriteOptions(request_id=f"{how.request_id} {part}", expect=how.expect)
        return how

    def fresh(self, entity: Entity) -> dict[str, Any]:
        """An object after a change."""
        self.snapshot = self.guarded.view.now()
        return self.described(entity)

    # --- bodies ---

    def text(self, name: str) -> str:
        return _text(self.call.body, name)

    def grants(self, role: str, object_: Entity, privileges: object) -> list[dict[str, str]]:
        rows = []
        for privilege in self.items(privileges, "privileges"):
            condition = _text(privilege, "condition").lower()
            name = _text(privilege, "name").upper()
            rows.append({"grantee": role, "effect": condition, "privilege": name, "entity": str(object_)})
        return rows

    def items(self, value: object, name: str) -> list[Mapping[str, Any]]:
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise UsageError(f"`{name}` must be a list of objects")
        return list(value)


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"`{name}` must be a text")
    return value


def _entity(type_: str, metalake: str, name: str) -> Entity:
    return Entity(type_, f"{encode_name(metalake)}/{encode_name(name)}")


def _in(container: Entity, type_: str, name: str) -> Entity:
    return Entity(type_, f"{container.id}/{encode_name(name)}")


def _last(entity: Entity) -> str:
    return decode_name(entity.names[-1])
