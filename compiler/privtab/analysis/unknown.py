"""Names in a question that no row of the state uses: most likely typing errors, which the answer would not reveal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from privtab.analysis.universe import PRINCIPALS, USERS, base_type, named_principals, rows_entities, users
from privtab.hints import nearest
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.names import decode_name
from privtab.request import Entity, Request
from privtab.state.nodes import State


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
            known[kind] = users(program, state) if kind == "user" else named(program, state, kind)
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
    """Whether a row clearly names a principal: look this up before all names are collected."""
    own_columns = {"user": USERS, "group": (("memberships", "group"),), "role": (("assignments", "role"),)}[kind]
    return any(
        state.column(*column).where([text])
        for columns, text in ((own_columns, name), (PRINCIPALS, f"{kind}:{name}"))
        for column in columns
    )


def named(program: Program, state: State, kind: str) -> frozenset[str]:
    """Every group, or every role, that a row names, including roles that the policy declares."""
    found = {principal.partition(":")[2] for principal in named_principals(state) if principal.startswith(f"{kind}:")}
    if kind == "group":
        found |= state.distinct(("memberships", "group"))
    else:
        found |= state.distinct(("assignments", "role")) | set(program.roles)
    types = {entity_type.name for entity_type in program.entities.values() if entity_type.principal == kind}
    if types:
        found |= {decode_name(entity.names[-1]) for entity in rows_entities(state, types) if entity.names}
    return frozenset(found)


def _entity_notes(program: Program, state: State, entity: Entity) -> list[str]:
    """A note if the state names neither the entity nor anything inside it."""
    if vocabulary(program).lies_in_state(entity.type):
        return []  # an entity without a place is reported as such
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
