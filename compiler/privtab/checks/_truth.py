"""How the things that a row asks about can stand together: a table with a column for each, its rows the bits of a number.

Exact under the file's semantics: a line of the table stands for states that there are, and every state has its line. What one
thing entails of another is said in `ir.canonical`; of things on one path with a denial in between there is more to say, since
what stands below it may come with ownership: then the owners of what lies between are columns too, asked about or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar, assert_never

from privtab.errors import UnsupportedError
from privtab.ir import nodes as ir
from privtab.ir.formula import anchor, conjunction, disjunction, without_name

if TYPE_CHECKING:
    from privtab.checks._view import View

V = TypeVar("V")

_COLUMNS = 20
"""A table of more columns is not made."""
_WAYS = 300
"""Conditions with more minimal sets are not compared where there is no table."""


class Judge(Protocol[V]):
    """Puts conditions of one row together and compares them."""

    def leaf(self, formula: ir.Formula) -> V:
        """A condition."""

    def all_of(self, values: Iterable[V]) -> V:
        """Every one."""

    def any_of(self, values: Iterable[V]) -> V:
        """Some one."""

    def when(self, flag: str, value: V) -> V:
        """It, if the flag is set."""

    def implies(self, one: V, other: V) -> bool:
        """Whether the other holds wherever the one does."""


class Table:
    """Conditions as the lines of a table on which they hold, for one choice of types of the `with` objects.

    `unnamed`: the type of a resource whose last name is left off. `fits` is false where there are too many columns; such a
    table cannot be asked, except whether `apart`: nothing is asked about twice or says anything about another.
    """

    def __init__(
        self, seen: View, asked: Iterable[ir.Formula], types: Mapping[str, str], unnamed: str | None = None
    ) -> None:
        self._seen = seen
        self._types = types
        self._depth = None if unnamed is None else len(seen.program.chain(unnamed)) - 1
        self._values: dict[ir.Formula, int] = {}
        self._columns: dict[ir.Formula | str, int] = {}
        self._repeats = False
        for formula in asked:
            self._gather(formula)
        rules = list(self._rules())
        self.apart = not rules and not self._repeats
        self.fits = len(self._columns) <= _COLUMNS
        if self.fits:
            self.every, columns = _columns(len(self._columns))
            for key, number in self._columns.items():
                self._columns[key] = columns[number]
            self.possible = self.every
            for all_of, any_of in rules:
                held = self.every
                for atom in all_of:
                    held &= self._columns[atom]
                for atom in any_of:
                    held &= ~self._columns[atom]
                self.possible &= ~held

    def _gather(self, formula: ir.Formula) -> None:
        match formula:
            case ir.Has() | ir.Owner() | ir.Member() | ir.Self() | ir.Holds() | ir.ServiceAdmin():
                if formula in self._columns or self._nameless(formula):
                    self._repeats = True
                else:
                    self._columns[formula] = len(self._columns)
            case ir.And() | ir.Or():
                self._repeats |= not formula.parts
                for part in formula.parts:
                    self._gather(part)
            case ir.When():
                self._columns.setdefault(formula.flag, len(self._columns))
                self._gather(formula.body)
            case ir.Can():
                self._gather(self._seen.resolved(formula))
            case ir.ByType():
                self._gather(self._case(formula))
            case _:
                assert_never(formula)

    def _nameless(self, atom: ir.Atom) -> bool:
        if self._depth is None or isinstance(atom, ir.ServiceAdmin) or atom.target.slot != ir.RESOURCE:
            return False
        return anchor(self._seen.program, atom.target)[0] >= self._depth

    def _case(self, formula: ir.ByType) -> ir.Formula:
        return dict(formula.cases).get(self._types[formula.slot], ir.NEVER)

    def _rules(self) -> Iterator[tuple[list[ir.Formula], list[ir.Formula]]]:
        """What is true of every state: where all of the first hold, some of the others do."""
        semantics = self._seen.policy.semantics
        down, held = semantics.inheritance == "down", semantics.owner.holds if semantics.owner else ()
        by_name: dict[str, list[ir.Has]] = {}
        for atom in self._columns:
            if isinstance(atom, ir.Has):
                by_name.setdefault(atom.privilege, []).append(atom)
        for name, atoms in by_name.items() if down else ():
            for upper, lower in ((u, w) for u in atoms for w in atoms if u is not w and self._above(u, w)):
                if semantics.deny == "none":
                    yield [upper], [lower]
                    continue
                for middle in atoms:
                    if middle not in (upper, lower) and self._above(upper, middle) and self._above(middle, lower):
                        owners = self._owners_between(middle.target, lower.target) if name in held else []
                        yield [upper, lower], [middle, *owners]
        for owner in [atom for atom in self._columns if isinstance(atom, ir.Owner)] if held else ():
            for name in held:
                for atom in by_name.get(name, ()):
                    if owner.target == atom.target or (down and self._above(owner, atom)):
                        yield [owner], [atom]

    def _above(self, upper: ir.Has | ir.Owner, lower: ir.Has) -> bool:
        one, other = upper.target, lower.target
        return one.slot == other.slot and one != other and one.type in self._seen.program.chain(other.type)

    def _owners_between(self, upper: ir.Target, lower: ir.Target) -> list[ir.Formula]:
        """Ownership of what lies under `upper` down to `lower`, each with a column."""
        chain = self._seen.program.chain(lower.type)
        owners: list[ir.Formula] = []
        for type_ in chain[chain.index(upper.type) + 1 :]:
            owner = ir.Owner(target=self._seen.lowering.target(lower.slot, type_))
            self._columns.setdefault(owner, len(self._columns))
            owners.append(owner)
        return owners

    def leaf(self, formula: ir.Formula) -> int:
        """The lines on which a condition holds."""
        match formula:
            case ir.Has() | ir.Owner() | ir.Member() | ir.Self() | ir.Holds() | ir.ServiceAdmin():
                column = self._columns.get(formula)
                return 0 if column is None else column
            case ir.And():
                return self.all_of(map(self.leaf, formula.parts))
            case ir.Or():
                return self.any_of(map(self.leaf, formula.parts))
            case ir.When():
                return self.when(formula.flag, self.leaf(formula.body))
            case ir.Can():
                if formula not in self._values:
                    self._values[formula] = self.leaf(self._seen.resolved(formula))
                return self._values[formula]
            case ir.ByType():
                return self.leaf(self._case(formula))
            case _:
                assert_never(formula)

    def all_of(self, values: Iterable[int]) -> int:
        """The lines that are in all."""
        both = self.every
        for value in values:
            both &= value
        return both

    def any_of(self, values: Iterable[int]) -> int:
        """The lines that are in some."""
        either = 0
        for value in values:
            either |= value
        return either

    def when(self, flag: str, value: int) -> int:
        """These lines, and all without the flag."""
        return value | (self.every & ~self._columns[flag])

    def implies(self, one: int, other: int) -> bool:
        """Whether every state on the lines of the one is on a line of the other."""
        return not self.possible & one & ~other


class Formulas:
    """Conditions as they are, for rows that ask about too many things for a table: compared by their minimal sets."""

    def __init__(self, seen: View, rule: ir.Rule, unnamed: str | None = None) -> None:
        self._seen = seen
        self._rule = rule
        self._unnamed = unnamed

    def too_many(self, formula: ir.Formula) -> bool:
        """Whether there are too many ways to meet a condition for others like it to be compared with it."""
        try:
            return any(len(self._seen.sets(formula, s)) > _WAYS for s in self._seen.settings(self._rule, formula))
        except UnsupportedError:
            return True

    def leaf(self, formula: ir.Formula) -> ir.Formula:
        """The condition."""
        return formula if self._unnamed is None else without_name(self._seen.program, formula, self._unnamed)

    def all_of(self, values: Iterable[ir.Formula]) -> ir.Formula:
        """Every one."""
        return conjunction(*values)

    def any_of(self, values: Iterable[ir.Formula]) -> ir.Formula:
        """Some one."""
        return disjunction(*values)

    def when(self, flag: str, value: ir.Formula) -> ir.Formula:
        """It, if the flag is set."""
        return ir.When(flag=flag, body=value)

    def implies(self, one: ir.Formula, other: ir.Formula) -> bool:
        """Whether the one implies the other; not, as far as it is known, where there are too many ways to try."""
        try:
            return self._seen.implies(self._rule, one, other)
        except UnsupportedError:
            return False


@lru_cache(maxsize=_COLUMNS + 1)
def _columns(count: int) -> tuple[int, tuple[int, ...]]:
    """A line for every choice of yes and no for so many columns, and the lines on which each column says yes."""
    every = (1 << (1 << count)) - 1
    return every, tuple(every // ((1 << (1 << number)) + 1) for number in range(count))
