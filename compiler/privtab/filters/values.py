"""Attributes of entities that columns have: the values among which no condition of an operation tells a difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from privtab.attributes import Attribute, Scalar
from privtab.engines.attributes import Comparison, Operand
from privtab.engines.rows import RowEngine
from privtab.errors import UnsupportedError
from privtab.filters.expression import Value
from privtab.paths import base_type
from privtab.request import Entity, Request

MOST_CHOICES = 512
"""The most combinations of values of attributes."""


def choices(
    engine: RowEngine, request: Request, examples: Iterable[Entity]
) -> Iterator[tuple[tuple[Value, ...], dict[str, Scalar]]]:
    """Every combination of values of the attributes of a request's resource that its operation compares, with one that stands for it.

    Raises UnsupportedError for comparisons of two of them.
    """
    own = request.resource.type
    declared = engine.reader.attributes.from_origin("request").declared_on(own)
    compared: dict[str, set[Any]] = {}
    for comparison in _comparisons(engine, request, examples):
        mine = [operand for operand in comparison.operands if _is_own(operand, own) and operand.attribute in declared]
        for operand in mine:
            compared.setdefault(operand.attribute, set()).update(_others(engine, request, comparison, operand))
        if len(mine) == 2:
            raise UnsupportedError(
                f"`{own}` compares its attributes `{mine[0].attribute}` and `{mine[1].attribute}` with each other"
            )
    given = {
        name
        for slot, entity in request.with_.items()
        if entity.type == own
        for name in request.attributes.of_slot(slot)
    }
    if not given.isdisjoint(compared):
        raise UnsupportedError(f"the request gives attributes of another `{own}`, which columns give, too")
    parts = [list(_values(name, declared[name], constants)) for name, constants in sorted(compared.items())]
    if prod(map(len, parts)) > MOST_CHOICES:
        raise UnsupportedError(
            f"attributes of `{own}` are compared with too many values: more than {MOST_CHOICES} combinations"
        )
    for combination in product(*parts):
        yield (
            tuple(value for value, _ in combination),
            {value.attribute: example for value, example in combination if example is not None},
        )


def _is_own(operand: Operand, type_: str) -> bool:
    return operand.of == "entity" and not operand.slot and base_type(operand.type) == type_


def _comparisons(engine: RowEngine, request: Request, examples: Iterable[Entity]) -> Iterable[Comparison]:
    """The comparisons in the condition of a request that gives attributes of its resource."""
    if not engine.reader.attributes:
        return ()
    some = replace(request.attributes, entity={"": ""})
    for example in examples:
        located = engine.located(replace(request, resource=example, attributes=some))
        if located is not None:
            return [comparison for _, comparison in located[0].comparisons]
    return ()


def _others(engine: RowEngine, request: Request, comparison: Comparison, operand: Operand) -> Iterator[Any]:
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
            found = [given.user.get(name), engine.index.user_attributes.get(request.user, {}).get(name)]
        case _:
            found = [values.get(name) for values in (*given.with_.values(), *engine.index.entity_attributes.values())]
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
