"""Asking through drivers that obey, hang, die, lie about their state, or leave something behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from conforming_server import served, shipped_plan

from privtab.base import Request, Span, UsageError
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import State
from privtab_analysis.diff.nodes import Verdict as Change
from privtab_analysis.diff.nodes import Waiver
from privtab_testing.conform import Question, QuestionPlan, SystemAnswer, Verdict, World, formats
from privtab_testing.conform.driver import Driver
from privtab_testing.conform.plan import plan
from privtab_testing.conform.report import Report, report
from privtab_testing.conform.run import AnswerFile, Settings, run, sampled

TODAY = date(2030, 1, 1)
POLICY = """\
privtab: 1
system: library
version: "1"
entities: {folder: {page:}}
privileges: [READ, WRITE]
tables:
  page:
    read: READ (page)
    write: {requires: WRITE (page) and READ (page), ambiguous: {cell: W, readings: {alone: WRITE (page)}, why: unclear}}
    delete: WRITE (folder)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "library.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def library(path: Path) -> Program:
    return load_program(path)


@pytest.fixture(scope="module")
def planned(library: Program) -> QuestionPlan:
    return plan(library)


class Obeying(Driver):
    """Decides as the table says."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.reference = Reference(program, State())
        self.asked: list[Request] = []
        self.cleaned = 0

    def prepare(self, world: World) -> None:
        self.reference = Reference(self.program, world.state)

    def ask(self, request: Request) -> SystemAnswer:
        self.asked.append(request)
        return SystemAnswer.ALLOWED if self.reference.decide(request).allowed else SystemAnswer.REFUSED

    def clean(self) -> tuple[str, ...]:
        self.cleaned += 1
        return ()


def report_on(
    planned: QuestionPlan, driver: Driver, settings: Settings | None = None, waivers: Sequence[Waiver] = ()
) -> Report:
    outcome = run(planned, planned.questions, driver, settings or Settings())
    return report(planned, outcome, driver, waivers, TODAY)


def test_a_system_that_obeys_agrees(library: Program, planned: QuestionPlan) -> None:
    driver = Obeying(library)
    result = report_on(planned, driver, Settings(jobs=4))
    assert result.outcome.failure is None
    assert set(result.cells) == {Verdict.AGREES}
    assert driver.cleaned == 1
    assert not result.failing("any")


def test_a_driver_that_hangs_ends_the_test_with_what_was_asked(library: Program, planned: QuestionPlan) -> None:
    class Hanging(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            if len(self.asked) == 3:
                threading.Event().wait(30)
            return super().ask(request)

    driver = Hanging(library)
    result = report_on(planned, driver, Settings(timeout=0.3))
    assert result.outcome.failure == "the driver gave no answer for 0.3 s"
    assert result.requests == 3
    assert driver.cleaned == 1


def test_preparing_that_hangs_is_ended_and_cleaned_up(library: Program, planned: QuestionPlan) -> None:
    class Hanging(Obeying):
        def prepare(self, world: World) -> None:
            del world
            threading.Event().wait(30)

    driver = Hanging(library)
    result = report_on(planned, driver, Settings(setup_timeout=0.2))
    assert result.outcome.failure == "preparing the system took more than 0.2 s"
    assert driver.cleaned == 1


def test_a_driver_that_dies_ends_the_test_and_its_remains_are_reported(library: Program, planned: QuestionPlan) -> None:
    class Dying(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            if len(self.asked) == 2:
                raise ConnectionResetError("gone")
            return super().ask(request)

        def clean(self) -> tuple[str, ...]:
            raise ConnectionResetError("gone")

    result = report_on(planned, Dying(library))
    assert result.outcome.failure == "the driver failed: ConnectionResetError: gone"
    assert result.requests == 2
    assert result.outcome.left == ("everything that begins with the prefix: gone",)


def test_cleaning_up_that_hangs_is_ended_and_reported(library: Program, planned: QuestionPlan) -> None:
    class Hanging(Obeying):
        def clean(self) -> tuple[str, ...]:
            threading.Event().wait(30)
            return ()

    result = report_on(planned, Hanging(library), Settings(setup_timeout=0.2))
    assert result.outcome.left == ("everything that begins with the prefix: cleaning up took more than 0.2 s",)


def test_preparing_that_fails_half_way_is_cleaned_up(library: Program, planned: QuestionPlan) -> None:
    class Failing(Obeying):
        def prepare(self, world: World) -> None:
            del world
            raise PermissionError("no right to make users")

    driver = Failing(library)
    result = report_on(planned, driver)
    assert result.outcome.failure == "the driver failed: PermissionError: no right to make users"
    assert (result.requests, driver.cleaned) == (0, 1)


def test_a_driver_that_exits_ends_the_test_at_once(library: Program, planned: QuestionPlan) -> None:
    class Exiting(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            del request
            raise SystemExit(7)

    driver = Exiting(library)
    result = report_on(planned, driver, Settings(timeout=30))
    assert result.outcome.failure == "the driver failed: SystemExit: 7"
    assert result.outcome.seconds < 20
    assert driver.cleaned == 1


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_driver_that_gives_another_number_of_answers_is_ended(
    library: Program, planned: QuestionPlan, number: int
) -> None:
    class Miscounting(Obeying):
        batch = 2

        def ask_many(self, requests: Sequence[Request]) -> list[SystemAnswer]:
            return [self.ask(requests[0])] * number

    result = report_on(planned, Miscounting(library))
    assert result.outcome.failure == f"the driver gave {number} {'answer' if number == 1 else 'answers'} to 2 questions"
    assert result.requests == 0


def test_each_answer_is_judged_once(library: Program, planned: QuestionPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    read_answer: list[str] = []

    def rows(question: Question) -> int:
        read_answer.append(question.id)
        return 1

    monkeypatch.setattr(Question, "rows", property(rows))
    questions = [replace(planned.questions[0], id=str(number), expected=True) for number in range(200)]
    outcome = run(planned, questions, Obeying(library), Settings())
    assert len(outcome.answers) == 200
    assert len(read_answer) == 200


def test_a_system_without_the_state_is_not_called_narrower() -> None:
    planned = shipped_plan("cdap/final")
    result = report_on(planned, served(planned.program, State()))
    assert result.outcome.failure is not None
    assert "the system does not have the prepared state" in result.outcome.failure


ATTRIBUTES = """\
privtab: 1
system: library
version: "1"
entities: {folder: {page:}}
privileges: [READ]
attributes:
  user: {rank: {integer: [0, 9], from: request}, team: text}
  entity: {class: {enum: [open, closed], on: [page], from: [state, request]}, team: {text: true, on: [folder]}}
  request: {mfa: bool}
tables:
  page:
    list: READ (page)
    read: READ (page) and user.team = folder.team
    edit: entity.class = open and (user.rank >= 3 or request.mfa)
"""


def test_a_server_takes_attributes_from_its_state_and_from_requests(tmp_path: Path) -> None:
    path = tmp_path / "library.yaml"
    path.write_text(ATTRIBUTES, encoding="utf-8")
    program = load_program(path)
    result = report_on(plan(program), served(program))
    assert result.outcome.failure is None
    assert set(result.cells) == {Verdict.AGREES}
    path.write_text(ATTRIBUTES.replace("user.rank >= 3", "user.rank > 3"))
    other = report_on(plan(program), served(load_program(path)))
    verdicts = {row.name: row.verdict for row in other.rows}
    assert verdicts == {"page/list": Verdict.AGREES, "page/read": Verdict.AGREES, "page/edit": Verdict.NARROWER}


def test_rows_that_compare_what_a_driver_cannot_give_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "library.yaml"
    path.write_text(ATTRIBUTES, encoding="utf-8")
    program = load_program(path)
    result = report_on(plan(program, attributes=False), Obeying(program))
    assert {row.name: (row.verdict, row.why) for row in result.rows} == {
        "page/list": (Verdict.AGREES, ""),
        "page/read": (Verdict.UNTESTED, "it compares attributes, which the driver cannot give"),
        "page/edit": (Verdict.UNTESTED, "it compares attributes, which the driver cannot give"),
    }


def test_a_state_that_changes_meanwhile_is_noticed(library: Program, planned: QuestionPlan) -> None:
    class Forgetting(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            answer = super().ask(request)
            return answer if len(self.asked) <= len(planned.questions) else SystemAnswer.REFUSED

    result = report_on(planned, Forgetting(library))
    assert result.outcome.failure is not None
    assert "the state changed while questions were asked" in result.outcome.failure


def test_a_wider_and_a_narrower_row_are_reported_with_the_smallest_world(
    library: Program, planned: QuestionPlan
) -> None:
    class Wrong(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            answer = super().ask(request)
            match request.action:
                case "delete":
                    return SystemAnswer.ALLOWED
                case "read":
                    return SystemAnswer.HIDDEN
                case _:
                    return answer

    result = report_on(planned, Wrong(library))
    rows = {row.name: row for row in result.rows}
    assert rows["page/delete"].verdict is Verdict.WIDER
    assert rows["page/read"].verdict is Verdict.NARROWER
    assert rows["page/write"].verdict is Verdict.AGREES
    first = rows["page/delete"].findings[0]
    assert formats.tables(first.question.state) == {}, "nobody needs anything"
    assert [row.name for row in result.failing("wider")] == ["page/delete"]
    assert [row.name for row in result.failing("any")] == ["page/read", "page/delete"]
    for text in (formats.as_markdown(result), formats.as_html(result), formats.as_junit(result)):
        assert "page/delete" in text
        assert "wider" in text


def test_impossible_questions_are_untested_and_errors_are_broken(library: Program, planned: QuestionPlan) -> None:
    class Partly(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            answer = super().ask(request)
            return {"delete": SystemAnswer.UNSUPPORTED, "read": SystemAnswer.BROKEN}.get(request.action, answer)

    rows = {row.name: row for row in report_on(planned, Partly(library)).rows}
    assert rows["page/delete"].verdict is Verdict.UNTESTED
    assert rows["page/delete"].why == "the driver cannot ask this operation"
    assert rows["page/read"].verdict is Verdict.BROKEN


def test_the_reading_that_the_system_follows_is_reported(path: Path, library: Program) -> None:
    from privtab_testing.conform.report import readings_of

    readings = readings_of(path, library)
    planned = plan(library, readings=readings)
    other = load_program(path, readings={"page/write": "alone"})
    [as_it_stands] = [row for row in report_on(planned, Obeying(library)).rows if row.name == "page/write"]
    [alone] = [row for row in report_on(planned, Obeying(other)).rows if row.name == "page/write"]
    assert [(r.name, r.follows) for r in as_it_stands.readings] == [("", True), ("alone", False)]
    assert [(r.name, r.follows) for r in alone.readings] == [("", False), ("alone", True)]
    telling = alone.readings[1]
    assert formats.reading_lines(alone) == [
        f"ambiguous: the system follows the reading `alone` ({telling.requests} of {telling.requests})"
    ]


def test_a_known_difference_is_waived_until_its_day(library: Program, planned: QuestionPlan) -> None:
    class Wider(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            return SystemAnswer.ALLOWED if request.action == "delete" else super().ask(request)

    span = Span(path="waivers.yaml", line=1, column=1, end_line=1, end_column=2)
    waiver = Waiver(operation="page/delete", change=Change.WIDER, who="ann", why="known", until=TODAY, span=span)
    result = report_on(planned, Wider(library), waivers=[waiver])
    assert not result.failing("any")
    assert not result.unused
    late = report(planned, result.outcome, Wider(library), [waiver], date(2030, 1, 2))
    assert [row.name for row in late.failing("wider")] == ["page/delete"]
    assert late.unused == ("the waiver for `page/delete` held until 2030-01-01: ask ann",)


def test_a_waiver_of_an_untested_row_is_no_finding(library: Program, planned: QuestionPlan) -> None:
    span = Span(path="waivers.yaml", line=1, column=1, end_line=1, end_column=2)
    waivers = [
        Waiver(operation=row, change=Change.WIDER, who="ann", why="known", until=TODAY, span=span)
        for row in ("page/read", "page/delete", "page/reed")
    ]
    questions = [question for question in planned.questions if question.row == "page/read"]
    outcome = run(planned, questions, Obeying(library), Settings())
    assert report(planned, outcome, Obeying(library), waivers, TODAY).unused == (
        "nothing makes `page/read` wider here: remove the waiver",
        "nothing makes `page/reed` wider here: remove the waiver",
    )


def test_a_row_that_differs_because_of_another_says_so(tmp_path: Path) -> None:
    path = tmp_path / "library.yaml"
    path.write_text(
        POLICY.replace("delete: WRITE (folder)", "delete: can read (page) and WRITE (folder)"), encoding="utf-8"
    )
    program = load_program(path)

    class Unseeing(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            return SystemAnswer.REFUSED if request.action in ("read", "delete") else super().ask(request)

    rows = {row.name: row for row in report_on(plan(program), Unseeing(program)).rows}
    assert rows["page/delete"].causes == ("page/read",)
    assert "refers to `page/read`, which is narrower too" in formats.row_notes(rows["page/delete"])
    assert rows["page/read"].causes == rows["page/write"].causes == ()


def test_every_report_has_the_smallest_world_and_what_a_broken_system_said(
    library: Program, planned: QuestionPlan
) -> None:
    class Broken(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            return SystemAnswer.BROKEN if request.action == "read" else super().ask(request)

        def message(self, request: Request) -> str:
            return f"division by zero for {request.user}"

        def reproduce(self, request: Request) -> str:
            return f"read as {request.user}"

    result = report_on(planned, Broken(library))
    [row] = [row for row in result.rows if row.name == "page/read"]
    grants = row.findings[0].question.state.grants
    pretty = "\n".join(line for _, line in formats.pretty(result))
    for text in (pretty, formats.as_markdown(result), formats.as_html(result), formats.as_junit(result)):
        assert f"read as {row.findings[0].question.request.user}" in text
        assert "the system said: division by zero" in text
        assert all(str(grant.entity) in text for grant in grants)
    assert "denied to callers who hold none of it" in formats.as_html(result)


def test_a_sample_makes_only_what_it_needs(library: Program, planned: QuestionPlan) -> None:
    class Looking(Obeying):
        def prepare(self, world: World) -> None:
            self.world = world
            super().prepare(world)

    driver = Looking(library)
    some = sampled(planned.questions, 3)
    outcome = run(planned, some, driver, Settings())
    assert set(driver.world.users) == {question.request.user for question in some}
    assert driver.world.rows < planned.world.rows
    assert set(report(planned, outcome, driver, (), TODAY).cells) <= {Verdict.AGREES, Verdict.UNTESTED}


def test_answers_are_kept_and_a_test_continues_from_them(
    library: Program, planned: QuestionPlan, tmp_path: Path
) -> None:
    file = tmp_path / "answers.jsonl"

    class Dying(Obeying):
        def ask(self, request: Request) -> SystemAnswer:
            if len(self.asked) == 4:
                raise ConnectionResetError("gone")
            return super().ask(request)

    first = AnswerFile(file, planned)
    assert run(planned, planned.questions, Dying(library), Settings(), answers=first).failure
    first.close()
    file.write_text(file.read_text() + '{"question": "pa', encoding="utf-8")
    again = AnswerFile(file, planned)
    assert len(again.known) == 4
    driver = Obeying(library)
    outcome = run(planned, planned.questions, driver, Settings(), answers=again)
    again.close()
    assert outcome.failure is None
    assert len(outcome.answers) == len(planned.questions)
    waiting = [question.request for question in planned.questions[4:]]
    assert driver.asked[: len(waiting)] == waiting, "what was answered is not asked again, but for the controls"


def test_answers_of_another_plan_are_refused(library: Program, planned: QuestionPlan, tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    AnswerFile(file, planned).close()
    with pytest.raises(UsageError, match="the answers of another plan"):
        AnswerFile(file, plan(library, prefix="other_"))


def test_questions_are_asked_no_faster_than_the_rate(library: Program, planned: QuestionPlan) -> None:
    started = time.monotonic()
    outcome = run(planned, planned.questions[:8], Obeying(library), Settings(jobs=4, rate=20))
    assert outcome.failure is None
    assert time.monotonic() - started >= 7 / 20


def test_a_sample_keeps_the_order(planned: QuestionPlan) -> None:
    some = sampled(planned.questions, 4)
    assert len(some) == 4
    assert [q.id for q in planned.questions if q in some] == [q.id for q in some]
