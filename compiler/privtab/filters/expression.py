"""The expression of a filter: which names the levels of a path may have.

It is true, false or unknown like SQL's: a level without a name is in no list, and is not one of the other names either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, assert_never

from privtab.characters import unusable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OneOf:
    """The level has one of these names, unencoded and sorted; with `other`, any valid name but these."""

    level: str
    names: tuple[str, ...]
    other: bool = False


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Expression, ...] = ()


Expression: TypeAlias = OneOf | AllOf | AnyOf
EVERYTHING = AllOf()
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
    one_of: Callable[[OneOf], T],
    all_of_: Callable[[list[T]], T],
    any_of_: Callable[[list[T]], T],
) -> T:
    """The value of an expression, from those of its leaves and how the values of parts are combined."""
    match expression:
        case OneOf():
            return one_of(expression)
        case AllOf():
            return all_of_([fold(part, one_of, all_of_, any_of_) for part in expression.parts])
        case AnyOf():
            return any_of_([fold(part, one_of, all_of_, any_of_) for part in expression.parts])
        case _:
            assert_never(expression)


def size(expression: Expression) -> int:
    """How many names an expression lists."""
    return fold(expression, lambda one: len(one.names), lambda parts: sum(parts), lambda parts: sum(parts))  # noqa: PLW0108


def holds(expression: Expression, names: Mapping[str, str | None]) -> bool:
    """Whether an expression holds for the names of a path, by level; None is no name."""

    def leaf(one: OneOf) -> bool:
        name = names[one.level]
        if name is None:
            return False
        return name not in one.names and is_valid(name) if one.other else name in one.names

    return fold(expression, leaf, all, any)


def is_valid(name: str) -> bool:
    r"""Whether a request can have this name in a path.

    >>> is_valid("a/b 100%"), is_valid(""), is_valid("a\n")
    (True, False, False)
    """
    return bool(name) and unusable(name) is None


def to_json(expression: Expression) -> Any:
    """As JSON: `{"level": …, "in": […]}`, `{"level": …, "not in": […]}`, `{"all": […]}`, `{"any": […]}`."""

    def leaf(one: OneOf) -> Any:
        return {"level": one.level, "not in" if one.other else "in": list(one.names)}

    return fold(expression, leaf, lambda parts: {"all": parts}, lambda parts: {"any": parts})
