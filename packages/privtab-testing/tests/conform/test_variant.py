"""A variant of the table that says what a system does: found, written, compiled, and equal in meaning to the system."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from conforming_server import served

from privtab.base import UsageError
from privtab.ir import Formula, ImplicationChecker, Program, Rule, asked_condition
from privtab.pipeline import find_policy, load_program
from privtab_testing.conform import QuestionPlan
from privtab_testing.conform.plan import plan
from privtab_testing.conform.report import readings_of
from privtab_testing.conform.run import Settings, run
from privtab_testing.conform.variant import Proposal, VariantFile, propose
from privtab_testing.scenarios.mutants import Mutants

POLICY = """\
privtab: 1
system: library
version: "1"
entities: {folder: {page:}}
privileges: [READ, WRITE, DELETE]
tables:
  page:
    read:
      requires: READ (page)
      note: as everybody knows
    write: {requires: WRITE (page) and READ (page), ambiguous: {cell: W, readings: {alone: WRITE (page)}, why: unclear}}
    edit: can write (page) and READ (folder)
    drop, delete: DELETE (page)
# What follows belongs to the roles.
roles:
  reader: {grants: {page: READ}}
"""


def answered(planned: QuestionPlan, program: Program, file: VariantFile) -> Proposal:
    """The proposal for a server that decides by a program."""
    outcome = run(planned, planned.questions, served(program), Settings())
    assert outcome.failure is None
    return propose(file, planned, outcome.answers, readings_of(file.path, planned.program))


def changed(program: Program, rule: Rule) -> Program:
    return replace(program, rules={**program.rules, (rule.entity, rule.operation): rule})


def differences(first: Program, second: Program) -> list[str]:
    """The rows in which two programs are not equal in meaning."""

    def conditions(program: Program, rule: Rule) -> Iterator[Formula]:
        for named in (True, False):
            yield asked_condition(program, rule, named=named)

    check, back = ImplicationChecker(first, second), ImplicationChecker(second, first)
    found = []
    for key, rule in first.rules.items():
        other = second.rules[key]
        for a, b in zip(conditions(first, rule), conditions(second, other), strict=True):
            if not (check.always_implies(rule, a, b) and back.always_implies(rule, b, a)):
                found.append(rule.id)
    return found


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "library.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


def misunderstood(path: Path, every: int) -> list[str]:
    """The faults of a policy, of every so many, whose variant is not equal in meaning to the server that has the fault."""
    program = load_program(path)
    planned = plan(program, separate=True)
    mutants = Mutants(program)
    faults = (m for rule in program.rules.values() for m in mutants.shown(rule))
    missed = []
    for mutant in islice(faults, 0, None, every):
        server = changed(program, mutant.rule)
        found = answered(planned, server, VariantFile(path, "observed"))
        path.with_name("v.yaml").write_text(found.text, encoding="utf-8")
        variant = load_program(path.with_name("v.yaml"), variant="observed" if found.changes else None)
        if found.unexplained or differences(server, variant):
            missed.append(f"{mutant.original.id}: {mutant.text}")
    return missed


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_faults_of_a_small_policy_become_variants_of_equal_meaning(library: Path, every: int) -> None:
    assert misunderstood(library, every) == []


def test_a_reading_is_preferred_and_the_rest_of_the_file_stays(library: Path) -> None:
    program = load_program(library)
    reading = load_program(library, readings={"page/write": "alone"})
    found = answered(plan(program, separate=True), reading, VariantFile(library, "observed"))
    assert [change.text for change in found.changes] == ["the reading `alone`"]
    assert found.text.startswith(POLICY.rstrip())
    assert found.text.removeprefix(POLICY) == (
        "variants:\n  observed:\n    title: What the system does\n    tables:\n      page:\n        write: WRITE (page)\n"
    )


def test_differences_that_no_small_change_explains_are_reported_for_each_row(library: Path) -> None:
    program = load_program(library)
    wild = replace(program.rules["page", "read"], requires=program.rules["page", "edit"].requires)
    other = replace(program.rules["page", "delete"], requires=program.rules["page", "read"].requires)
    found = answered(plan(program, separate=True), changed(changed(program, wild), other), VariantFile(library, "x"))
    assert [rule.operation for rule in found.unexplained] == ["read"]
    assert [change.rule.operation for change in found.changes] == ["delete"]


def test_a_further_variant_stands_behind_the_others(library: Path) -> None:
    text = POLICY.replace(
        "# What follows", "variants:\n    strict:\n        tables: {page: {read: WRITE (page)}}\n\n# What follows"
    )
    library.write_text(text, encoding="utf-8")
    program = load_program(library)
    reading = load_program(library, readings={"page/write": "alone"})
    found = answered(plan(program, separate=True), reading, VariantFile(library, "observed"))
    library.write_text(found.text, encoding="utf-8")
    assert "    observed:\n      title: What the system does" in found.text
    assert found.text.index("observed:") < found.text.index("# What follows")
    assert load_program(library, variant="strict").rules["page", "read"] != program.rules["page", "read"]
    assert differences(reading, load_program(library, variant="observed")) == []


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("strict", "variants:\n  strict: {}\n", "has a variant `strict` already"),
        ("other", "variants: {strict: {}}\n", "write them in lines"),
        ("no name", "", "`no name` is no name of a variant"),
    ],
)
def test_a_variant_that_cannot_be_added_is_refused_before_anything_is_asked(
    library: Path, name: str, line: str, message: str
) -> None:
    library.write_text(POLICY + line, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        VariantFile(library, name)


@pytest.mark.parametrize("every", [pytest.param(240, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)])
def test_faults_of_a_shipped_policy_become_variants_of_equal_meaning(tmp_path: Path, every: int) -> None:
    path = tmp_path / "final.yaml"
    shutil.copy(find_policy("cdap/final"), path)
    assert misunderstood(path, every) == []
