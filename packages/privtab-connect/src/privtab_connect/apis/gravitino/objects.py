"""Objects that a store's journal and rows name, and who may see them, for one request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from privtab.base import AccessDenied, Entity, PrivtabError, Request, UsageError, encode_name
from privtab_server.errors import StoreConflict
from privtab_server.store.guarded import Created, GuardedStore
from privtab_server.store.server.calls import Call, NotFound
from privtab_server.store.view import Snapshot

_LOADING = ("load", "get")
_SECRET = re.compile(r"password|secret|token|credential|(private|access|account)[-_. ]?key", re.IGNORECASE)
HIDDEN = "******"
"""Replacement for a text whose name says that it is a secret: journals and answers are no place for secrets."""


class Named(PrivtabError):
    """An error that the system has a name and a code for."""

    pattern: ClassVar[str]
    code: ClassVar[int]

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = self.pattern.format(kind.title().replace("_", ""))


class Exists(Named, StoreConflict):
    """The object to create exists already."""

    pattern, code = "{}AlreadyExistsException", 1004


class NotEmpty(Named, StoreConflict):
    """The object to delete holds other objects."""

    pattern, code = "NonEmpty{}Exception", 1005


class Missing(Named, NotFound):
    """The object that a request names does not exist."""

    pattern, code = "NoSuch{}Exception", 1003


class Illegal(Named, UsageError):
    """A value in a body is impossible: of a `privilege`, of a `metadata_object`."""

    pattern, code = "Illegal{}Exception", 1001


class Objects:
    """The caller of one request, and the objects that exist for the caller."""

    def __init__(self, guarded: GuardedStore, call: Call) -> None:
        self.guarded = guarded
        self.program = guarded.program
        self.call = call
        self.user = call.user
        self.look()

    def look(self) -> None:
        """Read the objects that exist now."""
        self.created: Created = self.guarded.created.now()
        self.snapshot: Snapshot = self.guarded.view.now()

    # --- decisions ---

    def need(self, operation: str, entity: Entity, *objects: Entity) -> None:
        """Raise AccessDenied unless the user may do an operation, with other objects in the policy's order."""
        request = self.request(operation, entity, *objects)
        self.snapshot.vocabulary.check(request)
        decision = self.snapshot.opened().engine.decide(request)
        if not decision.allowed:
            raise AccessDenied(request, decision)

    def request(self, operation: str, entity: Entity, *objects: Entity) -> Request:
        """The request that asks whether the user may do an operation."""
        rule = self.program.rules.get((entity.type, operation))
        slots = [slot.name for slot in rule.withs] if rule is not None else []
        with_ = dict(zip(slots, objects, strict=False))
        return Request(user=self.user, action=operation, resource=entity, with_=with_)

    def need_rows(self, table: str, verb: str, entity: Entity) -> None:
        """Raise AccessDenied unless the user may grant or revoke rows of a table on an entity."""
        operation = self.guarded.authority.operation(table, "add" if verb == "grant" else "remove", entity.type)
        if operation is None:
            raise UsageError(f"nothing can be granted on a {entity.type}")
        self.need(operation, entity)

    def listed(self, entities: Iterable[Entity], operation: str) -> list[Entity]:
        """The objects that the user sees."""
        found = sorted(entities, key=str)
        answers = self.snapshot.allowed([self.request(operation, entity) for entity in found])
        return [entity for entity, seen in zip(found, answers, strict=True) if seen]

    def loading(self, type_: str) -> str:
        """The operation that loads an object of a type."""
        return next(name for name in _LOADING if (type_, name) in self.program.rules)

    # --- what there is ---

    def all(self, type_: str, path: Sequence[str] = ()) -> Iterator[Entity]:
        """The objects of a type, or only the objects in `path` if it is given."""
        inside = "".join(f"{name}/" for name in path)
        known: Iterable[Entity]
        if self.program.entities[type_].principal == "user":
            rows = self.snapshot.tables["members"]
            known = {_in(Entity.parse(row["of"]), type_, row["user"]) for row in rows}
        else:
            named = self.snapshot.named.get(type_, frozenset())
            known = named.union(entity for entity in self.created.audits if entity.type == type_)
        yield from (entity for entity in known if entity.id.startswith(inside))

    def exists(self, entity: Entity) -> bool:
        """Return whether an object was created, or rows name it or an object in it."""
        if self.program.entities[entity.type].principal == "user":
            return entity in self.all(entity.type)
        return entity in self.created.audits or entity in self.snapshot.named.get(entity.type, ())

    def existing(self, entity: Entity, kind: str | None = None) -> Entity:
        """The entity itself; raises Missing if it does not exist. `kind`: what the error calls it."""
        if not self.exists(entity):
            raise Missing(kind or entity.type, f"{entity.type} {last_of(entity)} does not exist")
        return entity

    def check_new(self, entity: Entity) -> None:
        """Raise Exists for an entity that exists."""
        if self.exists(entity):
            raise Exists(entity.type, f"{entity.type} {last_of(entity)} exists already")

    def rows(self, table: str, **cells: str) -> list[Mapping[str, str]]:
        """The rows of a table that have some cells."""
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
        depth = self.program.depth(type_)
        names = [name] if depth == 2 else name.split(".")
        if len(names) != depth - 1:
            raise UsageError(f"`{name}` is no full name of a {type_}")
        return Entity(type_, "/".join(encode_name(part) for part in (metalake, *names)))

    def in_metalake(self, entity: Entity) -> dict[str, str]:
        """An object as it is named in its metalake: the reverse of `secured`."""
        return {"fullName": ".".join(entity.decoded_names[1:] or entity.decoded_names), "type": entity.type}

    def described(self, entity: Entity) -> dict[str, Any]:
        """An object as it is answered."""
        name = last_of(entity)
        found: dict[str, Any] = {**self.created.documents.get(entity, {}), "name": name}
        match self.program.entities[entity.type].principal:
            case "user" | "group" as kind:
                rows = self.rows("assignments", principal=f"{kind}:{name}")
                held = {row["role"] for row in rows}
                found["roles"] = sorted(last_of(role) for role in self.all("role", entity.names[:1]) if role.id in held)
            case kind:
                found["properties"] = found.get("properties") or {}
                if kind == "role":
                    found["securableObjects"] = self.securable(str(entity))
        return {**found, "audit": dict(self.created.audits.get(entity, {}))}

    def securable(self, role: str) -> list[dict[str, Any]]:
        """The objects on which a role holds privileges, with these."""
        found: dict[str, list[dict[str, str]]] = {}
        for row in self.rows("grants", grantee=role):
            privilege = {"name": row["privilege"].lower(), "condition": row["effect"]}
            found.setdefault(row["entity"], []).append(privilege)
        return [
            {**self.in_metalake(Entity.parse(key)), "privileges": privileges}
            for key, privileges in sorted(found.items())
        ]


def without_secrets(value: Any, *, secret: bool = False) -> Any:
    """JSON with HIDDEN in the place of texts whose name says that they are secrets."""
    if isinstance(value, Mapping):
        return {
            name: without_secrets(part, secret=secret or bool(_SECRET.search(name))) for name, part in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(part, secret=secret) for part in value]
    return HIDDEN if secret and isinstance(value, str) else value


def last_of(entity: Entity) -> str:
    """The last name of an entity, decoded."""
    return entity.decoded_names[-1]


def _in(container: Entity, type_: str, name: str) -> Entity:
    return Entity(type_, f"{container.id}/{encode_name(name)}")
