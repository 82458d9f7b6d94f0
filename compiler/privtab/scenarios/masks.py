"""Decides all cases of one rule at once: a mask is a number with one bit for each case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import TypeAlias

from privtab.ir.algebra import Algebra
from privtab.ir.formula import item_condition, move, references
from privtab.ir.nodes import (
    ALWAYS,
    RESOURCE,
    Atom,
    ByType,
    Can,
    Formula,
    Program,
    Rule,
    When,
)
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.scenarios.nodes import Case

Key: TypeAlias = tuple[str, str]
"""An entity type and an operation."""
Mask: TypeAlias = int


class RuleDependencies:
    """Which rules refer to which others by `can`."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[Key, frozenset[Key]] = {}
        self._asking: dict[Key, list[Key]] | None = None

    def of(self, key: Key) -> frozenset[Key]:
        """The rule and every rule that it refers to."""
        if key not in self._known:
            found = {key}
            for can in references(item_condition(self.program.rules[key])):
                found |= self.of((can.target.type, can.operation))
            self._known[key] = frozenset(found)
        return self._known[key]

    def asking(self, key: Key) -> list[Key]:
        """The other rules that refer to this one."""
        if self._asking is None:
            self._asking = {}
            for other in self.program.rules:
                for reached in self.of(other) - {other}:
                    self._asking.setdefault(reached, []).append(other)
        return self._asking.get(key, [])


class Observed:
    """The cases of one rule, and what their callers hold."""

    def __init__(self, program: Program, rule: Rule, cases: Iterable[tuple[Case, Reference]]) -> None:
        self.program = program
        self.rule = rule
        listed = tuple(cases)
        self.cases = tuple(case for case, _ in listed)
        self.asked = tuple(EvaluationContext(reference, case.request) for case, reference in listed)
        self.every: Mask = (1 << len(self.cases)) - 1
        self.named = self._mask(RESOURCE in asked.complete for asked in self.asked)
        self._atoms: dict[Atom, Mask] = {}
        self._cans: dict[Can, Mask] = {}
        self._changed: tuple[Rule | None, dict[Can, Mask]] = (None, {})
        self._flags: dict[str, Mask] = {}
        self._types: dict[tuple[str, str], Mask] = {}
        self.allowed = self.outcome(rule)

    @staticmethod
    def _mask(bits: Iterable[bool]) -> Mask:
        return sum(1 << i for i, bit in enumerate(bits) if bit)

    def outcome(self, rule: Rule, changed: Rule | None = None, reach: RuleDependencies | None = None) -> Mask:
        """The cases that a rule allows, which may be a changed version of their own. `changed`: as for `holds`."""
        call = self.holds(rule.requires, changed, reach)
        if rule.gate != ALWAYS:
            call &= self.holds(rule.gate, changed, reach)
        if rule.each is None or not call:
            return call
        return call & (self.holds(rule.each, changed, reach) | (self.every & ~self.named))

    def holds(self, formula: Formula, changed: Rule | None = None, reach: RuleDependencies | None = None) -> Mask:
        """The cases in which a condition holds; `changed`: a rule that replaces its original."""
        return _Holding(self, changed, reach).fold(formula)

    def can(self, can: Can, changed: Rule | None, reach: RuleDependencies | None) -> Mask:
        """The cases in which the rule that a `can` refers to holds for its object."""
        key = can.target.type, can.operation
        if changed is not None and reach is not None and (changed.entity, changed.operation) in reach.of(key):
            if self._changed[0] is not changed:
                self._changed = changed, {}
            known = self._changed[1]
            if can not in known:
                rule = changed if (changed.entity, changed.operation) == key else self.program.rules[key]
                known[can] = self.holds(move(item_condition(rule), can.target.slot), changed, reach)
            return known[can]
        if can not in self._cans:
            self._cans[can] = self.holds(move(item_condition(self.program.rules[key]), can.target.slot))
        return self._cans[can]

    def atom(self, atom: Atom) -> Mask:
        """The cases in which an atom holds."""
        if atom not in self._atoms:
            self._atoms[atom] = self._mask(asked.why(atom) is not None for asked in self.asked)
        return self._atoms[atom]

    def flag(self, flag: str) -> Mask:
        """The cases that set a flag."""
        if flag not in self._flags:
            self._flags[flag] = self._mask(flag in case.request.flags for case in self.cases)
        return self._flags[flag]

    def of_type(self, slot: str, type_: str) -> Mask:
        """The cases whose object in a slot has a type."""
        if (slot, type_) not in self._types:
            self._types[slot, type_] = self._mask(asked.types[slot] == type_ for asked in self.asked)
        return self._types[slot, type_]

    def setting(self, flags: frozenset[str], asked_about: Iterable[str], types: Mapping[str, str]) -> Mask:
        """The cases with exactly these of the flags that the rule depends on, and objects of these types."""
        mask = self.every
        for flag in asked_about:
            mask &= self.flag(flag) if flag in flags else ~self.flag(flag)
        for slot, type_ in types.items():
            mask &= self.of_type(slot, type_)
        return mask


class _Holding(Algebra[Mask]):
    """The cases in which conditions hold; arguments as for `Observed.holds`."""

    def __init__(self, observed: Observed, changed: Rule | None, reach: RuleDependencies | None) -> None:
        self._observed = observed
        self._changed = changed
        self._reach = reach

    def atom(self, atom: Atom) -> Mask:
        return self._observed.atom(atom)

    def all_of(self, values: Iterable[Mask]) -> Mask:
        mask = self._observed.every
        for value in values:
            mask &= value
            if not mask:
                break
        return mask

    def any_of(self, values: Iterable[Mask]) -> Mask:
        return reduce(or_, values, 0)

    def when(self, when: When) -> Mask:
        unset = self._observed.every & ~self._observed.flag(when.flag)
        return unset | self.fold(when.body)

    def can(self, can: Can) -> Mask:
        return self._observed.can(can, self._changed, self._reach)

    def by_type(self, choice: ByType) -> Mask:
        mask = 0
        for type_, case_ in choice.cases:
            of_type = self._observed.of_type(choice.slot, type_)
            mask |= of_type and (of_type & self.fold(case_))
        return mask
