"""Dataclasses that are completed when they are first used, beside those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, field, replace
from typing import Any, ClassVar

import pytest

from privtab.base.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    name: str
    depth: int = 0
    note: str = field(default="", compare=False, repr=False)
    parts: tuple[str, ...] = field(default_factory=tuple)
    kinds: ClassVar[int] = 3

    def deeper(self) -> Place:
        return replace(self, depth=self.depth + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Place):
    columns: int = 1

    def __post_init__(self) -> None:
        if self.columns < 0:
            raise ValueError(self.columns)


@dataclass(slots=True)
class Tally:  # noqa: PLW1641  `hash` is left out on purpose
    count: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and other.count % 10 == self.count % 10


def pairs(**options: bool) -> list[Any]:
    """A class by the decorator of the standard library, and the same class by ours."""
    decorators: list[Any] = [dataclasses.dataclass, dataclass]
    made = []
    for decorator in decorators:

        @decorator(**options)
        class Pair:
            left: int
            right: str = "r"

        made.append(Pair)
    return made


def stubs(made: type) -> list[str]:
    return [name for name, value in vars(made).items() if type(value).__name__ == "_Stub"]


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("kw_only", [True, False])
@pytest.mark.parametrize("eq", [True, False])
def test_a_class_is_that_of_the_standard_library(frozen: bool, kw_only: bool, eq: bool) -> None:
    theirs, ours = pairs(frozen=frozen, slots=True, kw_only=kw_only, eq=eq)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert [one.name for one in dataclasses.fields(ours)] == ["left", "right"]
    assert (ours.__match_args__, ours.__slots__) == (theirs.__match_args__, theirs.__slots__)
    assert vars(ours).keys() == vars(theirs).keys()
    one, other = ours(left=1), ours(left=1)
    assert (one == other, one != ours(left=2)) == (eq, True)
    assert repr(one) == repr(theirs(left=1))
    assert (ours.__hash__ is None) is (eq and not frozen)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        ours(left=1, middle=2)


def test_a_class_is_completed_when_it_is_first_used() -> None:
    _theirs, ours = pairs(frozen=True, slots=True)
    assert {"__init__", "__eq__", "__hash__", "__repr__", "__dataclass_fields__"} <= set(stubs(ours))
    ours(1)
    assert not stubs(ours)


def test_a_class_may_be_used_first_by_several_threads() -> None:
    for _ in range(20):
        _theirs, ours = pairs(frozen=True, slots=True)
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(ours, [1] * 32))
        assert set(made) == {ours(1)}


def test_classes_extend_each_other() -> None:
    table = Table(name="t", columns=2, note="n")
    assert repr(table.deeper()) == "Table(name='t', depth=1, parts=(), columns=2)"
    assert (table, table.kinds) == (replace(table, note=""), 3)
    assert hash(table) == hash(replace(table, note=""))
    assert vars(Table)["__slots__"] == ("columns",)
    with pytest.raises(ValueError, match="-1"):
        Table(name="t", columns=-1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'depth'"):
        table.depth = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'depth'"):
        type(table).__delattr__(table, "depth")


def test_values_are_copied_and_pickled() -> None:
    table = Table(name="t", parts=("a",))
    assert copy.deepcopy(table) == pickle.loads(pickle.dumps(table)) == table  # noqa: S301  what it wrote itself


def test_methods_that_are_written_stay() -> None:
    assert Tally(3) == Tally(13)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Tally())


@pytest.mark.parametrize("options", [{"slots": True, "order": True}, {"frozen": True}])
def test_other_classes_are_completed_at_once(options: dict[str, bool]) -> None:
    assert [stubs(one) for one in pairs(**options)] == [[], []]
