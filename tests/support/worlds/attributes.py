"""Attributes of users, entities and requests: of every type, absent in a quarter of the requests."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from privtab.attributes import Attribute, GivenAttributes
from privtab.ir.nodes import Program
from privtab.request import Entity

if TYPE_CHECKING:
    from worlds.policies import Draft

DECLARED = """\
attributes:
  user:
    team: {text: true, from: request}
    rank: {integer: [0, 3], from: request}
    badges: {set: [red, blue, green], from: request}
  entity:
    team: {text: true, from: request}
    level: {integer: [0, 3], from: request}
    color: {enum: [red, blue, gray], from: request}
    hidden: {bool: true, from: request}
  request:
    mfa: bool
    hour: {integer: [0, 3]}
    team: text
"""
TEXTS = ("one", "two words", "3")


def comparison(draft: Draft, objects: Sequence[str]) -> str | None:
    """A term that compares attributes, in some places; `objects`: the names of `with` objects."""
    rnd = draft.generator("attributes")
    if rnd is None or rnd.random() < 0.7:
        return None
    on, other = rnd.choice(["entity", *objects]), rnd.choice(["entity", *objects])
    order = rnd.choice(["=", "<", "<=", ">", ">="])
    return rnd.choice(
        [
            "request.mfa",
            f"{on}.hidden = false",
            f"{on}.hidden = {other}.hidden",
            f"user.team = {on}.team",
            f"{on}.team = {other}.team",
            "user.team = request.team",
            f'{on}.team in {{one, "two words"}}',
            f"{on}.color in {{red, gray}}",
            f"{on}.color in user.badges",
            f"{on}.color = {other}.color",
            f"user.rank {order} {on}.level",
            f"request.hour {order} {rnd.randint(0, 3)}",
        ]
    )


def given(program: Program, rnd: random.Random, resource: Entity, with_: Mapping[str, Entity]) -> GivenAttributes:
    """The attributes that a request gives; an entity that is named twice has the same values."""
    declared = program.attributes
    by_entity: dict[Entity, dict[str, object]] = {}
    for entity in (resource, *with_.values()):
        by_entity.setdefault(entity, _values(declared.declared_on(entity.type), rnd))
    return GivenAttributes(
        user=_values(declared.user, rnd),
        entity=by_entity[resource],
        request=_values(declared.request, rnd),
        with_={slot: by_entity[entity] for slot, entity in with_.items()},
    )


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
