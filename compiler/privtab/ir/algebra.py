"""One fold over conditions: an algebra gives the values of atoms and combines the values of parts.

Three evaluators deliberately do not use it, because tests compare them with each other: the reference, the Rego back end and
the conditions of the engines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, TypeVar, assert_never

from privtab.ir import nodes as ir

T = TypeVar("T")


class Algebra(ABC, Generic[T]):
    """Values of conditions. The values of parts are computed lazily, so an algebra may stop early.

    Example:
        class Depth(Algebra[int]):
            def atom(self, atom: Atom) -> int:
                return 1
    """

    def fold(self, formula: ir.Formula) -> T:
        """The value of a condition."""
        match formula:
            case ir.Atomic():
                return self.atom(formula)
            case ir.And():
                return self.all_of(map(self.fold, formula.parts))
            case ir.Or():
                return self.any_of(map(self.fold, formula.parts))
            case ir.Can():
                return self.can(formula)
            case ir.When():
                return self.when(formula)
            case ir.ByType():
                return self.by_type(formula)
            case _:
                assert_never(formula)

    @abstractmethod
    def atom(self, atom: ir.Atom) -> T:
        """The value of an atom."""

    @abstractmethod
    def all_of(self, values: Iterable[T]) -> T:
        """The value of a conjunction; without parts, of a condition that always holds."""

    @abstractmethod
    def any_of(self, values: Iterable[T]) -> T:
        """The value of a disjunction; without parts, of a condition that never holds."""

    @abstractmethod
    def when(self, when: ir.When) -> T:
        """The value of a condition that a flag requires."""

    @abstractmethod
    def can(self, can: ir.Can) -> T:
        """The value of a reference to another rule."""

    @abstractmethod
    def by_type(self, choice: ir.ByType) -> T:
        """The value of a choice by the type of an object."""


class Rebuilder(Algebra[ir.Formula]):
    """Rebuilds a condition unchanged; subclasses override the methods for the parts that they replace.

    >>> Rebuilder().fold(ir.ALWAYS) == ir.ALWAYS
    True
    """

    def atom(self, atom: ir.Atom) -> ir.Formula:
        """As Algebra.atom."""
        return atom

    def all_of(self, values: Iterable[ir.Formula]) -> ir.Formula:
        """As Algebra.all_of."""
        return ir.And(parts=tuple(values))

    def any_of(self, values: Iterable[ir.Formula]) -> ir.Formula:
        """As Algebra.any_of."""
        return ir.Or(parts=tuple(values))

    def when(self, when: ir.When) -> ir.Formula:
        """As Algebra.when."""
        return replace(when, body=self.fold(when.body))

    def can(self, can: ir.Can) -> ir.Formula:
        """As Algebra.can."""
        return can

    def by_type(self, choice: ir.ByType) -> ir.Formula:
        """As Algebra.by_type."""
        return replace(choice, cases=tuple((type_, self.fold(case_)) for type_, case_ in choice.cases))
