"""What the passed cases prove: cell coverage, and the mutation score: which mutants some case notices, and which are equivalent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from privtab.errors import Undecided
from privtab.ir.exact import ImplicationChecker
from privtab.ir.formula import call_condition, item_condition, leaves
from privtab.ir.nodes import Formula, Program, Rule
from privtab.ir.shapes import rule_flags
from privtab.ir.support import Tool, check_support
from privtab.scenarios.coverage import Coverage, Form, percent
from privtab.scenarios.masks import Budget, Key, Observed, RuleDependencies
from privtab.scenarios.mutants import Mutant, Mutants
from privtab.scenarios.nodes import Case, CasePlan
from privtab.scenarios.run import ReferenceEngine, effect_text
from privtab.scenarios.suggest import Setting, suggestions


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many mutants were killed, how many are equivalent to their rule, and those that survived."""

    killed: int
    equivalent: int
    survived: tuple[Mutant, ...]
    undecided: tuple[Rule, ...] = ()
    """Rules with mutants that exceeded the budget; those mutants are not counted."""

    @property
    def mutants(self) -> int:
        """The number of mutants that are not equivalent."""
        return self.killed + len(self.survived)

    @property
    def percent(self) -> float:
        """The share of killed mutants. Without mutants it is 100, or 0 if some rules exceeded the budget."""
        return percent(self.killed, self.mutants) if self.mutants or not self.undecided else 0.0


class Scoring:
    """Scores the mutants of some rules by cases that pass."""

    def __init__(self, program: Program, rules: Mapping[Key, Rule], observed: Mapping[Key, Observed]) -> None:
        self.program = program
        self.rules = rules
        self.observed = observed
        self.dependencies = RuleDependencies(program)
        self.mutants = Mutants(program, self.dependencies)
        self.exact = ImplicationChecker(program)

    def score(self, on_progress: Callable[[int], None] = lambda _: None) -> Score:
        """The score over all rules; `on_progress` is called after each rule."""
        killed = equivalent = 0
        survived: list[Mutant] = []
        undecided: list[Rule] = []
        for rule in self.rules.values():
            budget = Budget(self.exact, rule)
            size = sum(1 for _ in leaves(self.program, item_condition(rule)))
            try:
                for mutant in self.mutants.of(rule):
                    budget.spend(size)
                    if self.kills(mutant):
                        killed += 1
                    elif self.is_equivalent(mutant, budget):
                        equivalent += 1
                    else:
                        survived.append(mutant)
            except Undecided:
                undecided.append(rule)
            on_progress(1)
        return Score(killed=killed, equivalent=equivalent, survived=tuple(survived), undecided=tuple(undecided))

    def kills(self, mutant: Mutant) -> bool:
        """Whether some case gets another answer, from the mutated rule or from one that refers to it by `can`."""
        key = mutant.rule.entity, mutant.rule.operation
        observed = self.observed.get(key)
        if mutant.change == "effect":
            return observed is not None and self._effects_differ(observed, mutant)
        if mutant.change == "report":
            return observed is not None and any(case.expected.report is not None for case in observed.cases)
        if observed is not None and observed.outcome(mutant.rule) != observed.allowed:
            return True
        for dependent_key in self.dependencies.dependents(key):
            dependent = self.observed.get(dependent_key)
            if (
                dependent is not None
                and dependent.outcome(dependent.rule, mutant.rule, self.dependencies) != dependent.allowed
            ):
                return True
        return False

    @staticmethod
    def _effects_differ(observed: Observed, mutant: Mutant) -> bool:
        for context, case in zip(observed.contexts, observed.cases, strict=True):
            if case.expected.allowed and case.expected.effects is not None:
                effects = sorted(effect_text(context, effect) for effect in mutant.rule.effects)
                if effects != sorted(case.expected.effects):
                    return True
        return False

    def is_equivalent(self, mutant: Mutant, budget: Budget | None = None) -> bool:
        """Whether no state and no request distinguishes the mutant from its rule; raises Undecided if too expensive."""
        rule, changed = mutant.original, mutant.rule
        if rule.effects != changed.effects or rule.report != changed.report:
            return False
        pairs: list[tuple[Formula, Formula, str | None]] = [(item_condition(rule), item_condition(changed), None)]
        if rule.unnamed:
            pairs.append((call_condition(rule), call_condition(changed), rule.entity))
        budget = budget or Budget(self.exact, rule)
        both_ways = ((first, second, unnamed) for f, g, unnamed in pairs for first, second in ((f, g), (g, f)))
        return all(
            budget.ask(partial(self.exact.always_implies, rule, f, g, unnamed=unnamed)) for f, g, unnamed in both_ways
        )


PLAIN: tuple[Form, ...] = ("",)
FORMS: tuple[Form, ...] = ("item", "call")


def observe(plan: CasePlan, passed: Iterable[Case], engine: ReferenceEngine | None = None) -> dict[Key, Observed]:
    """The cases of each rule and what their callers hold; `engine`: one that has seen the states already."""
    engine = engine or ReferenceEngine(plan.program)
    references = [engine.reference(world) for world in plan.worlds]
    by_rule: defaultdict[Key, list[Case]] = defaultdict(list)
    for case in passed:
        by_rule[case.request.resource.type, case.request.action].append(case)
    return {
        key: Observed(
            plan.program, plan.program.rules[key], ((case.request, references[case.world]) for case in cases), cases
        )
        for key, cases in by_rule.items()
    }


def coverage(plan: CasePlan, observed: dict[Key, Observed]) -> Coverage:
    """The coverage of the plan's rules."""
    check_support(plan.program, Tool.COVERAGE)
    return Coverage(plan.program, plan.rules, observed)


def score(plan: CasePlan, observed: dict[Key, Observed], on_progress: Callable[[int], None] = lambda _: None) -> Score:
    """The mutation score over the plan's rules."""
    check_support(plan.program, Tool.MUTATION)
    return Scoring(plan.program, plan.rules, observed).score(on_progress)


def suggested(plan: CasePlan, coverage_: Coverage | None, score_: Score | None) -> str:
    """Entries of `needs` for the untested cells, and for rules with faults that no case notices."""
    settings_by_rule: dict[str, tuple[Rule, set[Setting]]] = {}
    for rule in {
        rule.id: rule for measure in (coverage_, score_) if measure is not None for rule in measure.undecided
    }.values():
        # Not every kind of request was looked at: start with those without flags and those with all of them.
        types = tuple((slot.name, slot.types[0]) for slot in rule.withs if slot.polymorphic)
        settings: set[Setting] = {
            (flags, types, form)
            for flags in (frozenset[str](), frozenset(rule_flags(plan.program, rule)))
            for form in (FORMS if rule.each is not None else PLAIN)
        }
        settings_by_rule[rule.id] = rule, settings
    rules_with_survivors = {mutant.original.id for mutant in score_.survived} if score_ else set()
    for cell in coverage_.cells if coverage_ else ():
        if not cell.covered or cell.rule.id in rules_with_survivors:
            setting = cell.flags, tuple(cell.types.items()), cell.form
            settings_by_rule.setdefault(cell.rule.id, (cell.rule, set()))[1].add(setting)
    return suggestions(plan.program, settings_by_rule)
