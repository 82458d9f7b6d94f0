"""Every fault that `privtab test` knows, served by our AuthZEN server, is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from itertools import islice

import pytest
from conforming_server import served

from privtab.conform.nodes import Plan, Verdict
from privtab.conform.plan import plan
from privtab.conform.report import Report, report
from privtab.conform.run import Settings, run
from privtab.ir.nodes import Program
from privtab.pipeline import load_program
from privtab.scenarios.masks import RuleDependencies
from privtab.scenarios.mutants import Mutant, Mutants
from privtab.scenarios.score import Scoring


def asked(planned: Plan, program: Program, rows: set[str] | None = None) -> Report:
    """The report on a server that decides by a program; `rows`: only these can differ."""
    driver = served(program)
    questions = [question for question in planned.questions if rows is None or question.rule.id in rows]
    outcome = run(planned, questions, driver, Settings())
    assert outcome.failure is None, outcome.failure
    return report(planned, outcome, driver, (), date(2030, 1, 1))


def faults(program: Program) -> Iterator[tuple[Mutant, set[str]]]:
    """The mutants that answer otherwise for some request, and the rows that they can affect."""
    dependencies = RuleDependencies(program)
    mutants, scoring = Mutants(program, dependencies), Scoring(program, program.rules, {})
    for key, rule in program.rules.items():
        rows = {rule.id, *(program.rules[other].id for other in dependencies.dependents(key))}
        for mutant in mutants.of(rule):
            if mutant.change not in ("effect", "report") and not scoring.is_equivalent(mutant):
                yield mutant, rows


def unnoticed(planned: Plan, found: Iterator[tuple[Mutant, set[str]]]) -> list[str]:
    program = planned.program
    missed: list[str] = []
    for mutant, rows in found:
        key = mutant.rule.entity, mutant.rule.operation
        changed = replace(program, rules={**program.rules, key: mutant.rule})
        if not any(row.findings for row in asked(planned, changed, rows).rows):
            missed.append(f"{mutant.original.id}: {mutant.text}")
    return missed


@pytest.mark.parametrize("policy", ["cdap/final"])
def test_a_server_that_obeys_agrees_in_every_cell(policy: str) -> None:
    planned = plan(load_program(policy))
    result = asked(planned, planned.program)
    assert not [finding.question.id for row in result.rows for finding in row.findings]
    assert set(result.cells) == {Verdict.AGREES}
    assert set(result.verdicts) == {Verdict.AGREES}


def test_faults_are_found_over_authzen() -> None:
    planned = plan(load_program("cdap/final"))
    assert unnoticed(planned, islice(faults(planned.program), 0, None, 40)) == []


@pytest.mark.long
@pytest.mark.parametrize("policy", ["cdap/final", "gravitino/1.1.0"])
def test_every_fault_is_found_over_authzen(policy: str) -> None:
    planned = plan(load_program(policy))
    assert len(planned.questions) <= 3 * len(planned.cells)
    assert unnoticed(planned, faults(planned.program)) == []
