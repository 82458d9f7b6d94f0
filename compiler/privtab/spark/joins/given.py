"""Attributes that rows give: which values make a row no valid request, as SQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from privtab.attributes import MOST_TEXT, Attribute
from privtab.engines.conditions import RESOURCE
from privtab.spark.joins.text import both, constants, one_of

if TYPE_CHECKING:
    from privtab.spark.attribute_columns import AttributeColumn
    from privtab.spark.joins.places import Layout, Rule
    from privtab.spark.joins.rows import ColumnNames


def wrong_values(rule: Rule, layout: Layout, names: ColumnNames) -> Iterator[str]:
    """Conditions under which a row of an operation is invalid: a value that does not fit, or two values for one entity.

    What the type of an object does not have is ignored, as are objects that the operation does not take.
    """
    of_entities: list[tuple[AttributeColumn, tuple[str, ...]]] = []
    for given in names.given:
        attribute = layout.reader.attributes.of(given.kind)[given.name]
        of_type = []
        if given.kind == "entity":
            possible = (rule.type,) if given.slot == RESOURCE else rule.slots.get(given.slot, ())
            types = tuple(type_ for type_ in possible if type_ in attribute.on)
            if not types:
                continue
            of_entities.append((given, types))
            of_type = [] if types == possible else [one_of(names.type_of(given.slot), types)]
        misfit = None if given.column is None else _misfit(attribute, names.attribute(given))
        if misfit is not None:
            yield both([*of_type, misfit])
    for (one, types), (other, other_types) in itertools.combinations(of_entities, 2):
        shared = tuple(type_ for type_ in types if type_ in other_types)
        if one.name == other.name and shared:
            same_entity = (f"{of(one.slot)} = {of(other.slot)}" for of in (names.type_of, names.path_of))
            differ = f"{names.attribute(one)} <> {names.attribute(other)}"
            yield both([one_of(names.type_of(one.slot), shared), *same_entity, differ])


def _misfit(attribute: Attribute, value: str) -> str | None:
    """The condition that a value is not of its attribute's type; null if there is no value. None: every value of its column fits."""
    match attribute.type:
        case "text":
            return f"length({value}) > {MOST_TEXT}"
        case "integer":
            return f"{value} NOT BETWEEN {attribute.lowest} AND {attribute.highest}"
        case "enum":
            return f"{value} NOT IN {constants(attribute.values)}"
        case "set":
            return f"exists({value}, word -> word IS NULL OR word NOT IN {constants(attribute.values)})"
        case "bool":
            return None
        case _:
            assert_never(attribute.type)
