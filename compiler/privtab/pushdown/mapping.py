"""Names of a state as names of a target and back: entities are objects, principals are accounts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from privtab.ir.nodes import Program
from privtab.names import decode_name, encode_name, last_name
from privtab.pushdown.document import MappingDocument
from privtab.pushdown.rights import Account, AccountKind, Object
from privtab.request import Entity
from privtab.state.principal_rows import entity_named

_WILDCARD_NAME = re.compile(r"(?:%2A|%3F)+")
_KINDS: dict[str, AccountKind] = {"user": "login", "group": "group", "role": "role"}


class NativeNames:
    """The names of a policy's entities and principals in a target."""

    def __init__(self, program: Program, document: MappingDocument, within: tuple[str, ...] = ()) -> None:
        """`within`: the names of what contains all objects of the target, as Inventory has them."""
        self._program = program
        self._document = document
        self._within = within

    def object(self, entity: Entity) -> Object | None:
        """The object that an entity of a mapped type is; None if it lies elsewhere."""
        kind = self._document.objects[entity.type]
        types = self._named_types(entity.type)
        names = []
        for type_, name in zip(types, map(native_name, entity.names), strict=True):
            if type_ not in self._document.within:
                names.append(name)
            elif name != self._document.within[type_]:
                return None
        surplus = len(names) - len(self._document.traits.kinds[kind])
        if surplus and tuple(names[:surplus]) != self._within:
            return None
        return Object(kind, tuple(names[surplus:]))

    def entity(self, type_: str, object_: Object) -> Entity:
        """The entity of a mapped type that an object is."""
        types = self._named_types(type_)
        fixed = self._document.within
        missing = sum(name not in fixed for name in types) - len(object_.names)
        names = iter((*(self._within if missing else ()), *object_.names))
        return Entity(type_, "/".join(encode_name(fixed[name] if name in fixed else next(names)) for name in types))

    def entities(self, objects: Iterable[Object]) -> dict[Entity, Object]:
        """The entities that the objects of a target are, those of containing types first."""
        by_kind: dict[str, list[Object]] = {}
        for object_ in sorted(objects):
            by_kind.setdefault(object_.kind, []).append(object_)
        types = sorted(self._document.objects, key=lambda type_: len(self._program.chain(type_)))
        return {
            self.entity(type_, object_): object_
            for type_ in types
            for object_ in by_kind.get(self._document.objects[type_], ())
        }

    def account(self, principal: str) -> Account:
        """The account that a principal (`user:…`, `group:…`, `role:…`) is."""
        kind, _, name = principal.partition(":")
        entity = entity_named(self._program, kind, name)
        # In the target, a name is of what contains all of its objects.
        name = native_name(name) if entity is None or not self._container(entity) else last_name(entity.id)
        native = self._document.names[kind].plain({"name": name})
        account_kind = _KINDS[kind]
        if account_kind == "group" and self._document.traits.groups_are_roles:
            account_kind = "role"
        has_host = account_kind == "login" and self._document.traits.login_hosts
        return Account(account_kind, native, self._document.host if has_host else "")

    def elsewhere(self, principal: str) -> bool:
        """Whether a principal is a role or a group of what the target does not have."""
        entity = entity_named(self._program, *principal.split(":", 1))
        around = {} if entity is None else self._container(entity)
        return any(name != self._document.within[type_] for type_, name in around.items())

    def _container(self, entity: Entity) -> dict[str, str]:
        """The names of the entities that contain a principal, by type, of those that contain all objects of the target."""
        names = zip(self._named_types(entity.type), map(native_name, entity.names), strict=False)
        return {type_: name for type_, name in names if type_ in self._document.within}

    def path(self, entity: Entity) -> tuple[Entity, ...]:
        """The entities of mapped types on the path of an entity, from the outermost down to itself."""
        return tuple(
            Entity(type_, "/".join(entity.names[: len(self._named_types(type_))]))
            for type_ in self._program.chain(entity.type)
            if type_ in self._document.objects
        )

    def _named_types(self, type_: str) -> tuple[str, ...]:
        """The types on a path that have a name of their own."""
        return tuple(name for name in self._program.chain(type_) if not self._program.entities[name].single)


def native_name(name: str) -> str:
    """A name of a path or of a principal as the target has it.

    >>> native_name("a%2Fb"), native_name("%2A")
    ('a/b', '*')
    """
    if _WILDCARD_NAME.fullmatch(name):
        return name.replace("%2A", "*").replace("%3F", "?")
    return decode_name(name)
