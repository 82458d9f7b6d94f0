"""The results for the cases of one subject: wrong answers, coverage, and mutation score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from privtab.base import FileError, SourceFile, Span, dataclass, read_text
from privtab.ir import Rule, atom_text
from privtab.language import CaseResult, SuiteResult, read_policy
from privtab_testing.scenarios import Case, CasePlan, Subject
from privtab_testing.scenarios.mutants import CHANGES, Mutant
from privtab_testing.scenarios.prove import Cell, Coverage, Score
from privtab_testing.scenarios.prove import undecided as undecided_by
from privtab_testing.scenarios.run import Failure, reasons

MAX_LINES = 8
"""The most lines of a row that are shown."""


def row_lines(span: Span, limit: int = MAX_LINES) -> list[str]:
    """The line of a row's key and what is indented below it; empty if the file is gone."""
    lines = _lines(span.path)[span.line - 1 :]
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    continuation = takewhile(lambda line: line.startswith(" " * (indent + 1)), lines[1:limit])
    return [line[indent:].rstrip() for line in [*lines[:1], *continuation]]


@lru_cache(maxsize=16)
def _lines(path: str) -> tuple[str, ...]:
    try:
        return tuple(read_text(path).splitlines())
    except FileError:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenReading:
    """An alternative reading chosen for a row."""

    name: str
    text: str
    span: Span


def chosen_reading(subject: Subject, rule: Rule) -> ChosenReading | None:
    """The reading that was chosen for a rule; None if the row's own text decides."""
    chosen_names = dict(subject.readings)
    rows = (f"{rule.entity}/{rule.operation}", f"{rule.origin}/{rule.operation}")
    alternatives = dict(rule.ambiguous.readings) if rule.ambiguous is not None else {}
    for name in (chosen_names[row] for row in rows if row in chosen_names):
        if name in alternatives:
            span = _readings(subject.policy).get((rule.span, name), rule.span)
            return ChosenReading(name=name, text=alternatives[name], span=span)
    return None


@lru_cache(maxsize=16)
def _readings(policy: Path) -> dict[tuple[Span, str], Span]:
    """The spans of the readings, by the span of their row and their name."""
    tables, _ = read_policy(SourceFile.load(policy))
    return {
        (decl.span, reading.name.value): reading.name.span
        for decl in (() if tables is None else tables.all_rows)
        for reading in decl.readings
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result for one plan."""

    plan: CasePlan
    cases: tuple[Case, ...]
    failures: tuple[Failure, ...]
    coverage: Coverage | None = None
    score: Score | None = None
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The policy by system and version, and the selected variant and readings in parentheses."""
        program, subject = self.plan.program, self.plan.subject
        return f"{program.system}/{program.version}{subject.options_text()}"

    @property
    def short_name(self) -> str:
        """A shorter form, with only the number of readings if there are several."""
        program, subject = self.plan.program, self.plan.subject
        return f"{program.system}/{program.version}{subject.options_text(1)}"

    @property
    def undecided(self) -> tuple[Rule, ...]:
        """The rules whose cells or faults exceeded the budget."""
        return undecided_by(self.coverage, self.score)

    @property
    def passed(self) -> int:
        """The number of cases that were answered as expected."""
        return len(self.cases) - len({id(failure.case) for failure in self.failures})

    def rule(self, case: Case) -> Rule:
        """The rule of a case."""
        return self.plan.program.rules[case.request.resource.type, case.request.action]

    def chosen_reading(self, case: Case) -> ChosenReading | None:
        """The alternative reading that was chosen for the rule."""
        return chosen_reading(self.plan.subject, self.rule(case))

    def lines(self, case: Case) -> list[str]:
        """The text behind the decision: that of the reading, else the row as it stands in the file."""
        reading = self.chosen_reading(case)
        return row_lines(self.rule(case).span) if reading is None else [f"{reading.name}: {reading.text}"]


def result_json(result: Result) -> dict[str, Any]:
    """A result as JSON."""
    subject = result.plan.subject
    return {
        "policy": subject.policy.as_posix(),
        "system": result.plan.program.system,
        "version": result.plan.program.version,
        "variant": subject.variant,
        "readings": dict(subject.readings),
        "files": list(result.plan.files),
        "cases": len(result.cases),
        "passed": result.passed,
        "failures": [_failure_json(result, failure) for failure in result.failures],
        "coverage": None if result.coverage is None else _coverage_json(result.coverage),
        "mutation": None if result.score is None else _score_json(result.score),
    }


def _failure_json(result: Result, failure: Failure) -> dict[str, Any]:
    """The case and its position, the expected and actual answers, and the row that decided."""
    case, rule = failure.case, result.rule(failure.case)
    context, reading = failure.decision.context, result.chosen_reading(case)
    return {
        "name": case.name,
        "kind": case.kind,
        "path": case.span.path,
        "line": case.span.line,
        "column": case.span.column,
        "request": case.request.to_json(),
        "holds": case.holds,
        "why": case.why,
        "fault": failure.fault,
        "engine": failure.engine,
        "expected": failure.expected,
        "got": failure.got,
        "missing": context.get("missing", []),
        "reasons": context.get("reasons", []),
        "row": row_json(rule) | {"text": "\n".join(row_lines(rule.span))},
        "reading": reading and {"name": reading.name, "text": reading.text, "line": reading.span.line},
    }


def row_json(rule: Rule) -> dict[str, Any]:
    """The row of a rule: its id, its position and its source."""
    return {
        "rule": rule.id,
        "path": rule.span.path,
        "line": rule.span.line,
        "source": rule.source_text,
    }


def _coverage_json(coverage: Coverage) -> dict[str, Any]:
    return {
        "cells": len(coverage.cells),
        "covered": coverage.covered,
        "percent": coverage.percent,
        "rows": [
            row_json(rule) | {"cells": cells, "covered": covered}
            for rule, cells, covered in coverage.by_rule().values()
        ],
        "undecided": [row_json(rule) for rule in coverage.undecided],
        "untested": [_cell_json(cell) for cell in coverage.untested],
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    missing = None if cell.missing is None else atom_text(cell.missing, cell.rule, cell.types)
    return row_json(cell.rule) | {
        "proof": cell.proof,
        "set": [atom_text(atom, cell.rule, cell.types) for atom in cell.atoms],
        "without": missing,
        "form": cell.form or None,
        "flags": sorted(cell.flags),
        "with": dict(cell.types),
        "text": cell.text,
    }


def _score_json(score: Score) -> dict[str, Any]:
    return {
        "mutants": score.mutants,
        "killed": score.killed,
        "equivalent": score.equivalent,
        "percent": score.percent,
        "undecided": [row_json(rule) for rule in score.undecided],
        "survived": [_mutant_json(mutant) for mutant in score.survived],
    }


def _mutant_json(mutant: Mutant) -> dict[str, Any]:
    return row_json(mutant.original) | {"change": mutant.change, "kind": CHANGES[mutant.change], "text": mutant.text}


def because(failure: Failure) -> str:
    """The cause of a decision, on one line: its reasons, or a sufficient set."""
    if failure.decision.allowed:
        reasons_text = "; ".join(map(str, reasons(failure.decision)))
        return f"allowed by {reasons_text}" if reasons_text else "anyone may"
    return failure.decision.why_denied() or "no way leads to an allow"


def junit_suites(results: Sequence[Result]) -> list[SuiteResult]:
    """The results for JUnit: a suite for each subject, a test for each case."""
    return [_suite(result) for result in results]


def _suite(result: Result) -> SuiteResult:
    first_failures: dict[int, Failure] = {}
    for failure in result.failures:
        first_failures.setdefault(id(failure.case), failure)
    mean_seconds = result.seconds / max(1, len(result.cases))
    cases = tuple(_test(result, case, first_failures.get(id(case)), mean_seconds) for case in result.cases)
    properties = [("policy", result.plan.subject.policy.as_posix())]
    for name, measure in (("cell coverage", result.coverage), ("mutation score", result.score)):
        properties += [] if measure is None else [(name, f"{measure.percent}")]
    if result.undecided:
        properties.append(("undecided", ", ".join(rule.id for rule in result.undecided)))
    return SuiteResult(name=result.name, cases=cases, properties=tuple(properties))


def _test(result: Result, case: Case, failure: Failure | None, seconds: float) -> CaseResult:
    rule, span = result.rule(case), case.span
    passed = CaseResult(
        name=case.name, classname=rule.id.replace("/", "."), seconds=seconds, file=span.path, line=span.line
    )
    if failure is None:
        return passed
    reading = result.chosen_reading(case)
    place = f"row {rule.span.path}:{rule.span.line}" + (f", reading on line {reading.span.line}" if reading else "")
    text = "\n".join([f"{because(failure)}", place, *result.lines(case)])
    message = f"expected {failure.expected}, got {failure.got}"
    return replace(passed, failure=message, details=text, failure_kind=failure.fault)
