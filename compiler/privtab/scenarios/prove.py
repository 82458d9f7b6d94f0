"""What the passed cases prove: cell coverage and mutation score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from privtab.ir.nodes import Rule
from privtab.ir.shapes import rule_flags
from privtab.ir.support import Tool, check_support
from privtab.scenarios.coverage import Coverage, Form
from privtab.scenarios.engines import ReferenceEngine
from privtab.scenarios.masks import Key, Observed
from privtab.scenarios.nodes import Case, CasePlan
from privtab.scenarios.score import Score, Scoring
from privtab.scenarios.suggest import Setting, suggestions

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
