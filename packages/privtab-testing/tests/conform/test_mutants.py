"""Every fault that `privtab test` knows, served by our AuthZEN server, is found."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from itertools import count

import pytest
from conforming_server import served, shipped_plan

from privtab.ir import Program
from privtab.ir.formula import references
from privtab.pipeline import load_program
from privtab.state import State
from privtab_testing.conform import QuestionPlan, Verdict
from privtab_testing.conform.plan import plan
from privtab_testing.conform.report import Report, report
from privtab_testing.conform.run import Settings, run
from privtab_testing.scenarios.masks import dependencies, dependents
from privtab_testing.scenarios.mutants import Mutants
from privtab_testing.scenarios.prove import Scoring


def report_of(planned: QuestionPlan, program: Program) -> Report:
    """The report on a server that decides by a program."""
    driver = served(program)
    outcome = run(planned, planned.questions, driver, Settings())
    assert outcome.failure is None, outcome.failure
    return report(planned, outcome, driver, (), date(2030, 1, 1))


def unnoticed(planned: QuestionPlan, every: int = 1) -> list[str]:
    """The faults in rows, of every so many, that the questions about these rows and about their dependents miss."""
    program = planned.program
    mutants, scoring = Mutants(program), Scoring(program, program.rules, {})
    missed: list[str] = []
    numbers = count()
    for key, rule in program.rules.items():
        keys = {key, *dependents(program, key)}
        needed = {other for affected in keys for other in dependencies(program, affected)}
        questions = tuple(q for q in planned.questions if (q.rule.entity, q.rule.operation) in keys)
        world = replace(planned.world, state=State.merged(question.state for question in questions))
        smaller = replace(planned, questions=questions, world=world)
        for mutant in mutants.shown(rule):
            if next(numbers) % every or scoring.is_equivalent(mutant):
                continue
            referred = {(can.target.type, can.operation) for can in references(mutant.rule.item_condition)}
            included = needed.union(*(dependencies(program, other) for other in referred))
            rules = {other: program.rules[other] for other in program.rules if other in included} | {key: mutant.rule}
            if not any(row.findings for row in report_of(smaller, replace(program, rules=rules)).rows):
                missed.append(f"{rule.id}: {mutant.text}")
    return missed


@pytest.mark.parametrize("policy", ["cdap/final"])
def test_a_server_that_obeys_agrees_in_every_cell(policy: str) -> None:
    planned = shipped_plan(policy)
    result = report_of(planned, planned.program)
    assert not [finding.question.id for row in result.rows for finding in row.findings]
    assert set(result.cells) == {Verdict.AGREES}
    assert set(result.verdicts) == {Verdict.AGREES}


def test_faults_are_found_over_authzen() -> None:
    planned = plan(load_program("cdap/final"), abilities=None)
    assert unnoticed(planned, every=40) == []


@pytest.mark.parametrize(
    "policy",
    [pytest.param("cdap/final", marks=pytest.mark.slow), pytest.param("gravitino/1.1.0", marks=pytest.mark.long)],
)
def test_every_fault_is_found_over_authzen(policy: str) -> None:
    planned = plan(load_program(policy), abilities=None)
    assert len(planned.questions) <= 3 * len(planned.cells)
    assert unnoticed(planned) == []
