"""Answers to requests: the changes that a request makes, and the fields that its body must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from privtab.base import Entity, UsageError, encode_name
from privtab_connect.apis.gravitino.objects import Exists, Illegal, Missing, NotEmpty, Objects, last_of, without_secrets
from privtab_connect.apis.gravitino.paths import ACTS, KINDS
from privtab_server.errors import StoreConflict
from privtab_server.serving.endpoint import HttpError
from privtab_server.store.guarded import DesiredChange, WriteOptions
from privtab_server.store.server.calls import NotFound, flag


class ApiRequest(Objects):
    """One request to the API, and the answers to each kind of request."""

    def answer(self, method: str, names: Sequence[str]) -> dict[str, Any]:
        """The answer to a method and a path below `/api/metalakes`."""
        for of_method, path, act in ACTS:
            if of_method == method and (found := _captured(path.split("/"), names)) is not None:
                return getattr(self, act)(*found)  # type: ignore[no-any-return]
        type_, path_ = self.place(names)
        if len(path_) < self.program.depth(type_):
            acts = {"GET": self.list_, "POST": self.create}
            if method in acts:
                return acts[method](type_, path_)
        else:
            of_one = {"GET": self.load, "PUT": self.alter, "DELETE": self.delete}
            if method in of_one:
                return of_one[method](Entity(type_, "/".join(path_)))
        raise _unsupported(method)

    def place(self, names: Sequence[str]) -> tuple[str, list[str]]:
        """The type that a path is about, and the path of the entity: of one, or, without its last name, of what contains many."""
        type_, path, rest = "metalake", list[str](), list(names)
        while rest:
            path.append(encode_name(rest.pop(0)))
            if rest:
                type_, folder = self.folder(type_, rest)
                del rest[: len(folder)]
        return type_, path

    def folder(self, container: str, names: Sequence[str]) -> tuple[str, list[str]]:
        """The type of what lies in a folder, by how the rest of a path begins. Raises NotFound."""
        for type_, kind in KINDS.items():
            folder = kind.folder.split("/")
            known = self.program.entities.get(type_)
            if known is not None and known.parent == container and list(names[: len(folder)]) == folder:
                return type_, folder
        raise NotFound("there is no such path")

    # --- objects and principals ---

    def list_(self, type_: str, path: Sequence[str]) -> dict[str, Any]:
        """The objects in what contains them, as far as the caller may list them; with `details`, as far as they may load them."""
        kind, operation = KINDS[type_], self.loading(type_)
        if (type_, "list") in self.program.rules:
            self.need("list", Entity(type_, "/".join(path)))
            operation = "list"
        found = self.listed(self.all(type_, path), operation)
        if not kind.listed or flag(self.call.query, "details"):
            found = self.listed(found, self.loading(type_))
            return {kind.many or f"{kind.one}s": [self.shown(entity) for entity in found]}
        listed: list[Any] = [last_of(entity) for entity in found]
        if kind.listed == "identifiers":
            namespace = list(Entity(type_, "/".join(path)).decoded_names)
            listed = [{"namespace": namespace, "name": name} for name in listed]
        return {kind.listed: listed}

    def load(self, entity: Entity) -> dict[str, Any]:
        """One object."""
        self.need(self.loading(entity.type), entity)
        return self.one(self.existing(entity))

    def create(self, type_: str, path: Sequence[str]) -> dict[str, Any]:
        """Create an object, or add a principal. Its creator then owns it, where the policy says so."""
        kind, body = KINDS[type_], self.call.body
        if kind.wrapped:
            (body,) = _items([body.get(kind.one)], kind.one)
        entity = Entity(type_, "/".join([*path, encode_name(_text(body, "name"))]))
        operation = next(name for (of, name), rule in self.program.rules.items() if of == type_ and rule.creates)
        self.need(operation, entity)
        self.check_new(entity)
        grants: list[DesiredChange] = []
        if self.program.entities[type_].principal == "role":
            grants = self.replacing(entity, body.get("securableObjects") or [])
        document = _document({name: part for name, part in body.items() if name not in (*kind.rows, "name")})
        try:
            if self.program.entities[type_].principal == "user":
                row = {"user": last_of(entity), "of": str(Entity(self.program.chain(type_)[-2], "/".join(path)))}
                self.guarded.carry_out("change", self.desired(add={"members": [row]}, resource=entity), self.unseen())
            else:
                desired = self.desired(operation=operation, resource=entity, document=document)
                self.guarded.carry_out("perform", desired, self.unseen())
        except StoreConflict:
            self.look()
            self.check_new(entity)
            raise
        self.carry_out(grants)
        return {} if kind.wrapped else self.one(entity)

    def alter(self, entity: Entity) -> dict[str, Any]:
        """Change what describes an object. Names stay: rows name objects by them."""
        if (entity.type, "alter") not in self.program.rules:
            raise _unsupported("PUT")
        self.need("alter", entity)
        self.existing(entity)
        document = dict(self.created.documents.get(entity, {}))
        for update in _items(self.call.body.get("updates"), "updates"):
            document |= _updated(document, update)
        desired = self.desired(operation="alter", resource=entity, document=_document(document))
        self.guarded.carry_out("perform", desired, self.unseen())
        self.look()
        return self.one(entity)

    def delete(self, entity: Entity) -> dict[str, Any]:
        """Delete an object, or a principal with its rows; false if there is none."""
        operation = self.guarded.authority.deleting(entity.type)
        assert operation is not None
        self.need(operation, entity)
        exists = self.exists(entity)
        deep = KINDS[entity.type].deep
        if deep and self.call.query.get(deep, "").lower() != "true":
            self.check_empty(entity)
        if exists and self.program.rules[entity.type, operation].effects:
            # The policy says what goes with a user; groups of a directory stay.
            self.guarded.carry_out("perform", self.desired(operation=operation, resource=entity), self.how())
        elif exists:
            self.guarded.carry_out("delete", self.desired(resource=entity), self.how())
        return dict.fromkeys(KINDS[entity.type].gone, exists)

    def check_empty(self, entity: Entity) -> None:
        """Raise NotEmpty for an object that holds catalogs, schemas, or what lies in these."""
        inside = (type_ for type_, known in self.program.entities.items() if known.parent == entity.type)
        for type_ in inside:
            if type_ in KINDS and KINDS[type_].listed == "identifiers" and any(self.all(type_, entity.names)):
                raise NotEmpty(entity.type, f"{entity.type} {last_of(entity)} is not empty")

    def one(self, entity: Entity) -> dict[str, Any]:
        """The answer about one object."""
        return {KINDS[entity.type].one: self.shown(entity)}

    def shown(self, entity: Entity) -> dict[str, Any]:
        """An object as it is answered, with the values of enumerations in lower case."""
        found, kind = self.described(entity), KINDS[entity.type]
        found |= {name: str(found[name]).lower() for name in kind.lower if found.get(name)}
        if kind.default is not None and not found.get(kind.default[0]):
            found[kind.default[0]] = found.get(kind.default[1])
        return found

    # --- permissions ---

    def override(self, metalake: str, name: str) -> dict[str, Any]:
        """Replace all privileges of a role: each change is decided before anything is written."""
        role = _entity("role", metalake, name)
        changes = self.replacing(role, self.call.body.get("overrides"))
        self.need(self.loading("role"), role)
        self.existing(role)
        self.carry_out(changes)
        return self.one(role)

    def permit(self, metalake: str, name: str, type_: str, object_name: str, verb: str) -> dict[str, Any]:
        """Grant privileges on an object to a role, or revoke them."""
        object_ = self.secured(metalake, type_, object_name)
        role = _entity("role", metalake, name)
        rows = _granting(role, object_, self.call.body.get("privileges"))
        self.need_rows("grants", verb, object_)
        self.existing(object_, "metadata_object")
        self.existing(role)
        self.carry_out(self.changes("grants", verb, rows, object_))
        return self.one(role)

    def replacing(self, role: Entity, objects: object) -> list[DesiredChange]:
        """Return the changes that give a role exactly the privileges of a body in its metalake; each change is decided.

        Changes that take rights away come first, so that nobody has more rights in between.
        """
        wanted: dict[Entity, list[dict[str, str]]] = {}
        for described in _items(objects, "securableObjects"):
            object_ = self.secured(role.decoded_names[0], _text(described, "type"), _text(described, "fullName"))
            if object_ in wanted:
                raise UsageError(f"the {object_.type} {last_of(object_)} is named twice")
            wanted[object_] = _granting(role, object_, described.get("privileges"))
        held = self.rows("grants", grantee=_principal(role))
        changes: list[DesiredChange] = []
        new = [row for rows in wanted.values() for row in rows if row not in held]
        gone = [row for row in held if row not in [row for rows in wanted.values() for row in rows]]
        for verb, effect, rows in (
            ("revoke", "allow", gone),
            ("grant", "deny", new),
            ("revoke", "deny", gone),
            ("grant", "allow", new),
        ):
            part = sorted((row for row in rows if row["effect"] == effect), key=lambda row: row["entity"])
            for key, of_object in groupby(part, key=lambda row: row["entity"]):
                changes += self.changes("grants", verb, list(of_object), Entity.parse(key))
        for change in changes:
            self.guarded.propose("change", change)
        for object_ in wanted:
            if not self.exists(object_):
                raise Illegal("metadata_object", f"{object_.type} {last_of(object_)} does not exist")
        return changes

    def roles_of_object(self, metalake: str, type_: str, name: str) -> dict[str, Any]:
        """The roles that hold privileges on an object."""
        entity = self.secured(metalake, type_, name)
        self.need(self.loading(entity.type), entity)
        holders = {row["grantee"] for row in self.rows("grants", entity=str(entity))}
        roles = [role for role in self.all("role", (encode_name(metalake),)) if _principal(role) in holders]
        return {"names": [last_of(role) for role in self.listed(roles, "list")]}

    def assign(self, metalake: str, principals: str, name: str, verb: str) -> dict[str, Any]:
        """Give roles to a user or a group, or take them away: each is decided before anything is written."""
        principal = _entity(principals.removesuffix("s"), metalake, name)
        names = _names(self.call.body.get("roleNames"), "roleNames")
        if not names:
            raise UsageError("`roleNames` must have a name")
        roles = [_entity("role", metalake, role) for role in names]
        for role in roles:
            self.need_rows("assignments", verb, role)
        for entity in (principal, *roles):
            self.existing(entity)
        rows = [{"principal": _principal(principal), "role": role.id} for role in roles]
        pairs = zip(roles, rows, strict=True)
        self.carry_out([change for role, row in pairs for change in self.changes("assignments", verb, [row], role)])
        return self.one(principal)

    # --- owners ---

    def owner(self, metalake: str, type_: str, name: str) -> dict[str, Any]:
        """The owner of an object, if it has one."""
        entity = self.secured(metalake, type_, name)
        self.need(self.loading(entity.type), entity)
        self.existing(entity, "metadata_object")
        owners = [row["owner"].partition(":") for row in self.rows("owners", entity=str(entity))]
        return {"owner": next(({"name": name, "type": kind} for kind, _, name in owners), None)}

    def set_owner(self, metalake: str, type_: str, name: str) -> dict[str, Any]:
        """Replace the owner of an object."""
        entity = self.secured(metalake, type_, name)
        owner, kind = _text(self.call.body, "name"), _text(self.call.body, "type").lower()
        self.need("set_owner", entity)
        self.existing(entity, "metadata_object")
        semantics = self.program.semantics.owner
        if semantics is None or kind not in semantics.kinds:
            raise UsageError(f"a {kind.upper()} cannot be an owner")
        self.existing(_entity(kind, metalake, owner))
        row = {"entity": str(entity), "owner": f"{kind}:{owner}"}
        old = [other for other in self.rows("owners", entity=str(entity)) if other != row]
        desired = self.desired(add={"owners": [row]}, remove={"owners": old} if old else {}, resource=entity)
        self.guarded.carry_out("change", desired, self.how())
        return {"set": True}

    # --- tags ---

    def tags_of_object(self, metalake: str, type_: str, name: str) -> dict[str, Any]:
        """The tags of an object and of what contains it."""
        object_ = self.secured(metalake, type_, name)
        self.need("list_for_object", Entity("tag", encode_name(metalake)), object_)
        tags = sorted(self.tags(self.existing(object_, "metadata_object")).items(), key=lambda item: str(item[0]))
        requests = [self.request("list_for_object", tag, object_) for tag, _ in tags]
        seen = [tag for tag, may in zip(tags, self.snapshot.allowed(requests), strict=True) if may]
        if flag(self.call.query, "details"):
            return {"tags": [{**self.shown(tag), "inherited": inherited} for tag, inherited in seen]}
        return {"names": [last_of(tag) for tag, _ in seen]}

    def tag_of_object(self, metalake: str, type_: str, name: str, tag: str) -> dict[str, Any]:
        """A tag of an object, or of what contains it."""
        entity, object_ = _entity("tag", metalake, tag), self.secured(metalake, type_, name)
        self.need("get_for_object", entity, object_)
        inherited = self.tags(self.existing(object_, "metadata_object")).get(entity)
        if inherited is None:
            raise Missing("tag", f"tag {tag} is not associated with {object_.type} {name}")
        return {"tag": {**self.shown(entity), "inherited": inherited}}

    def tags(self, object_: Entity) -> dict[Entity, bool]:
        """The tags of an object, and whether each comes from what contains it alone."""
        chain = self.program.chain(object_.type)
        names = object_.names
        holders = [Entity(type_, "/".join(names[:depth])) for depth, type_ in enumerate(chain, 1)]
        return {tag: holder != object_ for holder in holders for tag, of in self.created.links if of == holder}

    def tag_object(self, metalake: str, type_: str, name: str) -> dict[str, Any]:
        """Associate tags with an object, and end associations: each is decided before anything is written."""
        object_ = self.secured(metalake, type_, name)
        changes: list[DesiredChange] = []
        for part, associated in (("tagsToAdd", True), ("tagsToRemove", False)):
            for tag in _names(self.call.body.get(part) or [], part):
                entity = _entity("tag", metalake, tag)
                self.need("associate", entity, object_)
                self.existing(entity)
                if ((entity, object_) in self.created.links) != associated:
                    request = self.request("associate", entity, object_)
                    document = {"associated": associated}
                    changes.append(
                        self.desired(operation="associate", resource=entity, with_=request.with_, document=document)
                    )
                elif associated:
                    raise Exists("tag", f"tag {tag} is associated with {object_.type} {name} already")
        self.existing(object_, "metadata_object")
        for number, change in enumerate(changes):
            self.guarded.carry_out("perform", change, self.unseen(f"tag {number}"))
        self.look()
        return self.tags_of_object(metalake, type_, name)

    def objects_of_tag(self, metalake: str, name: str) -> dict[str, Any]:
        """The objects with which a tag is associated, as far as the caller may load them."""
        tag = _entity("tag", metalake, name)
        self.need("get", tag)
        self.existing(tag)
        objects = sorted((of for each, of in self.created.links if each == tag), key=str)
        requests = [self.request("list_objects", tag, object_) for object_ in objects]
        seen = zip(objects, self.snapshot.allowed(requests), strict=True)
        described = [(self.in_metalake(object_), last_of(object_)) for object_, may in seen if may]
        return {"metadataObjects": [{**object_, "name": last} for object_, last in described]}

    # --- changes ---

    def changes(
        self, table: str, verb: str, rows: Sequence[Mapping[str, str]], resource: Entity
    ) -> list[DesiredChange]:
        """The change that adds rows, or removes them, as far as they are not as they should be already."""
        held = self.snapshot.tables[table]
        rows = [row for row in rows if (row in held) != (verb == "grant")]
        part: Any = {"add" if verb == "grant" else "remove": {table: rows}}
        return [self.desired(resource=resource, **part)] if rows else []

    def carry_out(self, changes: Sequence[DesiredChange]) -> None:
        """Make some changes, each in its own entry of the journal, and look at what there is then."""
        for number, change in enumerate(changes):
            self.guarded.carry_out("change", change, self.how(f"change {number}" if number else ""))
        self.look()

    def desired(self, **parts: Any) -> DesiredChange:
        """A change that the caller wants."""
        return DesiredChange(user=self.user, **parts)

    def how(self, part: str = "") -> WriteOptions:
        """`part` tells the changes of one request apart."""
        how = self.call.write_options
        if part and how.request_id is not None:
            return WriteOptions(request_id=f"{how.request_id} {part}", expect=how.expect)
        return how

    def unseen(self, part: str = "") -> WriteOptions:
        """As `how`, and refused if another change to the same came after what this request has seen."""
        how = self.how(part)
        return replace(how, expect=self.created.number) if how.expect is None else how


def _captured(path: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """The names in the place of `{}` and of alternatives; None if these are no names of this path."""
    pairs = list(zip(path, names, strict=False))
    if len(path) != len(names) or any(part != "{}" and name not in part.split("|") for part, name in pairs):
        return None
    return [name for part, name in pairs if part == "{}" or "|" in part]


def _document(fields: Mapping[str, Any]) -> Any:
    """Return the part of an object's descriptive fields that the journal keeps."""
    if not isinstance(fields.get("properties") or {}, Mapping):
        raise UsageError("`properties` must be an object")
    try:
        return without_secrets(fields)
    except RecursionError:
        raise UsageError("the body is nested too deeply") from None


def _updated(document: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that an update changes."""
    properties = document.get("properties") or {}
    match update.get("@type"):
        case "setProperty":
            return {"properties": {**properties, _text(update, "property"): _text(update, "value")}}
        case "removeProperty":
            return {"properties": {name: properties[name] for name in properties if name != update.get("property")}}
        case "updateComment":
            return {"comment": update.get("newComment")}
        case "updateTemplate":
            (new,) = _items([update.get("newTemplate")], "newTemplate")
            fields = {name: part for name, part in new.items() if name.startswith("new") and part is not None}
            return {name[3].lower() + name[4:]: part for name, part in fields.items() if len(name) > 3}
        case other:
            raise HttpError(
                405, f"the update `{other}` is not supported: comments, properties and templates are altered"
            )


def _granting(role: Entity, object_: Entity, privileges: object) -> list[dict[str, str]]:
    """The rows that give a role the privileges of a body on an object."""
    rows = []
    for privilege in _items(privileges, "privileges"):
        condition, name = _text(privilege, "condition").lower(), _text(privilege, "name").upper()
        rows.append({"grantee": _principal(role), "effect": condition, "privilege": name, "entity": str(object_)})
    if len({row["privilege"] for row in rows}) != len(rows):
        raise Illegal("privilege", "a privilege is named twice: it is allowed or denied, once")
    return rows


def _items(value: object, name: str) -> list[Mapping[str, Any]]:
    """A list of objects in a body."""
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise UsageError(f"`{name}` must be a list of objects")
    return list(value)


def _names(value: object, name: str) -> list[str]:
    """A list of names in a body, each once."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise UsageError(f"`{name}` must be a list of names")
    return list(dict.fromkeys(value))


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"`{name}` must be a text")
    return value


def _entity(type_: str, metalake: str, name: str) -> Entity:
    return Entity(type_, f"{encode_name(metalake)}/{encode_name(name)}")


def _principal(entity: Entity) -> str:
    """Return a principal's name in rows: a role has its path, a group its name as in a directory, without the metalake."""
    return str(entity) if entity.type == "role" else f"{entity.type}:{last_of(entity)}"


def _unsupported(method: str) -> HttpError:
    return HttpError(405, f"{method} is not supported here")
