"""Attributes of entities that columns have: the values among which no condition of an operation tells a difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import Any

from privtab.base.attributes import Attribute, Scalar
from privtab.base.errors import UnsupportedError
from privtab.base.paths import base_type
from privtab.base.request import Request
from privtab.engines.conditions import RESOURCE, Comparison, ConditionReader, Operand
from privtab.engines.rows import RowEngine
from privtab.filters.concern import Concern
from privtab.filters.expression import Value

MOST_CHOICES = 512
"""The most combinations of values of attributes."""


def choices(
    reader: ConditionReader, request: Request, concern: Concern, comparisons: Iterable[Comparison]
) -> Iterator[tuple[tuple[Value, ...], dict[str, Scalar]]]:
    """Every combination of values of the attributes of a request's resource that its operation compares, with one that stands for it.

    Raises UnsupportedError for comparisons of two of them.
    """
    own = request.resource.type
    declared = reader.attributes.from_origin("request").declared_on(own)
    compared: dict[str, set[Any]] = {}
    for comparison in comparisons:
        entities = (operand for operand in comparison.operands if operand.of == "entity" and not operand.slot)
        mine = [o for o in entities if base_type(o.type) == own and o.attribute in declared]
        for operand in mine:
            compared.setdefault(operand.attribute, set()).update(_others(request, concern, comparison, operand))
        if len(mine) == 2:
            raise UnsupportedError(
                f"`{own}` compares its attributes `{mine[0].attribute}` and `{mine[1].attribute}` with each other"
            )
    slots = (slot for slot, entity in request.with_.items() if entity.type == own)
    if not compared.keys().isdisjoint(name for slot in slots for name in request.attributes.of_slot(slot)):
        raise UnsupportedError(f"the request gives attributes of another `{own}`, which columns give, too")
    parts = [list(_values(name, declared[name], constants)) for name, constants in sorted(compared.items())]
    if prod(map(len, parts)) > MOST_CHOICES:
        raise UnsupportedError(
            f"attributes of `{own}` are compared with too many values: more than {MOST_CHOICES} combinations"
        )
    for combination in product(*parts):
        examples = {value.attribute: example for value, example in combination if example is not None}
        yield tuple(value for value, _ in combination), examples


def comparisons(engine: RowEngine, request: Request) -> tuple[Comparison, ...]:
    """The comparisons of attributes in the condition of a request's operation, for paths of any length."""
    reader = engine.reader
    if not reader.attributes:
        return ()
    flags, slots = engine.shapes[request.resource.type, request.action]
    types = {RESOURCE: request.resource.type, **request.types(slots)}
    nested = {slot: type_ for slot, type_ in types.items() if type_ in reader.nested}
    found: dict[Comparison, None] = {}
    for counts in product(*(range(1, reader.shapes[type_].bound + 1) for type_ in nested.values())):
        plan = engine.plan_of(
            types[RESOURCE],
            request.action,
            request.flags & flags,
            request.types(slots),
            named=True,
            levels=dict(zip(nested, counts, strict=True)),
            attributes=True,
        )
        found |= {comparison: None for _, comparison in plan.comparisons}
    return tuple(found)


def _others(request: Request, concern: Concern, comparison: Comparison, operand: Operand) -> Iterator[Any]:
    """The values that an attribute is compared with, whichever entity the request names."""
    if not isinstance(comparison.right, Operand):
        yield from comparison.right
        return
    other = comparison.right if operand is comparison.left else comparison.left
    name, given = other.attribute, request.attributes
    found: list[Any] = []
    match other.of:
        case "request":
            found = [given.request.get(name, other.default)]
        case "user":
            found = [given.user.get(name), concern.of_user.get(name)]
        case _:
            found = [*(values.get(name) for values in given.with_.values()), *concern.of_entities.get(name, ())]
    for value in found:
        yield from value if isinstance(value, list | tuple) else () if value is None else (value,)


def _values(name: str, attribute: Attribute, constants: set[Any]) -> Iterator[tuple[Value, Scalar | None]]:
    """The values of an attribute that constants do not tell apart, each set with one of them; None for no value."""
    yield Value(name, absent=True), None
    match attribute.type:
        case "bool":
            yield from ((Value(name, (value,)), value) for value in (False, True))
        case "enum":
            told = [value for value in attribute.values if value in constants]
            rest = tuple(value for value in attribute.values if value not in constants)
            yield from ((Value(name, (value,)), value) for value in told)
            if rest:
                yield Value(name, rest), rest[0]
        case "integer":
            lowest = attribute.lowest
            for value in sorted(value for value in constants if attribute.fits(value)):
                if lowest < value:
                    yield Value(name, between=(lowest, int(value) - 1)), lowest
                yield Value(name, (int(value),)), int(value)
                lowest = int(value) + 1
            if lowest <= attribute.highest:
                yield Value(name, between=(lowest, attribute.highest)), lowest
        case "text":
            yield from ((Value(name, (value,)), value) for value in sorted(constants))
            other = next(text for number in range(len(constants) + 1) if (text := f"other{number}") not in constants)
            yield Value(name, tuple(sorted(constants)), other=True), other
        case _:
            # Columns have no sets: entities have no value of them.
            return
