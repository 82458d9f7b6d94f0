"""The report of a conformance test: a verdict for each cell and each row, and the reading that the system follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import zip_longest
from pathlib import Path

from privtab.base import dataclass
from privtab.ir import Program, Rule
from privtab.pipeline import load_program
from privtab_analysis.diff.nodes import Waiver
from privtab_testing.conform import Failing, Question, QuestionPlan, SystemAnswer, Verdict
from privtab_testing.conform.driver import Driver
from privtab_testing.conform.plan import NOT_ASKED
from privtab_testing.conform.run import Interview
from privtab_testing.scenarios.masks import Key, dependencies
from privtab_testing.scenarios.prove import Cell

ORDER = (Verdict.WIDER, Verdict.BROKEN, Verdict.NARROWER, Verdict.UNTESTED, Verdict.AGREES)
"""From the worst to the best; an untested part of a row does not hide that the rest agrees."""
WRONG = frozenset((Verdict.WIDER, Verdict.BROKEN, Verdict.NARROWER))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One question that was answered otherwise than the table says."""

    question: Question
    answer: SystemAnswer
    verdict: Verdict
    reproduce: str
    """A command that asks the same, to be pasted; empty if the driver has none."""
    message: str = ""
    """The system's message, if the answer is broken and the message is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingAgreement:
    """The number of telling questions about an ambiguous row that were answered as one reading says."""

    name: str
    """Empty: the row as it stands."""
    answered: int
    requests: int

    @property
    def follows(self) -> bool:
        """True if every answer was the reading's."""
        return bool(self.requests) and self.answered == self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport:
    """One row of the table."""

    rule: Rule
    verdict: Verdict
    requests: int
    cells: tuple[tuple[Cell, Verdict], ...]
    findings: tuple[Finding, ...]
    """Every wrong answer, the one with the smallest world first."""
    answers: Mapping[SystemAnswer, int]
    readings: tuple[ReadingAgreement, ...]
    why: str = ""
    """The reason if nothing was asked."""
    waived: Waiver | None = None
    causes: tuple[str, ...] = ()
    """The rows that this one refers to by `can` and that differ in the same way."""

    @property
    def name(self) -> str:
        """The row: `table/load`."""
        return f"{self.rule.entity}/{self.rule.operation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole result."""

    plan: QuestionPlan
    rows: tuple[RowReport, ...]
    outcome: Interview
    requests: int
    unused: tuple[str, ...] = ()
    """Waivers that are expired or fit nothing, in words."""

    @property
    def cells(self) -> Counter[Verdict]:
        """The number of cells with each verdict."""
        return Counter(verdict for row in self.rows for _, verdict in row.cells)

    @property
    def verdicts(self) -> Counter[Verdict]:
        """The number of rows with each verdict."""
        return Counter(row.verdict for row in self.rows)

    def failing(self, fail_on: Failing) -> tuple[RowReport, ...]:
        """The rows for which the command fails."""
        if fail_on == "none":
            return ()
        bad = {Verdict.WIDER} if fail_on == "wider" else WRONG
        return tuple(row for row in self.rows if _unwaived(row) & bad)


def _unwaived(row: RowReport) -> set[Verdict]:
    """The unwaived differences between the answers about a row and the table."""
    waived = None if row.waived is None else str(row.waived.change)
    return {finding.verdict for finding in row.findings if finding.verdict != waived}


def report(plan: QuestionPlan, outcome: Interview, driver: Driver, waivers: Sequence[Waiver], today: date) -> Report:
    """Compare the answers with the plan."""
    by_rule: dict[str, list[Question]] = {}
    for question in plan.questions:
        by_rule.setdefault(question.rule.id, []).append(question)
    cells: dict[str, list[int]] = {}
    for number, cell in enumerate(plan.cells):
        cells.setdefault(cell.rule.id, []).append(number)
    rows = [
        _row(plan, rule, by_rule.get(rule.id, []), cells.get(rule.id, []), outcome, driver)
        for rule in plan.program.rules.values()
        if rule.id in by_rule or rule.id in plan.undecided
    ]
    rows = _with_causes(plan, rows)
    whole = {row.name for row in rows if row.requests and sum(row.answers.values()) == len(by_rule[row.rule.id])}
    partly = {f"{entity}/{operation}" for entity, operation in plan.program.rules} - whole
    rows, unused = _waived(plan.program.system, rows, waivers, today, partly)
    answered = sum(question.id in outcome.answers for question in plan.questions)
    return Report(plan=plan, rows=tuple(rows), outcome=outcome, requests=answered, unused=unused)


def verdict_of(question: Question, answer: SystemAnswer | None) -> Verdict:
    """The comparison of one answer with the table."""
    match answer:
        case None | SystemAnswer.UNSUPPORTED:
            return Verdict.UNTESTED
        case SystemAnswer.BROKEN:
            return Verdict.BROKEN
        case SystemAnswer.ALLOWED:
            return Verdict.AGREES if question.expected else Verdict.WIDER
        case SystemAnswer.REFUSED | SystemAnswer.HIDDEN:
            return Verdict.NARROWER if question.expected else Verdict.AGREES


def _row(
    plan: QuestionPlan,
    rule: Rule,
    questions: Sequence[Question],
    cells: Sequence[int],
    outcome: Interview,
    driver: Driver,
) -> RowReport:
    found = [(question, outcome.answers.get(question.id)) for question in questions]
    verdicts = [(question, answer, verdict_of(question, answer)) for question, answer in found]
    proofs: dict[int, list[Verdict]] = {number: [] for number in cells}
    for question, _, verdict in verdicts:
        for number in question.cells:
            proofs[number].append(verdict)
    findings = [
        Finding(
            question=question,
            answer=answer,
            verdict=verdict,
            reproduce=driver.reproduce(question.request),
            message=driver.message(question.request) if verdict is Verdict.BROKEN else "",
        )
        for question, answer, verdict in verdicts
        if answer is not None and verdict in WRONG
    ]
    findings.sort(key=lambda finding: (ORDER.index(finding.verdict), finding.question.rows))
    answers = Counter(answer for _, answer in found if answer is not None)
    why = plan.undecided.get(rule.id, "")
    if not why and answers and set(answers) == {SystemAnswer.UNSUPPORTED}:
        why = NOT_ASKED
    return RowReport(
        rule=rule,
        verdict=_worst(verdict for _, _, verdict in verdicts),
        requests=sum(answer not in (None, SystemAnswer.UNSUPPORTED) for _, answer in found),
        cells=tuple((plan.cells[number], _worst(proofs[number])) for number in cells),
        findings=tuple(findings),
        answers=answers,
        readings=_readings(verdicts),
        why=why,
    )


def _with_causes(plan: QuestionPlan, rows: Sequence[RowReport]) -> list[RowReport]:
    """The rows with the rows that they refer to and that differ in the same way: mending these may mend both."""
    found = {(row.rule.entity, row.rule.operation): row for row in rows}
    return [
        replace(
            row,
            causes=tuple(
                other.name
                for reached, other in found.items()
                if row.verdict in WRONG
                and other.verdict is row.verdict
                and other is not row
                and reached in dependencies(plan.program, key)
            ),
        )
        for key, row in found.items()
    ]


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst verdict; parts that were not asked count only if nothing was."""
    found = set(verdicts)
    if Verdict.AGREES in found:
        found.discard(Verdict.UNTESTED)
    return next((verdict for verdict in ORDER if verdict in found), Verdict.UNTESTED)


def _readings(verdicts: Sequence[tuple[Question, SystemAnswer | None, Verdict]]) -> tuple[ReadingAgreement, ...]:
    """For the row and each other reading: how many of the distinguishing questions it answers as the system does."""
    telling = [
        (question, answer is SystemAnswer.ALLOWED)
        for question, answer, verdict in verdicts
        if question.readings and verdict not in (Verdict.UNTESTED, Verdict.BROKEN)
    ]
    names = dict.fromkeys(name for question, _, _ in verdicts for name in question.readings)
    if not names:
        return ()
    return tuple(
        ReadingAgreement(
            name=name,
            answered=sum(question.readings.get(name, question.expected) is allowed for question, allowed in telling),
            requests=len(telling),
        )
        for name in ("", *names)
    )


def _waived(
    system: str, rows: Sequence[RowReport], waivers: Sequence[Waiver], today: date, partly: Collection[str]
) -> tuple[list[RowReport], tuple[str, ...]]:
    """The rows with their waivers; and each waiver that is expired or fits nothing, in words.

    `partly`: the rows of which some question was not answered: whether a waiver fits them is not known.
    """

    def covers(waiver: Waiver, row: RowReport) -> bool:
        is_of_row = waiver.operation == row.name and waiver.system in (None, system)
        return is_of_row and str(waiver.change) == row.verdict and waiver.until >= today

    marked = [replace(row, waived=next((w for w in waivers if covers(w, row)), None)) for row in rows]
    used = {id(row.waived) for row in marked}
    unused = [
        f"the waiver for `{waiver.operation}` held until {waiver.until}: ask {waiver.who}"
        if waiver.until < today
        else f"nothing makes `{waiver.operation}` {waiver.change} here: remove the waiver"
        for waiver in waivers
        if id(waiver) not in used and (waiver.until < today or waiver.operation not in partly)
    ]
    return marked, tuple(unused)


def readings_of(policy: str | Path, program: Program) -> dict[Key, dict[str, Rule]]:
    """For each ambiguous row, the rules of its other readings, except readings with other objects."""
    found: dict[Key, dict[str, Rule]] = {}
    ambiguous = ((key, rule.ambiguous) for key, rule in program.rules.items() if rule.ambiguous is not None)
    # Each compilation takes the next reading of every row.
    for chosen in zip_longest(*([(key, name) for name, _ in row.readings] for key, row in ambiguous)):
        selected = [pair for pair in chosen if pair is not None]
        other = load_program(policy, readings={f"{key[0]}/{key[1]}": name for key, name in selected})
        for key, name in selected:
            rule = other.rules[key]
            if rule.withs == program.rules[key].withs and (rule.each is None) == (program.rules[key].each is None):
                found.setdefault(key, {})[name] = rule
    return found
