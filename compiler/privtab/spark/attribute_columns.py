"""Attributes that rows give: the argument `attributes` of `decide` as columns and constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    VarcharType,
)

from privtab.attributes import Attribute, AttributeKind, requested
from privtab.errors import InvalidRequest, UsageError
from privtab.vocabulary import Vocabulary

AttributesLike: TypeAlias = Mapping[str, Any]
"""As the attributes of a request, with a column or the name of one in the place of each value; True, False, a number or a list of texts
is the value of all rows."""

WANTED = {
    "bool": "true or false",
    "integer": "a whole number",
    "text": "a text",
    "enum": "a text",
    "set": "an array of texts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeColumn:
    """An attribute that rows give."""

    kind: AttributeKind
    slot: str
    """Of an entity: the name of the `with` object, empty for the resource."""
    name: str
    column: str | None = None
    """The canonical name of its column; None for a constant."""
    constant: Any = None

    def __str__(self) -> str:
        return f"`{self.slot or self.kind}.{self.name}`"


def declared(vocabulary: Vocabulary, kind: AttributeKind) -> tuple[Mapping[str, Attribute], str]:
    """The attributes of a kind, and what has them, for messages."""
    what = "entities" if kind == "entity" else f"the {kind}"
    return vocabulary.attributes.of(kind), what


def check_kind(what: str, attribute: Attribute, kind: DataType) -> None:
    """Raise UsageError for a column whose type is not that of its attribute."""
    if not _suits(attribute, kind):
        raise UsageError(f"{what} is a column of type `{kind.simpleString()}`: {WANTED[attribute.type]} is wanted")


def _suits(attribute: Attribute, kind: DataType) -> bool:
    text = StringType | CharType | VarcharType | NullType
    if isinstance(kind, NullType):
        return True
    match attribute.type:
        case "bool":
            return isinstance(kind, BooleanType)
        case "integer":
            return isinstance(kind, ByteType | ShortType | IntegerType | LongType)
        case "text" | "enum":
            return isinstance(kind, text)
        case "set":
            return isinstance(kind, ArrayType) and isinstance(kind.elementType, text)
        case _:
            assert_never(attribute.type)


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
            requested(attribute.name, vocabulary.attributes.declared_on(type_), f"`{type_}`")


def values(given: Iterable[AttributeColumn], cells: Mapping[str, Any]) -> dict[str, Any]:
    """The values as `attributes` of a request has them; `cells`: what is in the columns."""
    found: dict[str, Any] = {}
    for attribute in given:
        place = found.setdefault("with" if attribute.slot else attribute.kind, {})
        if attribute.slot:
            place = place.setdefault(attribute.slot, {})
        place[attribute.name] = attribute.constant if attribute.column is None else cells[attribute.column]
    return found
