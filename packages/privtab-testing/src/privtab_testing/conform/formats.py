"""The report of a conformance test as JSON, JUnit, Markdown, one HTML page, and lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from privtab.base import count
from privtab.ir import atom_text
from privtab.language import CaseResult, SuiteResult, junit
from privtab.state import State
from privtab_analysis.diff.markdown import as_text
from privtab_analysis.html import page
from privtab_testing.conform import QuestionPlan, Verdict
from privtab_testing.conform.mistakes import mistakes
from privtab_testing.conform.report import ORDER, WRONG, Finding, Report, RowReport
from privtab_testing.scenarios.results import row_json, row_lines

SHOWN = 5
"""The most rows of one table of a smallest world that are shown."""


def title(report: Report) -> str:
    """The title of a report."""
    program = report.plan.program
    return f"Conformance with {program.system}/{program.version}"


def summary(report: Report) -> str:
    """The result in one line: `131 rows: 120 agree, 3 wider, …`."""
    rows = ", ".join(
        f"{number} {_word(verdict)}" for verdict in reversed(ORDER) if (number := report.verdicts[verdict])
    )
    cells = f"{report.cells[Verdict.AGREES]:,} of {count(len(report.plan.cells), 'cell')} agree"
    wrong = sum(len(row.findings) for row in report.rows)
    asked = count(report.requests, "question") + (f", {wrong:,} answered otherwise," if wrong else "")
    return f"{count(len(report.rows), 'row')}: {rows}; {cells}; {asked} in {report.outcome.seconds:.1f} s"


def mistake_lines(plan: QuestionPlan, *, verbose: bool = False) -> list[str]:
    """The number of kinds of mistakes that the questions of a plan show, and the other kinds; `verbose`: also kinds that the policy cannot show."""
    if not plan.mistakes:
        return []
    possible = {mistake.id for mistake in plan.mistakes}
    impossible = [mistake for mistake in mistakes() if mistake.id not in possible]
    seen = f"{len(plan.mistakes) - len(plan.unseen)} of {count(len(plan.mistakes), 'kind')} of mistakes would be seen"
    further = f"; {len(impossible):,} more cannot be made with this policy" if impossible else ""
    return [
        seen + further,
        *(f"not seen: {mistake.text} (`{mistake.id}`)" for mistake in plan.unseen),
        *(f"cannot be made: {mistake.text}: no {mistake.needs} (`{mistake.id}`)" for mistake in impossible if verbose),
    ]


def _word(verdict: Verdict) -> str:
    return "agree" if verdict is Verdict.AGREES else str(verdict)


def row_notes(row: RowReport) -> list[str]:
    """Notes on a row besides its verdict."""
    lines = [row.why] if row.why else []
    if row.waived is not None:
        lines.append(f"waived by {row.waived.who} until {row.waived.until}: {row.waived.why}")
    if row.findings:
        first = row.findings[0]
        lines.append(finding_text(first))
        lines += [f"the system said: {first.message}"] if first.message else []
        if len(row.findings) > 1:
            lines.append(f"and {count(len(row.findings) - 1, 'more question')}")
    lines += [f"refers to `{name}`, which is {row.verdict} too" for name in row.causes]
    lines += reading_lines(row)
    return lines


def world_lines(finding: Finding) -> list[str]:
    """The rows of the smallest world in which a wrong answer is seen; of a long table, the first."""
    lines = []
    for table, rows in tables(finding.question.state).items():
        lines += [f"{table}: {', '.join(f'{name} {cell}' for name, cell in cells.items())}" for cells in rows[:SHOWN]]
        if len(rows) > SHOWN:
            lines.append(f"{table}: {count(len(rows) - SHOWN, 'more row')}")
    return lines


def shown_lines(row: RowReport) -> list[str]:
    """The smallest world in which a row's first wrong answer is seen, and requests that ask the same."""
    if not row.findings:
        return []
    first = row.findings[0]
    return [*world_lines(first), *([first.reproduce] if first.reproduce else [])]


def finding_text(finding: Finding) -> str:
    """A wrong answer in one line."""
    question = finding.question
    expected = "allowed" if question.expected else "refused"
    return (
        f"{question.id}: {question.request.action} {question.request.resource} is {finding.answer}, "
        f"must be {expected}, to a caller with {question.holds}"
    )


def reading_lines(row: RowReport) -> list[str]:
    """The reading of an ambiguous row that the system follows."""
    if not row.readings:
        return []
    if not row.readings[0].requests:
        return ["ambiguous: no telling question was answered"]
    followed = [reading for reading in row.readings if reading.follows]
    shown = ", ".join(
        f"{f'the reading `{reading.name}`' if reading.name else 'the row as it stands'} ({reading.answered} of {reading.requests})"
        for reading in followed or row.readings
    )
    return [
        f"ambiguous: the system follows {shown}" if followed else f"ambiguous: the system follows no reading: {shown}"
    ]


def as_json(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    plan, outcome = report.plan, report.outcome
    return {
        "system": plan.program.system,
        "version": plan.program.version,
        "plan": plan.digest,
        "questions": len(plan.questions),
        "asked": report.requests,
        "seconds": round(outcome.seconds, 3),
        "failure": outcome.failure,
        "left": list(outcome.left),
        "cells": {str(verdict): report.cells[verdict] for verdict in Verdict},
        "verdicts": {str(verdict): report.verdicts[verdict] for verdict in Verdict},
        "waivers": list(report.unused),
        "mistakes": {
            "possible": [mistake.id for mistake in plan.mistakes],
            "unseen": [mistake.id for mistake in plan.unseen],
        },
        "rows": [_row_json(row) for row in report.rows],
    }


def _row_json(row: RowReport) -> dict[str, Any]:
    return row_json(row.rule) | {
        "row": row.name,
        "verdict": str(row.verdict),
        "asked": row.requests,
        "answers": {str(answer): number for answer, number in row.answers.items()},
        "why": row.why or None,
        "causes": list(row.causes),
        "cells": [
            {
                "text": cell.text,
                "setting": cell.setting or None,
                "proof": cell.proof,
                "set": [atom_text(atom, cell.rule, cell.types) for atom in cell.atoms],
                "verdict": str(verdict),
            }
            for cell, verdict in row.cells
        ],
        "findings": [_finding_json(finding) for finding in row.findings],
        "readings": [
            {
                "name": reading.name or None,
                "answered": reading.answered,
                "asked": reading.requests,
                "follows": reading.follows,
            }
            for reading in row.readings
        ],
        "waived": None
        if row.waived is None
        else {"who": row.waived.who, "why": row.waived.why, "until": str(row.waived.until)},
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    question = finding.question
    return {
        "question": question.id,
        "verdict": str(finding.verdict),
        "expected": "allowed" if question.expected else "refused",
        "answer": str(finding.answer),
        "holds": question.holds,
        "purpose": question.purpose or None,
        "request": question.request.to_json(),
        "state": tables(question.state),
        "reproduce": finding.reproduce or None,
        "said": finding.message or None,
    }


def tables(state: State) -> dict[str, list[dict[str, str]]]:
    """The rows of a small state, without empty tables."""
    return {table: rows for table, rows in state.to_tables().items() if rows}


def as_junit(report: Report) -> str:
    """The report as JUnit: a test for each row."""
    return junit([SuiteResult(name=title(report), cases=tuple(_case(report, row) for row in report.rows))])


def _case(report: Report, row: RowReport) -> CaseResult:
    wrong = row.verdict in WRONG and row.waived is None
    lines = [*row_notes(row), *row_lines(row.rule.span), *shown_lines(row)] if wrong else []
    skipped = None
    if row.verdict is Verdict.UNTESTED or row.waived is not None:
        skipped = "; ".join(row_notes(row)) or "not asked"
    return CaseResult(
        name=row.name,
        classname=f"{report.plan.program.system}.{row.rule.entity}",
        failure=f"{row.name} is {row.verdict}" if wrong else None,
        details="\n".join(lines),
        failure_kind=str(row.verdict),
        skipped=skipped,
        file=row.rule.span.path,
        line=row.rule.span.line,
    )


def as_markdown(report: Report) -> str:
    """The report as Markdown: a table of the rows, and below it each difference."""
    lines = [f"# {title(report)}", "", summary(report), ""]
    lines += [line for text in mistake_lines(report.plan) for line in (as_text(text), "")]
    lines += [f"**The test ended early:** {report.outcome.failure}", ""] if report.outcome.failure else []
    notes = [*(f"left behind: {left}" for left in report.outcome.left), *report.unused]
    lines += [*(f"- {as_text(note)}" for note in notes), *([""] if notes else [])]
    lines += ["| row | verdict | questions | cells that agree |", "|---|---|---:|---:|"]
    for row in report.rows:
        agree = sum(verdict is Verdict.AGREES for _, verdict in row.cells)
        waived = " (waived)" if row.waived is not None else ""
        lines.append(f"| `{row.name}` | {row.verdict}{waived} | {row.requests} | {agree} of {len(row.cells)} |")
    for row in report.rows:
        if notes := row_notes(row):
            lines += ["", f"## `{row.name}`", "", *(f"- {as_text(note)}" for note in notes)]
            if shown := shown_lines(row):
                lines += ["", "```text", *shown, "```"]
    return "\n".join(lines) + "\n"


def as_html(report: Report) -> str:
    """The report as one HTML page."""
    rows = [
        {
            "name": row.name,
            "verdict": str(row.verdict),
            "waived": row.waived is not None,
            "asked": row.requests,
            "agree": sum(verdict is Verdict.AGREES for _, verdict in row.cells),
            "cells": len(row.cells),
            "lines": row_notes(row),
            "shown": shown_lines(row),
            "differing": [
                (str(verdict), cell.text + (f" ({cell.setting})" if cell.setting else ""))
                for cell, verdict in row.cells
                if verdict is not Verdict.AGREES
            ],
        }
        for row in sorted(report.rows, key=lambda row: ORDER.index(row.verdict))
    ]
    return page(
        "conform/report",
        title=title(report),
        summary=summary(report),
        failure=report.outcome.failure,
        left=report.outcome.left,
        waivers=report.unused,
        rows=rows,
    )


def pretty(report: Report, *, verbose: bool = False) -> Iterator[tuple[str, str]]:
    """Lines for people, each with the verdict that it is about, or empty: differences first; `verbose` shows all rows."""
    for row in sorted(report.rows, key=lambda row: ORDER.index(row.verdict)):
        notes = row_notes(row)
        if row.verdict is Verdict.AGREES and not verbose and not notes:
            continue
        yield str(row.verdict), f"{row.verdict:>9}  {row.name}{' (waived)' if row.waived is not None else ''}"
        for line in notes:
            yield "", f"           {line}"
        for line in shown_lines(row):
            yield "", f"             {line}"
    yield "", summary(report)
    for line in mistake_lines(report.plan, verbose=verbose):
        yield "", line
