"""Rows of policies in which types nest, compared as rows of policies in which each level is a type of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from privtab.analysis.diff.mapping import Renaming
from privtab.analysis.diff.shapes import PathForm, Shape
from privtab.ir.exact import ImplicationChecker
from privtab.ir.formula import item_condition
from privtab.ir.nodes import RESOURCE, Formula, Program, Rule
from privtab.ir.unroll import Levels, levels_that_matter, unrolled
from privtab.paths import at_level


class ComparedRequests(NamedTuple):
    """The requests that one question is about: those that a row accepts on each side, and both directions of implication."""

    shapes: tuple[Shape, Shape]
    forward: ImplicationChecker
    backward: ImplicationChecker


class LevelComparison:
    """Compares rows for each number of levels that their answers depend on.

    A type that nests on one side alone has one level on the other.
    """

    def __init__(self, before: Program, after: Program, unused_names: frozenset[str]) -> None:
        self._sides = _Side(before, after), _Side(after, before)
        self._unused_names = unused_names
        self._checkers: dict[int, tuple[ImplicationChecker, ImplicationChecker]] = {}

    def of(self, rules: Sequence[Rule]) -> Iterator[ComparedRequests]:
        """What to compare for the rows of both sides."""
        conditions = [item_condition(rule) for rule in rules]
        most = levels_that_matter(*((side.program, f) for side, f in zip(self._sides, conditions, strict=True)))
        varying = {RESOURCE}.union(
            *(side.unrolled.varying([f]) for side, f in zip(self._sides, conditions, strict=True))
        )
        numbers = {slot: self._numbers(rules, slot, most if slot in varying else 1) for slot in _slots(rules)}
        deepest = max(max(found) for found in numbers.values())
        checkers = self._between(deepest)
        for chosen in product(*numbers.values()):
            levels = dict(zip(numbers, chosen, strict=True))
            shapes = [side.shape(rule, levels, deepest) for side, rule in zip(self._sides, rules, strict=True)]
            yield ComparedRequests((shapes[0], shapes[1]), *checkers)

    def _numbers(self, rules: Sequence[Rule], slot: str, most: int) -> list[int]:
        """The numbers of levels of the object in a slot: those that matter, and one that a single side accepts."""
        types = {type_ for rule in rules for type_ in _types(rule, slot)}
        bounds = [tuple(side.bound(type_) for side in self._sides) for type_ in types]
        known = [[bound for bound in pair if bound] for pair in bounds]
        found = set(range(1, max((min(most, max(pair)) for pair in known if pair), default=1) + 1))
        found |= {min(pair) + 1 for pair in known if len({*pair}) > 1}
        return sorted(found)

    def _between(self, levels: int) -> tuple[ImplicationChecker, ImplicationChecker]:
        if levels not in self._checkers:
            before, after = (side.at_most(levels) for side in self._sides)
            self._checkers[levels] = (
                ImplicationChecker(before, after, self._unused_names),
                ImplicationChecker(after, before, self._unused_names),
            )
        return self._checkers[levels]


class _Side:
    """One of the two policies; `other` is the other one."""

    def __init__(self, program: Program, other: Program) -> None:
        self.program = program
        self.unrolled = unrolled(program)
        plain = (unrolled(other).nested.keys() & program.entities.keys()) - self.unrolled.nested.keys()
        self._one_level = Renaming(types={type_: at_level(type_, 1) for type_ in plain})
        self._programs: dict[int, Program] = {}
        self._flags: dict[tuple[str, str], frozenset[str]] = {}

    def at_most(self, levels: int) -> Program:
        """The program for paths of at most this many levels."""
        if levels not in self._programs:
            program = self._one_level.program(self.unrolled.at_most(levels))
            # The scopes that roles declare keep their names: assignments within a level count for them.
            roles = {name: replace(role, scope=self.program.roles[name].scope) for name, role in program.roles.items()}
            self._programs[levels] = replace(program, roles=roles)
        return self._programs[levels]

    def bound(self, type_: str) -> int:
        """The most levels on the path of a type: 1 if it nests on the other side alone, 0 if on neither or unknown."""
        nested = self.unrolled.nested.get(type_)
        return self.program.entities[nested].nested if nested else int(type_ in self._one_level.types)

    def shape(self, rule: Rule, levels: Levels, most: int) -> Shape:
        """The requests that a row accepts with these numbers of levels."""
        slots = tuple(
            replace(slot, types=tuple(t for t in slot.types if self._accepts(t, levels[slot.name])))
            for slot in rule.withs
        )
        at_levels = self._one_level.rule(self.unrolled.rule(replace(rule, withs=slots), levels))
        if not self._accepts(rule.entity, levels[RESOURCE]):
            no_requests: dict[PathForm, Formula] = {}
            return Shape(
                program=self.at_most(most),
                rule=at_levels,
                conditions=no_requests,
                flags=frozenset(),
                required_flags=frozenset(),
            )
        nests = rule.entity in self.unrolled.nested
        return Shape.of(self.at_most(most), at_levels, self._flags, slash=True, nests=nests)

    def _accepts(self, type_: str, levels: int) -> bool:
        return levels <= (self.bound(type_) or levels)


def _slots(rules: Sequence[Rule]) -> list[str]:
    return list(dict.fromkeys([RESOURCE, *(slot.name for rule in rules for slot in rule.withs)]))


def _types(rule: Rule, slot: str) -> tuple[str, ...]:
    if slot == RESOURCE:
        return (rule.entity,)
    return next((found.types for found in rule.withs if found.name == slot), ())
