"""The entities that a state names, with everything that contains them, and its users; and names that it does not have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from copy import copy

from privtab.base import Entity, Locations, Request, last_name, nearest
from privtab.ir import Program, vocabulary
from privtab.state import GROUP_PREFIX, State, locations

PRINCIPALS = (("assignments", "principal"), ("grants", "grantee"), ("owners", "owner"))
"""The columns that hold principals, as `user:alice`."""
ENTITIES = (("grants", "entity"), ("owners", "entity"), ("members", "of"), ("assignments", "scope"))
"""Columns that hold entities."""
USERS = (("members", "user"), ("memberships", "user"), ("service_admins", "user"), ("attributes", "user"))
"""The columns that hold the names of users."""
_COLUMNS = {"user": USERS, "group": (("memberships", "group"),), "role": (("assignments", "role"),)}
"""The columns that hold the names of principals alone, by their kind."""


def rows_entities(state: State, types: Collection[str] | None = None) -> Iterator[Entity]:
    """Every entity that a row of the state names, once; only entities of some types where types are given."""
    for text in state.named_entities():
        type_, _, path = text.partition(":")
        if types is None or type_ in types:
            yield Entity(type_, path)


def named_principals(state: State) -> set[str]:
    """Every principal, as `user:alice`, that holds a role, has a grant or a denial, or owns something."""
    return state.distinct(*PRINCIPALS)


class Universe:
    """The entities that are taken to exist: named entities, their ancestors, and the `single` entities of both."""

    def __init__(self, program: Program, entities: Iterable[Entity] = (), where: Locations | None = None) -> None:
        """`where`: the places of entities with flat ids; entities without a place are left out, since nothing is allowed on them."""
        self.where = where
        self._shapes = vocabulary(program).shapes
        self._chains = vocabulary(program).chains
        self._singles: dict[str, list[str]] = {
            type_: [single.name for single in program.entities.values() if single.single and single.parent == type_]
            for type_ in program.entities
        }
        self.by_type: dict[str, dict[str, Entity]] = {type_: {} for type_ in program.entities}
        self._sorted: dict[str, list[str]] = {}
        for entity in entities:
            self.add(entity)

    def copy(self, where: Locations) -> Universe:
        """A copy that can grow independently; `where`: where the entities of the copy lie."""
        duplicate = copy(self)
        duplicate.where = where
        duplicate.by_type = {type_: dict(entities) for type_, entities in self.by_type.items()}
        duplicate._sorted = {}  # noqa: SLF001  (its own)
        return duplicate

    def __contains__(self, entity: Entity) -> bool:
        return entity.id in self.by_type[entity.type]

    def __iter__(self) -> Iterator[Entity]:
        """All entities, by type in the order of the file, then by path."""
        for type_, entities in self.by_type.items():
            yield from (entities[path] for path in self.paths(type_))

    def __len__(self) -> int:
        return sum(map(len, self.by_type.values()))

    def paths(self, type_: str) -> list[str]:
        """The paths of the entities of a type, sorted."""
        if len(self._sorted.get(type_, ())) != len(self.by_type[type_]):  # entities are added alone
            self._sorted[type_] = sorted(self.by_type[type_])
        return self._sorted.get(type_, [])

    def add(self, entity: Entity) -> list[Entity]:
        """Add an entity, its ancestors and their `single` entities; returns the new entities."""
        if self._shapes[entity.type].flat is not None:
            keys = None if self.where is None else self.where.find(entity)
            return self._add_keys(keys or ())
        if self._shapes[entity.type].nested is not None:
            return self._add_keys(self._shapes[entity.type].keys(entity.id))
        path = entity.id
        count = path.count("/") + 1 if path else 0
        missing: list[tuple[str, str]] = []
        for type_, depth in reversed(self._chains[entity.type]):
            while count > depth:
                path, _, _ = path.rpartition("/")
                count -= 1
            if path in self.by_type[type_]:
                break  # so everything that contains it is there as well
            missing.append((type_, path))
        new: list[Entity] = []
        for type_, path in reversed(missing):
            self._insert(Entity(type_, path), new)
        return new

    def _add_keys(self, keys: Iterable[str]) -> list[Entity]:
        new: list[Entity] = []
        for key in keys:
            self._insert(Entity.parse(key), new)
        return new

    def _insert(self, entity: Entity, new: list[Entity]) -> None:
        if entity in self:
            return
        self.by_type[entity.type][entity.id] = entity
        new.append(entity)
        for single in self._singles[entity.type]:
            self._insert(Entity(single, entity.id), new)


def universe(program: Program, state: State, types: Collection[str] | None = None) -> Universe:
    """The entities that exist according to a state; complete for the given types only, where these are given."""
    if types is not None:
        base_types = {base_type(program, type_) for type_ in types}
        types = {type_ for type_ in program.entities if not base_types.isdisjoint(program.chain(type_))}
    return Universe(program, rows_entities(state, types), locations(program, state))


def base_type(program: Program, type_: str) -> str:
    """The type itself, or for a `single` type the nearest type above it that is not `single`: its entities exist wherever its parents do."""
    while program.entities[type_].single and (parent := program.entities[type_].parent) is not None:
        type_ = parent
    return type_


def names(program: Program, state: State) -> frozenset[str]:
    """Every name that some row uses: of entities, as written in paths, and of principals."""
    found = {name for entity in rows_entities(state) for name in entity.names} | users(program, state)
    found |= state.distinct(("assignments", "role"), ("memberships", "group"))
    return frozenset(found | {principal.partition(":")[2] for principal in named_principals(state)})


def users(program: Program, state: State) -> frozenset[str]:
    """Every user that some row of the state names."""
    return named(program, state, "user")


def named(program: Program, state: State, kind: str) -> frozenset[str]:
    """Every user, every group or every role that a row names, including roles that the policy declares."""
    found = {principal.partition(":")[2] for principal in named_principals(state) if principal.startswith(f"{kind}:")}
    found |= {name for name in state.distinct(*_COLUMNS[kind]) if kind != "user" or not name.startswith(GROUP_PREFIX)}
    if kind == "role":
        found |= set(program.roles)
    types = {entity_type.name for entity_type in program.entities.values() if entity_type.principal == kind}
    if types:
        found |= {last_name(entity.id) for entity in rows_entities(state, types) if entity.names}
    return frozenset(found)


def notes(
    program: Program, state: State, principals: Iterable[str] = (), entities: Iterable[Entity] = ()
) -> tuple[str, ...]:
    """A note for each principal (`user:alice`) and each entity that no row names, with the closest name that occurs."""
    found: list[str] = []
    known: dict[str, frozenset[str]] = {}
    for principal in dict.fromkeys(principals):
        kind, _, name = principal.partition(":")
        if _is_named(state, kind, name):
            continue
        if kind not in known:
            known[kind] = named(program, state, kind)
        if name not in known[kind]:
            closest = nearest(name, known[kind], cutoff=0.6)
            found.append(
                f"`{principal}` is not in the state" + (f"; did you mean `{kind}:{closest}`?" if closest else "")
            )
    for entity in dict.fromkeys(entities):
        found += _entity_notes(program, state, entity)
    return tuple(found)


def asked_entities(program: Program, request: Request) -> Iterator[Entity]:
    """The entities that must exist for a request to make sense; for one that is created, its parent."""
    rule = program.rules.get((request.resource.type, request.action))
    slots = [] if rule is None else [with_slot.name for with_slot in rule.withs]
    known = vocabulary(program)
    if known.complete(request.resource) and not (rule is not None and rule.creates):
        yield request.resource
    elif known.lies_in_state(request.resource.type):
        if request.resource.type in known.flat:
            yield Entity.parse(request.resource.id.removesuffix("/"))
        else:
            *_, (above, depth), _ = known.shapes[request.resource.type].written.chain
            yield Entity(above, "/".join(request.resource.names[:depth]))
    elif known.nested:
        keys = known.keys(Entity(request.resource.type, request.resource.id.rpartition("/")[0] + "/"))
        yield from map(Entity.parse, keys[-1:])
    else:
        parent = program.entities[request.resource.type].parent
        if parent is not None:
            yield Entity(parent, "/".join(request.resource.names[: program.depth(parent)]))
    yield from (request.with_[slot] for slot in slots if slot in request.with_)


def _is_named(state: State, kind: str, name: str) -> bool:
    """Return whether a row clearly names a principal: look this up before all names are collected."""
    return any(
        state.column(*column).where([text])
        for columns, text in ((_COLUMNS[kind], name), (PRINCIPALS, f"{kind}:{name}"))
        for column in columns
    )


def _entity_notes(program: Program, state: State, entity: Entity) -> list[str]:
    """A note if the state names neither the entity nor anything inside it."""
    if vocabulary(program).lies_in_state(entity.type):
        return []  # an entity without a place is reported as such
    if any(state.column(*column).where([str(entity)]) for column in ENTITIES):
        return []  # looked up before all names are gone through
    kind = program.entities[entity.type].principal
    known = () if kind is None else named(program, state, kind)
    if {entity.id, last_name(entity.id)}.intersection(known):
        return []
    base = base_type(program, entity.type)
    types_inside = {type_ for type_ in program.entities if base in program.chain(type_)}
    depth = program.depth(base)
    texts = (text.partition(":") for text in state.named_entities())
    paths = {path if type_ == base else _prefix(path, depth) for type_, _, path in texts if type_ in types_inside}
    if entity.id in paths:
        return []
    closest = nearest(entity.id, paths, cutoff=0.8)
    if closest is not None:
        return [f"`{entity}` is not in the state; did you mean `{entity.type}:{closest}`?"]
    return [f"`{entity}` is not in the state"]


def _prefix(path: str, depth: int) -> str:
    return "/".join(path.split("/")[:depth])
