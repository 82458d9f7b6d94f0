"""Decides all cases of one rule at once, within a budget: a mask is a number with one bit for each case."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from operator import or_
from typing import TypeAlias, TypeVar

from privtab.base import LEFT_OUT, Undecided, once
from privtab.ir import (
    ALWAYS,
    RESOURCE,
    Algebra,
    Atom,
    ByType,
    Can,
    Formula,
    ImplicationChecker,
    Program,
    Rule,
    When,
    walk_reached,
    with_targets,
)
from privtab.reference import EvaluationContext
from privtab_testing.scenarios import Case

Key: TypeAlias = tuple[str, str]
"""An entity type and an operation."""
Mask: TypeAlias = int


def dependencies(program: Program, key: Key) -> frozenset[Key]:
    """A rule and every rule that it refers to by `can`."""
    known = _dependencies(program)
    if key not in known:
        reached = walk_reached(program, program.rules[key].item_condition)
        known[key] = frozenset({key, *((n.target.type, n.operation) for n in reached if isinstance(n, Can))})
    return known[key]


@once
def _dependencies(_program: Program) -> dict[Key, frozenset[Key]]:
    """The rules and those that they refer to, as far as `dependencies` was asked about them."""
    return {}


def dependents(program: Program, key: Key) -> list[Key]:
    """The other rules that refer to a rule."""
    return _dependents(program).get(key, [])


@once
def _dependents(program: Program) -> dict[Key, list[Key]]:
    found: dict[Key, list[Key]] = {}
    for other in program.rules:
        for dependency in dependencies(program, other) - {other}:
            found.setdefault(dependency, []).append(other)
    return found


class Observed:
    """The cases of one rule as masks, and the holdings of their callers in a state, from the reference engine."""

    def __init__(
        self, program: Program, rule: Rule, contexts: Iterable[EvaluationContext], cases: Sequence[Case] = ()
    ) -> None:
        """`contexts`: the request of each case over its state. `cases`: themselves, where there are any."""
        self.program = program
        self.rule = rule
        self.cases = cases
        self.contexts = tuple(contexts)
        self.all_cases: Mask = (1 << len(self.contexts)) - 1
        self._masks: dict[Hashable, Mask] = {}
        self._cans: dict[Can, Mask] = {}
        self._replacement: tuple[Rule | None, dict[Can, Mask]] = (None, {})

    @cached_property
    def allowed(self) -> Mask:
        """The cases that the rule allows."""
        return self.outcome(self.rule)

    @property
    def named(self) -> Mask:
        """The cases that name their resource."""
        return self._where("named", lambda context: RESOURCE in context.complete)

    @property
    def left_to_rule(self) -> Mask:
        """The cases whose objects lie somewhere and whose active roles are held; the others are denied whatever the rule says."""
        return self._where("left to rule", lambda context: not (context.unplaced or context.unheld))

    def _where(self, key: Hashable, condition: Callable[[EvaluationContext], bool]) -> Mask:
        """The cases of which a condition is true, which is looked up once for each key."""
        if key not in self._masks:
            self._masks[key] = sum(1 << n for n, context in enumerate(self.contexts) if condition(context))
        return self._masks[key]

    def outcome(self, rule: Rule, replacement: Rule | None = None) -> Mask:
        """The cases that a rule allows, which may be a changed version of their own. `replacement`: as for `holds`."""
        call = self.left_to_rule & self.holds(rule.requires, replacement)
        if rule.gate != ALWAYS:
            call &= self.holds(rule.gate, replacement)
        if rule.each is None or not call:
            return call
        return call & (self.holds(rule.each, replacement) | (self.all_cases & ~self.named))

    def after(self, changed: Rule) -> Mask:
        """The cases that are allowed if a rule is changed: their own, or one that it refers to."""
        is_own = (changed.entity, changed.operation) == (self.rule.entity, self.rule.operation)
        return self.outcome(changed) if is_own else self.outcome(self.rule, changed)

    def differing(self, changed: Rule) -> Mask:
        """The cases that get another answer if a rule is changed."""
        return self.after(changed) ^ self.allowed

    def holds(self, formula: Formula, replacement: Rule | None = None) -> Mask:
        """The cases in which a condition holds; `replacement`: a rule that replaces its original."""
        return _HoldsAlgebra(self, replacement).fold(formula)

    def can(self, can: Can, replacement: Rule | None) -> Mask:
        """The cases in which the rule that a `can` refers to holds for its object."""
        key = can.target.type, can.operation
        replaced = None if replacement is None else (replacement.entity, replacement.operation)
        if replacement is None or replaced not in dependencies(self.program, key):
            cache, rule, replacement = self._cans, self.program.rules[key], None
        else:
            if self._replacement[0] is not replacement:
                self._replacement = replacement, {}
            cache, rule = self._replacement[1], replacement if replaced == key else self.program.rules[key]
        if can not in cache:
            slot = can.target.slot
            condition = with_targets(
                rule.item_condition, lambda of: replace(of, slot=slot) if of.slot == RESOURCE else of
            )
            cache[can] = self.holds(condition, replacement)
        return cache[can]

    def atom(self, atom: Atom) -> Mask:
        """The cases in which an atom holds."""
        known = self._masks.get(atom)
        return self._where(atom, lambda context: context.holds(atom)) if known is None else known

    def flag(self, flag: str) -> Mask:
        """The cases that set a flag."""
        return self._where(("flag", flag), lambda context: flag in context.flags)

    def of_type(self, slot: str, type_: str) -> Mask:
        """The cases whose object in a slot has a type."""
        return self._where(("type", slot, type_), lambda context: context.types.get(slot, LEFT_OUT) == type_)

    def setting(self, flags: frozenset[str], rule_flags: Iterable[str], types: Mapping[str, str]) -> Mask:
        """The cases with exactly these of the flags that the rule depends on, and objects of these types."""
        mask = self.all_cases
        for flag in rule_flags:
            mask &= self.flag(flag) if flag in flags else ~self.flag(flag)
        for slot, type_ in types.items():
            mask &= self.of_type(slot, type_)
        return mask


class _HoldsAlgebra(Algebra[Mask]):
    """The cases in which conditions hold; arguments as for `Observed.holds`."""

    def __init__(self, observed: Observed, replacement: Rule | None) -> None:
        self._observed = observed
        self._replacement = replacement

    def atom(self, atom: Atom) -> Mask:
        return self._observed.atom(atom)

    def all_of(self, values: Iterable[Mask]) -> Mask:
        mask = self._observed.all_cases
        for value in values:
            mask &= value
            if not mask:
                break
        return mask

    def any_of(self, values: Iterable[Mask]) -> Mask:
        return reduce(or_, values, 0)

    def when(self, when: When) -> Mask:
        unset = self._observed.all_cases & ~self._observed.flag(when.flag)
        return unset | self.fold(when.body)

    def can(self, can: Can) -> Mask:
        return self._observed.can(can, self._replacement)

    def by_type(self, choice: ByType) -> Mask:
        mask = 0
        for type_, body in choice.cases:
            of_type = self._observed.of_type(choice.slot, type_)
            mask |= of_type and (of_type & self.fold(body))
        return mask


def noticing(program: Program, observed: Mapping[Key, Observed], changed: Rule) -> Iterator[tuple[Key, Mask]]:
    """The rules of which cases get another answer if one is changed, with these cases: itself, then the rules that refer to it."""
    key = changed.entity, changed.operation
    for other in (key, *dependents(program, key)):
        differing = observed[other].differing(changed) if other in observed else 0
        if differing:
            yield other, differing


STEPS = 100_000
"""The most parts of conditions that are looked at for one rule."""
SETTING_COST = STEPS // 256
"""The cost of one kind of request: flags, and types of objects."""
SOLVER_BUDGETS = 2.0
"""The factor by which one rule may exceed the solver's budget for one question."""

Returned = TypeVar("Returned")


class Budget:
    """The remaining budget of one rule; raises `Undecided` when it is spent."""

    def __init__(self, exact: ImplicationChecker, rule: Rule) -> None:
        self._exact = exact
        self._rule = rule
        self._steps = STEPS
        self._questions = SOLVER_BUDGETS

    def spend(self, steps: int) -> None:
        """Spend steps."""
        self._steps -= steps
        if self._steps < 0:
            raise Undecided(f"`{self._rule.id}` takes more than {STEPS:,} steps")

    def ask(self, question: Callable[[], Returned]) -> Returned:
        """Ask a question that `ImplicationChecker` passes to its solver, and return the answer."""
        if self._questions <= 0:
            raise Undecided(f"`{self._rule.id}` asks too much of the solver")
        self._exact.solver.renew()
        try:
            return question()
        finally:
            self._questions -= self._exact.solver.spent
