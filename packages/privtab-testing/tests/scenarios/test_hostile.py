"""Policies that cost exact tools the most: what is not worked out is said, and fails the shares that must be reached."""

from __future__ import annotations

from pathlib import Path

import generated_programs
import hostile
import pytest

from privtab.command._app import run
from privtab_testing.scenarios.prove import Coverage, Scoring

SCENARIOS = """\
scenarios: 1
policy: p.yaml
needs:
  - ask: load shop:s
    flags: [f1]
    by: [["P0 (shop:s)", "P2 (shop:s)"]]
    effects: []
"""


@pytest.mark.parametrize(
    "name",
    [
        "30 flags",
        "30 open flags",
        pytest.param("12 disjunctions of 4", marks=pytest.mark.long),
        "chain of 30 can, 3 alternatives each",
    ],
)
def test_every_fault_of_a_costly_row_is_decided(name: str) -> None:
    program = generated_programs.lowered(hostile.POLICIES[name]())[0]
    score = Scoring(program, program.rules, {}).score()
    assert not score.undecided
    assert (score.killed, score.percent) == (0, 0)
    assert score.mutants


@pytest.mark.slow
def test_a_row_with_too_many_faults_is_named_and_those_left_out_are_not_counted() -> None:
    program = generated_programs.lowered(hostile.POLICIES["8,000 alternatives"]())[0]
    score = Scoring(program, program.rules, {}).score()
    assert [rule.id for rule in score.undecided] == ["hostile/shop/load"]
    assert score.killed == 0
    assert score.percent == 0


@pytest.mark.parametrize("name", ["20 flags", "20 clauses of 20", "3 objects of any of 40 types"])
def test_a_row_with_too_many_cells_is_named(name: str) -> None:
    program = generated_programs.lowered(hostile.POLICIES[name]())[0]
    coverage = Coverage(program, program.rules, {})
    assert len(coverage.undecided) == 1
    assert coverage.percent == 0


def test_the_command_says_what_was_not_decided_and_fails_the_least_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yaml").write_text(hostile.flags(20))
    (tmp_path / "p.scenarios.yaml").write_text(SCENARIOS)
    assert run(["test", str(tmp_path / "p.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "not decided, and not counted" in shown
    assert "has more cells than the budget allows" in shown
    assert run(["test", str(tmp_path / "p.yaml"), "--min", "coverage=0"]) == 1
    assert "1 row was not decided" in capsys.readouterr().err


@pytest.mark.slow
def test_suggested_entries_for_many_flags_are_few_and_hold(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(hostile.flags(20))
    suggested = tmp_path / "p.scenarios.yaml"
    run(["test", str(tmp_path / "p.yaml"), "--suggest", "-o", str(suggested)])
    assert 0 < len(suggested.read_text()) < 100_000
    assert run(["test", str(tmp_path / "p.yaml")]) == 0


def test_rows_that_require_each_other_twice_are_scored_and_suggested(tmp_path: Path) -> None:
    text = hostile.POLICIES["chain of 30 can, each asked for twice"]()
    (tmp_path / "p.yaml").write_text(text)
    (tmp_path / "p.scenarios.yaml").write_text(hostile.scenarios(text))
    suggested = tmp_path / "p.more.scenarios.yaml"
    run(["test", str(tmp_path / "p.yaml"), "--mutation", "--suggest", "-o", str(suggested)])
    assert 0 < len(suggested.read_text()) < 100_000
