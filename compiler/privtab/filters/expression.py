"""The expression of a filter: which names the levels of a path may have.

Every way to hold says something of every level, and an expression is about valid names alone: what a request cannot have in a path,
such as no name, is nowhere allowed. So names that are not listed are to be checked besides (`open_levels`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, TypeAlias, TypeVar, assert_never

from privtab.base.attributes import Attribute, Scalar
from privtab.base.names import UNUSABLE, unusable_character
from privtab.base.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OneOf:
    """The level has one of these names, sorted and unencoded; with `other`, any valid name but these.

    The names of a type that nests are paths, in which each name is encoded. `above`: paths below which all others are among these.
    """

    level: str
    names: tuple[str, ...]
    other: bool = False
    above: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Paths:
    """The names of these levels are together one of these paths, sorted; with `other`, they are any path but these."""

    levels: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    other: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """The entity's attribute has one of these values, or one between two numbers, both included; with `other`, any text but these.

    `absent`: it has no value.
    """

    attribute: str
    values: tuple[Scalar, ...] = ()
    other: bool = False
    between: tuple[int, int] | None = None
    absent: bool = False

    @property
    def type(self) -> Literal["text", "bool", "integer"]:
        """The type of the values. A value of another type is none of them, however it is written."""
        if self.between is not None:
            return "integer"
        first = next(iter(self.values), "")
        return "bool" if isinstance(first, bool) else "integer" if isinstance(first, int) else "text"


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Expression, ...] = ()


Leaf: TypeAlias = OneOf | Paths | Value
Expression: TypeAlias = Leaf | AllOf | AnyOf
EVERYTHING = AllOf()
SEPARATOR = "\x1f"
"""Between names that are compared together: a character that no name has."""
CLASS = f"[{UNUSABLE}]"
"""A regular expression for a character that no name has."""
_NAME = "(?:%2A|%3F)+|[*?]*(?:[^/%*?]|%25|%2F)(?:[^/%]|%25|%2F)*"
"""An encoded name: no wildcards alone, and no `%` that begins no escape (`privtab.base.names`)."""
NOTHING = AnyOf()
EDITION = -1
"""The depth of the row that says what the rows of a filter follow from."""


def all_of(parts: Iterable[Expression]) -> Expression:
    """The conjunction, without nested ones."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AllOf) else (part,))]
    return NOTHING if NOTHING in flat else flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(parts: Iterable[Expression]) -> Expression:
    """The disjunction, without nested ones."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AnyOf) else (part,))]
    return EVERYTHING if EVERYTHING in flat else flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def fold(
    expression: Expression, leaf: Callable[[Leaf], T], all_of_: Callable[[list[T]], T], any_of_: Callable[[list[T]], T]
) -> T:
    """The value of an expression, from the values of its leaves; the functions combine the values of parts."""
    match expression:
        case OneOf() | Paths() | Value():
            return leaf(expression)
        case AllOf():
            return all_of_([fold(part, leaf, all_of_, any_of_) for part in expression.parts])
        case AnyOf():
            return any_of_([fold(part, leaf, all_of_, any_of_) for part in expression.parts])
        case _:
            assert_never(expression)


def size(expression: Expression) -> int:
    """The number of names that an expression lists."""

    def total(parts: list[int]) -> int:
        return sum(parts)

    def listed(one: Leaf) -> int:
        match one:
            case OneOf():
                return len(one.names) + len(one.above)
            case Paths():
                return len(one.paths)
            case Value():
                return len(one.values)
            case _:
                assert_never(one)

    return fold(expression, listed, total, total)


def open_levels(expression: Expression) -> frozenset[str]:
    """The levels that may have names which are not listed."""

    def of_parts(parts: list[frozenset[str]]) -> frozenset[str]:
        return frozenset().union(*parts)

    def of_leaf(one: Leaf) -> frozenset[str]:
        return frozenset({one.level} if isinstance(one, OneOf) and (one.other or one.above) else ())

    return fold(expression, of_leaf, of_parts, of_parts)


def longest(levels: Sequence[str], beginnings: Iterable[tuple[tuple[str, ...], bool]]) -> Expression:
    """An expression that holds where the longest of these beginnings of a path, each with whether it allows, is one that does; none denies."""
    found: dict[tuple[int, bool], list[tuple[str, ...]]] = {}
    for names, allowed in beginnings:
        found.setdefault((len(names), allowed), []).append(names)

    def among(paths: Iterable[tuple[str, ...]], depth: int, *, other: bool = False) -> Iterator[Expression]:
        if listed := tuple(sorted(paths)):
            one = OneOf(levels[0], tuple(name for (name,) in listed), other) if depth == 1 else None
            yield one or Paths(tuple(levels[:depth]), listed, other)

    ways = []
    for depth in range(len(levels) + 1):
        starts = set(found.get((depth, True), ()))
        parts = [*among(starts, depth)] if depth else []
        for longer in range(depth + 1, len(levels) + 1):
            denied = (names for names in found.get((longer, False), ()) if names[:depth] in starts)
            parts += among(denied, longer, other=True)
        if starts:
            ways.append(all_of([*parts, *(OneOf(level, (), other=True) for level in levels[depth:])]))
    return any_of(ways)


def holds(
    expression: Expression, names: Mapping[str, str | None], bounds: Mapping[str, int], values: Mapping[str, object]
) -> bool:
    """Return whether an expression holds for the names of a path, by level; None is no name. `bounds`: the most names in a path of a level.

    `values`: the values of attributes, by name; None is no value.
    """
    if any(name is None or not is_valid(name, bounds.get(level)) for level, name in names.items()):
        return False

    def leaf(one: Leaf) -> bool:
        match one:
            case Value():
                return _has(one, values.get(one.attribute))
            case Paths():
                return (tuple(names[level] for level in one.levels) in one.paths) is not one.other
            case OneOf():
                name = str(names[one.level])
                listed = name in one.names or any(name.startswith(f"{path}/") for path in one.above)
                return listed is not one.other
            case _:
                assert_never(one)

    return fold(expression, leaf, all, any)


def _has(one: Value, value: Any) -> bool:
    if value is None or one.absent:
        return value is None and one.absent
    if isinstance(value, Decimal) and value.is_finite() and value == int(value):
        value = int(value)  # as columns of decimals have whole numbers
    if not Attribute(type=one.type).fits(value):
        return False
    return one.between[0] <= value <= one.between[1] if one.between else (value in one.values) is not one.other


def is_valid(name: str, most: int | None = None) -> bool:
    r"""Return whether a request can have this name in a path; with `most`, whether it is a path of at most so many names.

    >>> is_valid("a/b 100%"), is_valid(""), is_valid("a\n"), is_valid("a/b", 2), is_valid("a/b/c", 2), is_valid("a/100%", 2)
    (True, False, False, True, False, False)
    """
    if not name or unusable_character(name) is not None:
        return False
    return most is None or re.fullmatch(path_pattern(most), name) is not None


def path_pattern(most: int) -> str:
    """A regular expression for paths of at most so many encoded names, apart from unusable characters."""
    return f"(?:{_NAME})(?:/(?:{_NAME})){{0,{most - 1}}}"


def to_json(expression: Expression) -> Any:
    """As JSON: `{"level": …, "in": […]}`, `{"levels": […], "not in": [[…]]}`, `{"all": […]}`, `{"any": […]}`."""

    def leaf(one: Leaf) -> Any:
        if isinstance(one, Paths):
            return {"levels": list(one.levels), "not in" if one.other else "in": [list(path) for path in one.paths]}
        if isinstance(one, Value):
            listed = {"not in" if one.other else "in": one.values}
            said = {"is": None} if one.absent else {"between": one.between} if one.between else listed
            return {"attribute": one.attribute, **said}
        found = {"level": one.level, "not in" if one.other else "in": list(one.names)}
        return {**found, "below": list(one.above)} if one.above else found

    return fold(expression, leaf, lambda parts: {"all": parts}, lambda parts: {"any": parts})
