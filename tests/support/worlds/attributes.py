"""Attributes of users, entities and requests: of every type, from requests, from the state and from both, often absent."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from privtab.base.attributes import Attribute, GivenAttributes
from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.nodes import AttributeRow, State
from worlds import nested
from worlds.names import entity, names

if TYPE_CHECKING:
    from worlds.policies import Draft

DECLARED = """\
attributes:
  user:
    team: {text: true, from: [state, request]}
    rank: {integer: [0, 3], from: request}
    badges: {set: [red, blue, green]}
    trained: bool
  entity:
    team: {text: true, from: request}
    level: {integer: [0, 3]}
    Level: {integer: [0, 3], from: [state, request]}
    color: {enum: [red, blue, gray], from: [state, request]}
    hidden: {bool: true, from: state}
    tags: {set: [red, blue], from: [request, state]}
  request:
    mfa: bool
    hour: {integer: [0, 3]}
    team: text
"""
TEXTS = ("one", "two words", "3")
DEFAULTS = {
    "mfa: bool": "mfa: {bool: true, default: true}",
    "hour: {integer: [0, 3]}": "hour: {integer: [0, 3], default: 2}",
}
DEFAULTS["    team: text"] = "    team: {text: true, default: one}"


def declared(rnd: random.Random) -> str:
    """The attributes of a policy; some of the request have a default."""
    text = DECLARED
    for plain, with_default in DEFAULTS.items():
        text = text.replace(plain, with_default) if rnd.random() < 0.3 else text
    return text.rstrip()


def comparison(draft: Draft, type_: str, objects: Sequence[str]) -> str | None:
    """A term that compares attributes, in some places; `objects`: the names of `with` objects."""
    rnd = draft.generator("attributes")
    if rnd is None or rnd.random() < 0.7:
        return None
    on, other = rnd.choice(["entity", *objects]), rnd.choice(["entity", *objects])
    near = rnd.choice([on, *(above for above in draft.chain(type_) if above != "user")])
    [near] = nested.levels(draft.generator("nested"), [near]) if near != on else [near]
    order = rnd.choice(["=", "<", "<=", ">", ">="])
    return rnd.choice(
        [
            "request.mfa",
            "user.trained",
            f"{near}.hidden = false",
            f"{near}.hidden = {other}.hidden",
            f"user.team = {on}.team",
            f"{on}.team = {other}.team",
            "user.team = request.team",
            f'{on}.team in {{one, "two words"}}',
            f"{near}.color in {{red, gray}}",
            f"{on}.color in user.badges",
            '"red" in user.badges',
            f"blue in {near}.tags",
            f"{near}.color in {on}.tags",
            f"{near}.color = {other}.color",
            f"user.rank {order} {near}.level",
            f"{near}.level {order} {rnd.randint(0, 3)}",
            f"{near}.Level {order} {on}.level",
            f"request.hour {order} {rnd.randint(0, 3)}",
        ]
    )


def request_attributes(
    program: Program, rnd: random.Random, resource: Entity, with_: Mapping[str, Entity]
) -> GivenAttributes:
    """The attributes that a request gives; an entity that is named twice has the same values."""
    declared = program.attributes.from_origin("request")
    by_entity: dict[Entity, dict[str, object]] = {}
    for requested in (resource, *with_.values()):
        by_entity.setdefault(requested, _values(declared.declared_on(requested.type), rnd))
    return GivenAttributes(
        user=_values(declared.user, rnd),
        entity=by_entity[resource],
        request=_values(declared.request, rnd),
        with_={slot: by_entity[of_slot] for slot, of_slot in with_.items()},
    )


def with_values(program: Program, state: State, seed: int) -> State:
    """The state with values of the attributes that it gives."""
    rnd = random.Random(f"attributes of a state {seed}")
    declared = program.attributes.from_origin("state")
    rows = [
        AttributeRow(user=user, attribute=name, value=text)
        for user in names(program).users
        for name, text in _texts(declared.user, rnd)
    ]
    found = {entity(program, type_, rnd) for type_ in program.entities for _ in range(3)}
    rows += [
        AttributeRow(entity=e, attribute=name, value=text)
        for e in sorted(found, key=str)
        for name, text in _texts(declared.declared_on(e.type), rnd)
    ]
    rnd.shuffle(rows)
    return replace(state, attributes=tuple(rows))


def _texts(declared: Mapping[str, Attribute], rnd: random.Random) -> Iterator[tuple[str, str]]:
    for name, value in _values(declared, rnd).items():
        for item in value if isinstance(value, list) else [value]:
            yield name, {True: "true", False: "false"}[item] if isinstance(item, bool) else str(item)


def _values(declared: Mapping[str, Attribute], rnd: random.Random) -> dict[str, object]:
    return {name: _value(attribute, rnd) for name, attribute in declared.items() if rnd.random() < 0.75}


def _value(attribute: Attribute, rnd: random.Random) -> object:
    match attribute.type:
        case "text":
            return rnd.choice(TEXTS)
        case "bool":
            return rnd.random() < 0.6
        case "integer":
            return rnd.randint(attribute.lowest, attribute.highest)
        case "enum":
            return rnd.choice(attribute.values)
        case "set":
            return [value for value in attribute.values if rnd.random() < 0.5]
