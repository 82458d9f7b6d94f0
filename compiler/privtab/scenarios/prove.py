"""What the passed cases prove: cell coverage and mutation score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from privtab.ir.formula import rule_flags
from privtab.ir.nodes import Rule
from privtab.reference.evaluate import Reference
from privtab.scenarios.coverage import Coverage, Form
from privtab.scenarios.engines import ReferenceEngine
from privtab.scenarios.masks import Key, Observed
from privtab.scenarios.nodes import Case, Plan
from privtab.scenarios.score import Score, Scoring
from privtab.scenarios.suggest import Setting, suggestions

PLAIN: tuple[Form, ...] = ("",)
FORMS: tuple[Form, ...] = ("item", "call")


def observe(plan: Plan, passed: Iterable[Case], engine: ReferenceEngine | None = None) -> dict[Key, Observed]:
    """The cases of each rule and what their callers hold; `engine`: one that has seen the states already."""
    engine = engine or ReferenceEngine(plan.program)
    references = [engine.reference(world) for world in plan.worlds]
    by_rule: defaultdict[Key, list[tuple[Case, Reference]]] = defaultdict(list)
    for case in passed:
        by_rule[case.request.resource.type, case.request.action].append((case, references[case.world]))
    return {key: Observed(plan.program, plan.program.rules[key], cases) for key, cases in by_rule.items()}


def coverage(plan: Plan, observed: dict[Key, Observed]) -> Coverage:
    """The coverage of the plan's rules."""
    return Coverage(plan.program, plan.rules, observed)


def score(plan: Plan, observed: dict[Key, Observed], said: Callable[[int], None] = lambda _: None) -> Score:
    """The mutation score over the plan's rules."""
    return Scoring(plan.program, plan.rules, observed).score(said)


def suggested(plan: Plan, tested: Coverage | None, scored: Score | None) -> str:
    """Entries of `needs` for the untested cells, and for rules with faults that no case notices."""
    wanted: dict[str, tuple[Rule, set[Setting]]] = {}
    for rule in {rule.id: rule for cut in (tested, scored) if cut is not None for rule in cut.cut}.values():
        # Not every kind of request was looked at: start with those without flags and those with all of them.
        types = tuple((slot.name, slot.types[0]) for slot in rule.withs if slot.polymorphic)
        asked: set[Setting] = {
            (flags, types, form)
            for flags in (frozenset[str](), frozenset(rule_flags(plan.program, rule)))
            for form in (FORMS if rule.each is not None else PLAIN)
        }
        wanted[rule.id] = rule, asked
    unseen = {mutant.original.id for mutant in scored.survived} if scored else set()
    for cell in tested.cells if tested else ():
        if not cell.covered or cell.rule.id in unseen:
            setting = cell.flags, tuple(cell.types.items()), cell.form
            wanted.setdefault(cell.rule.id, (cell.rule, set()))[1].add(setting)
    return suggestions(plan.program, wanted)
