"""Test whether a running system obeys its table, by questions made from the minimal sets of each row and asked through a driver.

The values of the package: the plan of a test, and its results.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from privtab.base import Entity, Request, dataclass
from privtab.ir import Program, Rule
from privtab.state import State
from privtab_testing.scenarios import size
from privtab_testing.scenarios.prove import Cell

if TYPE_CHECKING:
    from privtab_testing.conform.mistakes import Mistake


class SystemAnswer(StrEnum):
    """The system's reaction to a request."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    HIDDEN = "hidden"
    """The system says that the object does not exist, or leaves it out of a listing; counts as refused."""
    UNSUPPORTED = "unsupported"
    """The driver cannot ask this."""
    BROKEN = "broken"
    """Neither an allow nor a refusal: an error of the system or of the driver."""


class Verdict(StrEnum):
    """The comparison of a system with its table."""

    AGREES = "agrees"
    WIDER = "wider"
    NARROWER = "narrower"
    UNTESTED = "untested"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request, the expected answer, and why it is asked."""

    id: str
    """The row and a number: `table/load#3`."""
    rule: Rule
    request: Request
    expected: bool
    holds: str
    """The rights that the caller is given, in words."""
    state: State
    """The rows about the caller: the smallest world in which the question has its answer."""
    cells: tuple[int, ...]
    """The cells that it proves, by their positions in the plan."""
    readings: Mapping[str, bool]
    """The answers that other readings of an ambiguous row expect, where they differ."""
    purpose: str
    """The purpose beside proving cells: a level of inheritance, a denial; empty if there is none."""
    named: bool
    """True if the request names an existing entity as its resource."""

    @property
    def row(self) -> str:
        """The row: `table/load`."""
        return f"{self.rule.entity}/{self.rule.operation}"

    @property
    def rows(self) -> int:
        """The number of rows of its world."""
        return size(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The required content of a system before the questions are asked."""

    state: State
    entities: tuple[Entity, ...]
    """Every entity that must exist, parents first; without entities that are principals."""
    users: tuple[str, ...]
    groups: tuple[str, ...]
    roles: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number of rows of its state."""
        return size(self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPlan:
    """The questions for a program, in the order in which they are asked, and the world that they need."""

    program: Program
    cells: tuple[Cell, ...]
    questions: tuple[Question, ...]
    world: World
    undecided: Mapping[str, str]
    """The rows that have no questions, and why."""
    digest: str
    """Identifies the plan, so that answers are not taken for another plan's."""
    mistakes: tuple[Mistake, ...] = ()
    """The kinds of mistakes that a system could make with this policy, if questions were planned to show them."""
    unseen: tuple[Mistake, ...] = ()
    """The mistakes with which a system would answer every question rightly."""


Failing: TypeAlias = Literal["wider", "any", "none"]
