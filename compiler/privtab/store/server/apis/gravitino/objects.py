"""What there is, and who may see it: the objects that a store's journal and rows name, for one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from privtab.errors import AccessDenied, StoreConflict, UsageError
from privtab.names import decode_name, encode_name
from privtab.request import Entity, Request
from privtab.store.guarded import GuardedStore
from privtab.store.server.calls import Call, NotFound
from privtab.store.view import Snapshot

CREATING = ("create", "register", "add")
_LOADING = ("load", "get")


class Exists(StoreConflict):
    """What is to be created exists already."""


class CreatedObjects:
    """The objects that were created, by whom and when, as the journal tells."""

    def __init__(self, guarded: GuardedStore) -> None:
        self.guarded = guarded
        self._lock = Lock()
        self._read = 0
        self._created: dict[Entity, Mapping[str, str]] = {}

    def now(self) -> dict[Entity, Mapping[str, str]]:
        """The objects that were created and not deleted since, each with its `audit`."""
        with self._lock:
            for entry in self.guarded.store.log(self._read):
                self._read = entry.number
                resource = entry.request.get("resource")
                if resource is None:
                    continue
                entity = Entity(resource["type"], resource["id"])
                if entry.action in CREATING:
                    self._created[entity] = {"creator": entry.actor, "createTime": entry.at}
                elif entry.action == self.guarded.authority.deleting(entity.type):
                    inside = f"{entity.id}/"
                    top = entity.type in ("metalake", "catalog", "schema")
                    gone = [e for e in self._created if e == entity or (top and e.id.startswith(inside))]
                    for each in gone:
                        del self._created[each]
            return dict(self._created)


class Objects:
    """What one request is about: its caller, and what there is for them."""

    def __init__(self, guarded: GuardedStore, created: CreatedObjects, call: Call) -> None:
        self.guarded = guarded
        self.program = guarded.program
        self.call = call
        self.user = call.user
        self.created = created.now()
        self.snapshot: Snapshot = guarded.view.now()

    # --- decisions ---

    def need(self, operation: str, entity: Entity) -> None:
        """Raise AccessDenied unless the user may do an operation."""
        request = Request(user=self.user, action=operation, resource=entity)
        self.snapshot.vocabulary.check(request)
        decision = self.snapshot.opened().engine.decide(request)
        if not decision.allowed:
            raise AccessDenied(request, decision)

    def need_rows(self, table: str, verb: str, entity: Entity) -> None:
        """Raise AccessDenied unless the user may grant or revoke rows of a table on an entity."""
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
        """The operation that loads an object of a type."""
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
        """Whether an object was created, or rows name it."""
        return entity in self.all(entity.type)

    def existing(self, entity: Entity) -> Entity:
        """The entity itself; raises NotFound if it does not exist."""
        if not self.exists(entity):
            raise NotFound(f"{entity.type} {last_of(entity)} does not exist")
        return entity

    def check_new(self, entity: Entity) -> None:
        """Raise Exists for an entity that exists."""
        if self.exists(entity):
            raise Exists(f"{entity.type} {last_of(entity)} exists already")

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
        names = [name] if self.program.depth(type_) == 2 else name.split(".")
        return Entity(type_, "/".join(encode_name(part) for part in (metalake, *names)))

    def described(self, entity: Entity) -> dict[str, Any]:
        """An object as it is answered."""
        name = last_of(entity)
        found: dict[str, Any] = {"name": name, "audit": dict(self.created.get(entity, {}))}
        match entity.type:
            case "user" | "group":
                rows = self.rows("assignments", principal=f"{entity.type}:{name}")
                roles = {last_of(role) for role in self.all("role", entity.names[:1])}
                found["roles"] = sorted({row["role"] for row in rows} & roles)
            case "role":
                found |= {"properties": {}, "securableObjects": self.securable(f"role:{name}", entity.names[0])}
        return found

    def securable(self, role: str, metalake: str) -> list[dict[str, Any]]:
        """The objects of a metalake on which a role holds privileges, with these."""
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


def _in(container: Entity, type_: str, name: str) -> Entity:
    return Entity(type_, f"{container.id}/{encode_name(name)}")


def last_of(entity: Entity) -> str:
    """The last name of an entity, decoded."""
    return decode_name(entity.names[-1])
