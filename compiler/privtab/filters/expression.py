"""The expression of a filter: which names the levels of a path may have.

It is true, false or unknown like SQL's: a level without a name is in no list, and is not one of the other names either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, assert_never

from privtab.attributes import Scalar
from privtab.characters import UNUSABLE, unusable

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
class Value:
    """The entity's attribute has one of these values, or one between two numbers, both included; with `other`, any text but these.

    `absent`: it has no value.
    """

    attribute: str
    values: tuple[Scalar, ...] = ()
    other: bool = False
    between: tuple[int, int] | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Expression, ...] = ()


Leaf: TypeAlias = OneOf | Value
Expression: TypeAlias = Leaf | AllOf | AnyOf
EVERYTHING = AllOf()
CLASS = f"[{UNUSABLE}]"
"""A regular expression for a character that no name has."""
_NAME = "(?:%2A|%3F)+|[*?]*(?:[^/%*?]|%25|%2F)(?:[^/%]|%25|%2F)*"
"""An encoded name: no wildcards alone, and no `%` that begins no escape (`privtab.names`)."""
NOTHING = AnyOf()


def all_of(parts: Iterable[Expression]) -> Expression:
    """The conjunction, without nested ones."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AllOf) else (part,))]
    return NOTHING if NOTHING in flat else flat[0] if len(flat) == 1 else AllOf(tuple(flat))


def any_of(parts: Iterable[Expression]) -> Expression:
    """The disjunction, without nested ones."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, AnyOf) else (part,))]
    return EVERYTHING if EVERYTHING in flat else flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def fold(
    expression: Expression,
    leaf: Callable[[Leaf], T],
    all_of_: Callable[[list[T]], T],
    any_of_: Callable[[list[T]], T],
) -> T:
    """The value of an expression, from those of its leaves and how the values of parts are combined."""
    match expression:
        case OneOf() | Value():
            return leaf(expression)
        case AllOf():
            return all_of_([fold(part, leaf, all_of_, any_of_) for part in expression.parts])
        case AnyOf():
            return any_of_([fold(part, leaf, all_of_, any_of_) for part in expression.parts])
        case _:
            assert_never(expression)


def size(expression: Expression) -> int:
    """How many names an expression lists."""

    def total(parts: list[int]) -> int:
        return sum(parts)

    def listed(one: Leaf) -> int:
        return len(one.names) + len(one.above) if isinstance(one, OneOf) else len(one.values)

    return fold(expression, listed, total, total)


def holds(
    expression: Expression, names: Mapping[str, str | None], bounds: Mapping[str, int], values: Mapping[str, object]
) -> bool:
    """Whether an expression holds for the names of a path, by level; None is no name. `bounds`: the most names in a path of a level.

    `values`: those of attributes, by name; None is no value.
    """

    def leaf(one: Leaf) -> bool:
        if isinstance(one, Value):
            return _has(one, values.get(one.attribute))
        name = names[one.level]
        if name is None:
            return False
        if name in one.names:
            return not one.other
        below = any(name.startswith(f"{path}/") for path in one.above)
        return below is not one.other and is_valid(name, bounds.get(one.level))

    return fold(expression, leaf, all, any)


def _has(one: Value, value: Any) -> bool:
    if value is None or one.absent:
        return value is None and one.absent
    if one.between is not None:
        return bool(one.between[0] <= value <= one.between[1])
    return (value in one.values) is not one.other and (not one.other or unusable(value) is None)


def is_valid(name: str, most: int | None = None) -> bool:
    r"""Whether a request can have this name in a path; with `most`, whether it is a path of at most so many names.

    >>> is_valid("a/b 100%"), is_valid(""), is_valid("a\n"), is_valid("a/b", 2), is_valid("a/b/c", 2), is_valid("a/100%", 2)
    (True, False, False, True, False, False)
    """
    if not name or unusable(name) is not None:
        return False
    return most is None or re.fullmatch(path_pattern(most), name) is not None


def path_pattern(most: int) -> str:
    """A regular expression for paths of at most so many encoded names, apart from unusable characters."""
    return f"(?:{_NAME})(?:/(?:{_NAME})){{0,{most - 1}}}"


def to_json(expression: Expression) -> Any:
    """As JSON: `{"level": …, "in": […]}`, `{"level": …, "not in": […]}`, `{"all": […]}`, `{"any": […]}`."""

    def leaf(one: Leaf) -> Any:
        if isinstance(one, Value):
            said = (
                {"is": None}
                if one.absent
                else {"between": one.between}
                if one.between
                else {"not in" if one.other else "in": one.values}
            )
            return {"attribute": one.attribute, **said}
        found = {"level": one.level, "not in" if one.other else "in": list(one.names)}
        return {**found, "below": list(one.above)} if one.above else found

    return fold(expression, leaf, lambda parts: {"all": parts}, lambda parts: {"any": parts})
