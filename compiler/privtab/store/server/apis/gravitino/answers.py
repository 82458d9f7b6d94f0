"""What a request is answered with: each path and method, the changes that it makes, and what its body must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privtab.errors import UsageError
from privtab.names import decode_name, encode_name
from privtab.request import Entity
from privtab.serving.guard import HttpError
from privtab.store.guarded import DesiredChange, WriteOptions
from privtab.store.server.apis.gravitino.objects import CREATING, Exists, Objects, last_of
from privtab.store.server.calls import NotFound, flag

FOLDERS = {
    "catalogs": "catalog",
    "schemas": "schema",
    "tables": "table",
    "topics": "topic",
    "filesets": "fileset",
    "models": "model",
}
"""The objects that are created, listed, loaded and dropped, by the part of the path that holds them."""


class ApiRequest(Objects):
    """One request."""

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
            raise HttpError(405, f"{method} is not supported here")
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
                return {"identifiers": [{"namespace": namespace, "name": last_of(entity)} for entity in found]}
            if method == "POST":
                return {type_: self.create(type_, path)}
            raise HttpError(405, f"{method} is not supported here")
        entity = Entity(type_, "/".join(path))
        if method == "GET":
            self.need(self.loading(type_), entity)
            return {type_: self.described(self.existing(entity))}
        if method == "DELETE":
            return {"dropped": self.delete(entity)}
        raise HttpError(405, f"{method} is not supported here")

    def create(self, type_: str, path: Sequence[str]) -> dict[str, Any]:
        """Create an object, which its creator then owns."""
        entity = Entity(type_, "/".join([*path, encode_name(self.text("name"))]))
        operation = next(name for name in CREATING if (type_, name) in self.program.rules)
        self.need(operation, entity)
        self.check_new(entity)
        self.guarded.perform(self.desired(operation=operation, resource=entity), self.how())
        fields = {name: value for name, value in self.call.body.items() if name != "audit"}
        return {**fields, "name": last_of(entity), "audit": {"creator": self.user}}

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
        """The users, groups or roles of a metalake that the caller may list."""
        type_ = kind.removesuffix("s")
        self.need("list", Entity(type_, encode_name(metalake)))
        found = self.listed(self.all(type_, (encode_name(metalake),)), "list")
        if kind != "roles" and flag(self.call.query, "details"):
            return {kind: [self.described(entity) for entity in found]}
        return {"names": [last_of(entity) for entity in found]}

    def principal(self, type_: str, metalake: str, name: str) -> dict[str, Any]:
        """A user, a group or a role."""
        entity = _entity(type_, metalake, name)
        self.need("get", entity)
        return {type_: self.described(self.existing(entity))}

    def add_principal(self, type_: str, metalake: str) -> dict[str, Any]:
        """Add a user or a group to a metalake."""
        entity = _entity(type_, metalake, self.text("name"))
        self.need("add", entity)
        self.check_new(entity)
        if type_ == "user":
            row = {"user": self.text("name"), "of": f"metalake:{encode_name(metalake)}"}
            self.guarded.change(self.desired(add={"members": [row]}, resource=entity), self.how())
        else:
            self.guarded.perform(self.desired(operation="add", resource=entity), self.how())
        return {type_: {"name": last_of(entity), "roles": [], "audit": {"creator": self.user}}}

    def create_role(self, metalake: str) -> dict[str, Any]:
        """Create a role, then grant it the privileges of the body: each is decided before anything is written."""
        entity = _entity("role", metalake, self.text("name"))
        role = f"role:{self.text('name')}"
        self.need("create", entity)
        if any(last_of(other) == last_of(entity) for other in self.all("role")) or self.rows("grants", grantee=role):
            raise Exists(f"role {last_of(entity)} exists: names of roles are unique in a store")
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
        """The roles that hold privileges on an object."""
        self.need(self.loading(entity.type), entity)
        holders = {row["grantee"] for row in self.rows("grants", entity=str(entity))}
        roles = [role for role in self.all("role", (encode_name(metalake),)) if f"role:{last_of(role)}" in holders]
        return {"names": [last_of(role) for role in self.listed(roles, "list")]}

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
            row = {"principal": f"{type_}:{name}", "role": last_of(role)}
            if verb == "grant" or row in self.snapshot.tables["assignments"]:
                self.change("assignments", verb, [row], role, f"role {number}")
        return {type_: self.fresh(principal)}

    def owner(self, entity: Entity) -> dict[str, Any] | None:
        """The owner of an object, if it has one."""
        self.need(self.loading(entity.type), entity)
        self.existing(entity)
        for row in self.rows("owners", entity=str(entity)):
            kind, _, name = row["owner"].partition(":")
            return {"name": name, "type": kind.upper()}
        return None

    def set_owner(self, metalake: str, entity: Entity) -> dict[str, Any]:
        """Replace the owner of an object."""
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

    # --- changes ---

    def change(self, table: str, verb: str, rows: list[dict[str, str]], resource: Entity, part: str = "") -> None:
        """Add rows, or remove them, by the operation that authorises it; `part` is as for `how`."""
        if not rows:
            return
        changed = {table: rows}
        desired = self.desired(
            add=changed if verb == "grant" else {}, remove={} if verb == "grant" else changed, resource=resource
        )
        self.guarded.change(desired, self.how(part))

    def desired(self, **parts: Any) -> DesiredChange:
        """A change that the caller wants."""
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
        """A text that the body must have."""
        return _text(self.call.body, name)

    def grants(self, role: str, object_: Entity, privileges: object) -> list[dict[str, str]]:
        """The rows that give a role the privileges of a body on an object."""
        rows = []
        for privilege in self.items(privileges, "privileges"):
            condition = _text(privilege, "condition").lower()
            name = _text(privilege, "name").upper()
            rows.append({"grantee": role, "effect": condition, "privilege": name, "entity": str(object_)})
        return rows

    def items(self, value: object, name: str) -> list[Mapping[str, Any]]:
        """A list of objects in a body."""
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
