"""Attributes that rows give: the argument `attributes` of `decide` as columns and constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from privtab.base import Attribute, InvalidRequest, UsageError, Vocabulary

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

AttributesLike: TypeAlias = Mapping[str, Any]
"""As the attributes of a request, with a column or the name of one in the place of each value; True, False, a number or a list of texts
is the value of all rows."""

_TEXT = r"(string( collate .*)?|(var)?char\(\d+\)|void)"


class ColumnType(NamedTuple):
    """The properties of a column with the values of an attribute, by the type of the attribute."""

    wanted: str
    cast: str
    """The type of Spark that engines take."""
    suits: str
    """A regular expression for the types of Spark that can be cast to it, beside that of null."""
    arrow_suits: Callable[[pa.DataType], bool]
    arrow: pa.DataType


_OF_TEXT = ColumnType("a text", "string", _TEXT, pa.types.is_string, pa.string())
COLUMN_TYPES: Mapping[str, ColumnType] = {
    "bool": ColumnType("true or false", "boolean", "boolean", pa.types.is_boolean, pa.bool_()),
    "integer": ColumnType("a whole number", "bigint", "tinyint|smallint|int|bigint", pa.types.is_integer, pa.int64()),
    "text": _OF_TEXT,
    "enum": _OF_TEXT,
    "set": ColumnType("an array of texts", "array<string>", f"array<{_TEXT}>", pa.types.is_list, pa.list_(pa.string())),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeColumn:
    """An attribute that rows give."""

    kind: str
    slot: str
    """For an attribute of an entity: the name of the `with` object, empty for the resource."""
    name: str
    column: str | None = None
    """The canonical name of its column; None for a constant."""
    constant: Any = None

    def __str__(self) -> str:
        return f"`{self.slot or self.kind}.{self.name}`"


def check_kind(what: str, attribute: Attribute, kind: DataType) -> None:
    """Raise UsageError for a column whose type is not that of its attribute."""
    own, name = COLUMN_TYPES[attribute.type], kind.simpleString()
    if not re.fullmatch(f"{own.suits}|void", name):
        raise UsageError(f"{what} is a column of type `{name}`: {own.wanted} is wanted")


def check_objects(
    vocabulary: Vocabulary, given: Iterable[AttributeColumn], slots: Iterable[str], types: Mapping[str, str]
) -> None:
    """Raise InvalidRequest for attributes of an object that is not given or whose type, the same for all rows, does not have them.

    `types`: the type of an object by its slot, if it is known.
    """
    for attribute in given:
        if attribute.kind != "entity":
            continue
        if attribute.slot and attribute.slot not in slots:
            raise InvalidRequest(f"the attribute {attribute} is of an object that is not given: `with_`")
        if attribute.slot in types:
            type_ = types[attribute.slot]
            vocabulary.attributes.requested("entity", attribute.name, of_type=type_)


def values(given: Iterable[AttributeColumn], cells: Mapping[str, Any]) -> dict[str, Any]:
    """The values as in `attributes` of a request; `cells`: the cells of the columns."""
    found: dict[str, Any] = {}
    for attribute in given:
        place = found.setdefault("with" if attribute.slot else attribute.kind, {})
        if attribute.slot:
            place = place.setdefault(attribute.slot, {})
        place[attribute.name] = attribute.constant if attribute.column is None else cells[attribute.column]
    return found
