"""Results with what they prove: cell coverage and mutation score of the cases that passed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from privtab.ir.nodes import Rule
from privtab.reference.evaluate import Reference
from privtab.scenarios.coverage import Coverage
from privtab.scenarios.engines import ReferenceEngine
from privtab.scenarios.masks import Key, Observed
from privtab.scenarios.nodes import Case, Plan
from privtab.scenarios.score import Score, Scoring
from privtab.scenarios.suggest import Setting, suggestions


def observe(plan: Plan, passed: Iterable[Case], engine: ReferenceEngine | None = None) -> dict[Key, Observed]:
    """The cases of each rule and what their callers have; `engine`: one that has looked at the states already."""
    engine = engine or ReferenceEngine(plan.program)
    references = [engine.reference(world) for world in plan.worlds]
    by_rule: defaultdict[Key, list[tuple[Case, Reference]]] = defaultdict(list)
    for case in passed:
        by_rule[case.request.resource.type, case.request.action].append((case, references[case.world]))
    return {key: Observed(plan.program, plan.program.rules[key], cases) for key, cases in by_rule.items()}


def coverage(plan: Plan, observed: dict[Key, Observed]) -> Coverage:
    """The cells of the plan's rules."""
    return Coverage(plan.program, plan.rules, observed)


def score(plan: Plan, observed: dict[Key, Observed], said: Callable[[int], None] = lambda _: None) -> Score:
    """The mutation score over the plan's rules."""
    return Scoring(plan.program, plan.rules, observed).score(said)


def suggested(plan: Plan, tested: Coverage | None, scored: Score | None) -> str:
    """Entries of `needs` for the untested cells, and for the rules that have faults which no case notices."""
    wanted: dict[str, tuple[Rule, set[Setting]]] = {}
    unseen = {mutant.original.id for mutant in scored.survived} if scored else set()
    for cell in tested.cells if tested else ():
        if not cell.covered or cell.rule.id in unseen:
            setting = cell.flags, tuple(cell.types.items()), cell.form
            wanted.setdefault(cell.rule.id, (cell.rule, set()))[1].add(setting)
    return suggestions(plan.program, wanted)
