"""Cells of rows about a root that all objects share: what no suggestion covers no state proves, and levels of a type that nests are told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import rooted_policies
from seeds import seeds
from shop_policy import failed

from privtab.pipeline import load_program
from privtab.reference import EvaluationContext, Reference
from privtab_testing.scenarios import CasePlan
from privtab_testing.scenarios.collect import plans
from privtab_testing.scenarios.masks import Observed
from privtab_testing.scenarios.prove import Cell, Coverage, coverage, observe, score, suggested


def key(cell: Cell) -> Cell:
    return replace(cell, covered=False, types=tuple(cell.types.items()))  # type: ignore[arg-type]


def with_suggestions(text: str, folder: Path) -> CasePlan:
    """The plan of a policy with what is suggested for all of its rows."""
    path = folder / "small.yaml"
    path.write_text(text, encoding="utf-8")
    [plan] = plans([path])
    entries = suggested(plan, coverage(plan, observe(plan, [])), None)
    (folder / "small.scenarios.yaml").write_text(f"scenarios: 1\n{entries}", encoding="utf-8")
    [plan] = plans([path])
    return plan


def prove(seed: int, folder: Path, number: int = 10) -> None:
    """Prove every cell that some state proves, and no other; and notice every fault."""
    plan = with_suggestions(rooted_policies.pair(seed)[0], folder)
    assert failed(plan) == []
    observed = observe(plan, plan.cases)
    cells = coverage(plan, observed)
    assert [(cell.rule.id, cell.text, cell.setting) for cell in cells.untested] == []
    assert [mutant.text for mutant in score(plan, observed).survived] == []
    known = {repr(key(cell)) for cell in cells.cells}
    program = load_program(folder / "small.yaml")
    for pair, rule in program.rules.items():
        tried = rooted_policies.asked(program, rule, seed, number)
        seen = Observed(
            program, rule, (EvaluationContext(Reference(program, state), request) for request, state in tried)
        )
        for cell in Coverage(program, {pair: rule}, {pair: seen}).cells:
            assert not cell.covered or repr(key(cell)) in known, (cell.rule.id, cell.text, cell.setting)


@pytest.mark.parametrize("seed", seeds(range(40), quick=8))
def test_cells_are_those_that_some_state_proves(tmp_path: Path, seed: int) -> None:
    prove(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 10_000, 500))
def test_cells_of_many_policies(tmp_path: Path, subtests: pytest.Subtests, search_seed: int, first: int) -> None:
    for seed in range(search_seed + first, search_seed + first + 500):
        with subtests.test(seed=seed):
            prove(seed, tmp_path)
