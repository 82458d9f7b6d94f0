"""Which operation of a policy authorises a change of rows, for callers who must not choose a weaker one themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, product
from typing import Literal, TypeAlias

from privtab.errors import UsageError
from privtab.hints import hint
from privtab.ir.nodes import OwnerKind, Program
from privtab.locations import Locations
from privtab.names import encode_name, last_name
from privtab.request import Entity
from privtab.state.raw import COLUMNS

Verb: TypeAlias = Literal["add", "remove"]
VERBS: tuple[Verb, ...] = ("add", "remove")
OPERATIONS: Mapping[tuple[str, Verb], tuple[str, ...]] = {
    ("grants", "add"): ("grant_privilege", "grant"),
    ("grants", "remove"): ("revoke_privilege", "revoke"),
    ("owners", "add"): ("set_owner", "change_owner"),
    ("owners", "remove"): ("set_owner", "change_owner"),
    ("assignments", "add"): ("grant_role", "grant", "assign"),
    ("assignments", "remove"): ("revoke_role", "revoke", "unassign"),
    ("memberships", "add"): ("add_member",),
    ("memberships", "remove"): ("remove_member",),
    ("members", "add"): ("add",),
    ("members", "remove"): ("remove",),
}
"""The default operations for rows to add and to remove: the first that the type of the object has."""
DELETING = ("drop", "delete", "remove", "deregister")
"""The default operations that delete an entity: the first that its type has."""
MOST_PLACES = 100
"""Entities in which a principal is sought that no row places."""
PRINCIPAL_OF: Mapping[str, tuple[str, OwnerKind]] = {
    "assignments": ("role", "role"),
    "memberships": ("group", "group"),
    "members": ("user", "user"),
}
"""The column that names the principal whose entity is the object of a row, and its kind."""


class Places:
    """Where a principal that is an entity may be: by the entities that a store names."""

    def __init__(self, program: Program, where: Locations, entities: Iterable[Entity]) -> None:
        self._kinds = program.entities
        self._where = where
        self._entities = tuple(entities)
        self._called: dict[str, list[Entity]] = {}
        """By its last name and its whole path, each entity that is a principal."""
        for entity in self._entities:
            if self._kinds[entity.type].principal is not None:
                for name in {last_name(entity.id), entity.id}:
                    self._called.setdefault(name, []).append(entity)

    def called(self, name: str) -> Sequence[Entity]:
        """The entities that are principals with a name."""
        return self._called.get(name, ())

    def possible(self, name: str, type_: str) -> Iterator[Entity]:
        """The entities that a principal may be whose entity is not named: one in each entity that can contain it."""
        paths = self._containers.get(self._kinds[type_].parent or "", ())
        for path in paths if len(paths) <= MOST_PLACES else ():
            yield Entity(type_, f"{path}/{encode_name(name)}" if path else encode_name(name))

    @cached_property
    def _containers(self) -> Mapping[str, set[str]]:
        """By type, the paths of the entities that can contain principals."""
        found: dict[str, set[str]] = {
            kind.parent: set()
            for kind in self._kinds.values()
            if kind.principal is not None and kind.parent is not None
        }
        for entity in self._entities:
            for key in self._where.find(entity) or ():
                type_, _, path = key.partition(":")
                if type_ in found:
                    found[type_].add(path)
        return found


class Authority:
    """The operation that authorises each kind of change, by the type of the object that the rows are about."""

    def __init__(self, program: Program, settings: Iterable[str] = ()) -> None:
        """`settings`: `TABLE=OPERATION`, `TABLE.add=…`, `TABLE.remove=…`, each replaces the default. Raises UsageError."""
        self.program = program
        chosen: dict[tuple[str, Verb], tuple[str, ...]] = {}
        for text in settings:
            for key, operation in self._read(text):
                chosen[key] = (*chosen.get(key, ()), operation)
        self._names = {**OPERATIONS, **chosen}
        self._set = frozenset(chosen)

    def operation(self, table: str, verb: Verb, type_: str) -> str | None:
        """The operation on an entity of this type that authorises the change; None if the policy has none."""
        found = self._first(self._names.get((table, verb), ()), type_)
        if found is None and verb == "remove" and (table, verb) not in self._set:
            # Who may add rows may remove them, where the policy does not tell them apart.
            found = self._first(self._names.get((table, "add"), ()), type_)
        return found

    def described(self, table: str, verb: Verb, type_: str) -> str:
        """Which operation authorises the change on entities of this type, or which ones the policy lacks."""
        if (operation := self.operation(table, verb, type_)) is not None:
            return f"`{operation}` authorises {table}.{verb}"
        names = self._names.get((table, verb), ())
        wanted = f"none of {', '.join(names)}" if names else "no operation that is known to do so"
        return f"for {table}.{verb}, the policy has {wanted} on `{type_}`"

    def deleting(self, type_: str) -> str | None:
        """The operation that deletes an entity of this type; None for one that exists with its parent."""
        return None if self.program.entities[type_].single else self._first(DELETING, type_)

    def to_json(self) -> dict[str, dict[str, dict[str, str]]]:
        """Table → `add`, `remove` → type → operation."""
        found: dict[str, dict[str, dict[str, str]]] = {}
        for table, verb, type_ in product(COLUMNS, VERBS, self.program.entities):
            operation = self.operation(table, verb, type_)
            if operation is not None and self._fits(table, type_):
                found.setdefault(table, {}).setdefault(verb, {})[type_] = operation
        return found

    def objects(self, table: str, row: Mapping[str, str], known: Places) -> Iterator[Entity]:
        """The entities that a row is about, of which a request must name one. `known`: entities that the store names.

        A role, a group or a user may be several entities, if its name occurs in several places. One that no other row names may be in any
        entity that can contain it.
        """
        key = row.get("entity") or row.get("scope")
        if key is not None:
            if key.partition(":")[0] in self.program.entities:
                yield Entity.parse(key)
            return
        if table not in PRINCIPAL_OF:
            return
        column, kind = PRINCIPAL_OF[table]
        name = row[column]
        types = [type_ for type_, entity in self.program.entities.items() if entity.principal == kind]
        if table == "members":
            container = Entity.parse(row["of"])
            own = [type_ for type_ in types if self.program.entities[type_].parent == container.type]
            yield from (Entity(type_, f"{container.id}/{encode_name(name)}") for type_ in own)
            return
        roots = [type_ for type_ in types if self.program.depth(type_) == 1]
        yield from (Entity(type_, encode_name(name)) for type_ in roots)
        inner = [type_ for type_ in types if type_ not in roots and type_ not in self.program.flat]
        named = [entity for entity in known.called(name) if entity.type in types and entity.type not in roots]
        yield from named or chain.from_iterable(known.possible(name, type_) for type_ in inner)

    def _first(self, names: Iterable[str], type_: str) -> str | None:
        return next((name for name in names if (type_, name) in self.program.rules), None)

    def _fits(self, table: str, type_: str) -> bool:
        """Whether rows of a table are about entities of this type."""
        principal = self.program.entities[type_].principal
        if table == "grants":
            return any(type_ in privilege.on for privilege in self.program.privileges.values())
        return (
            table not in PRINCIPAL_OF
            or principal == PRINCIPAL_OF[table][1]
            or (table == "assignments" and not principal)
        )

    def _read(self, text: str) -> Iterator[tuple[tuple[str, Verb], str]]:
        place, _, operation = text.partition("=")
        table, dot, verb = place.partition(".")
        tables = [name for name in COLUMNS if name != "service_admins"]
        if not operation or table not in tables or (dot and verb not in VERBS):
            raise UsageError(
                f"`--authorise {text}`: write TABLE=OPERATION, TABLE.add=OPERATION or TABLE.remove=OPERATION; "
                f"the tables are {', '.join(tables)}"
            )
        names = {name for _, name in self.program.rules}
        if operation not in names:
            raise UsageError(f"`--authorise {text}`: no type has the operation `{operation}`{hint(operation, names)}")
        for each in VERBS:
            if verb in ("", each):
                yield (table, each), operation
