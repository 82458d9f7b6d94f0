"""Asks the questions of a plan through a driver: with bounded concurrency, rate and time."""

from __future__ import annotations

import json
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TypeVar

from privtab.base import FileError, UsageError, count, dataclass
from privtab_testing.conform import Question, QuestionPlan, SystemAnswer
from privtab_testing.conform.driver import Driver, DriverError
from privtab_testing.conform.worlds import needed_world

CONTROLS = 5
"""The number of questions that are asked again at the end, to see whether the state is still the same."""
WITNESSES = 20
"""The number of requests that must be allowed and are asked before a system that allows none of them is taken to lack the state."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a run."""

    jobs: int = 1
    rate: float | None = None
    """The most questions in a second."""
    timeout: float = 60.0
    """Seconds without any answer after which the driver counts as hanging."""
    setup_timeout: float = 900.0
    """Seconds for preparing, and for cleaning up."""


@dataclass(slots=True)
class Interview:
    """The course of an interview: the answers so far, the reason if it ended early, and remains that could not be removed."""

    answers: dict[str, SystemAnswer] = field(default_factory=dict)
    failure: str | None = None
    left: tuple[str, ...] = ()
    kept: bool = False
    """True if preparing failed and can be resumed: what was made is still there."""
    seconds: float = 0.0


def sampled(questions: Sequence[Question], number: int | None, seed: int = 0) -> Sequence[Question]:
    """All questions, or some of them in the same order: questions that prove cells are more likely."""
    if number is None or number >= len(questions):
        return questions
    generator = random.Random(seed)  # noqa: S311  (which questions are asked is no secret)
    ranked = sorted(questions, key=lambda question: generator.random() / (1 + len(question.cells)))
    chosen = {question.id for question in ranked[:number]}
    return tuple(question for question in questions if question.id in chosen)


def run(
    plan: QuestionPlan,
    questions: Sequence[Question],
    driver: Driver,
    settings: Settings,
    *,
    answers: AnswerFile | None = None,
    on_answer: Callable[[int], None] = lambda _: None,
) -> Interview:
    """Prepare the system, ask, and clean up whatever happens; a failure of the driver is in the outcome."""
    outcome = Interview(answers=dict(answers.known) if answers else {})
    started = time.monotonic()
    waiting = [question for question in questions if question.id not in outcome.answers]
    # What a killed test made is used, and removed at the end, even if some of it was for questions that are answered.
    resumed = answers is not None and driver.resumes and bool(answers.made)
    prepared = False
    if answers is not None and driver.resumes:
        driver.journal = answers
    try:
        if waiting:
            world = needed_world(plan, questions if resumed else waiting)
            _bounded(lambda: driver.prepare(world), settings.setup_timeout, "preparing the system")
            prepared = True
        alone = {question.id for question in waiting if driver.changes(question.rule) or driver.restores(question.rule)}
        steady = [question for question in waiting if question.id not in alone]
        changing = [question for question in waiting if question.id in alone]
        witnesses = _Witnesses()
        for question in questions:
            if question.id in outcome.answers:
                witnesses.add(question, outcome.answers[question.id])
        for part, jobs in ((steady, settings.jobs), (changing, 1)):
            for chunk, chunk_answers in _answers(part, driver, settings, jobs):
                new = {question.id: answer for question, answer in zip(chunk, chunk_answers, strict=True)}
                outcome.answers |= new
                if answers is not None:
                    answers.add(new)
                on_answer(len(new))
                for question in chunk:
                    witnesses.add(question, new[question.id])
                witnesses.check(at_least=WITNESSES)
            if part is steady:
                _check_controls(steady, outcome.answers, driver, settings)
        witnesses.check(at_least=2)
    except DriverError as error:
        outcome.failure = str(error)
    except Exception as error:  # noqa: BLE001  (a driver is code of a user: whatever it raises is its failure)
        outcome.failure = _failure(error)
    finally:
        try:
            if waiting and not prepared and driver.journal is not None:
                outcome.kept = True
            elif waiting:
                outcome.left = tuple(_bounded(driver.clean, settings.setup_timeout, "cleaning up"))
                if answers is not None:
                    answers.removed()
        except Exception as error:  # noqa: BLE001
            outcome.left = (f"everything that begins with the prefix: {error}",)
        outcome.seconds = time.monotonic() - started
    return outcome


def _failure(error: BaseException) -> str:
    return f"the driver failed: {type(error).__name__}: {error}"


class _Witnesses:
    """The requests that must be allowed, as far as they were asked: if none of them is, the state is not there."""

    def __init__(self) -> None:
        self._number = 0
        self._rows: set[str] = set()
        self._all_refused = True

    def add(self, question: Question, answer: SystemAnswer) -> None:
        """Count an answer, if it is about a request that needs rows of the state."""
        if question.expected and answer is not SystemAnswer.UNSUPPORTED and question.rows:
            self._number += 1
            self._rows.add(question.row)
            self._all_refused = self._all_refused and answer in (SystemAnswer.REFUSED, SystemAnswer.HIDDEN)

    def check(self, at_least: int) -> None:
        """Raise DriverError if there are so many, about two rows or more, and none of them was allowed."""
        several = self._number >= WITNESSES or len(self._rows) > 1  # one row may well be refused to everybody
        if self._all_refused and several and self._number >= at_least:
            raise DriverError(
                f"none of {self._number} requests that the table allows is allowed: the system does not have the prepared state"
            )


def _check_controls(
    questions: Sequence[Question], answers: Mapping[str, SystemAnswer], driver: Driver, settings: Settings
) -> None:
    """Ask some questions again; raises DriverError if an answer is another one, since the state then changed meanwhile."""
    step = max(1, len(questions) // CONTROLS)
    for chunk, chunk_answers in _answers(questions[::step][:CONTROLS], driver, settings, 1):
        for question, answer in zip(chunk, chunk_answers, strict=True):
            if answer is not answers[question.id]:
                raise DriverError(
                    f"`{question.id}` was answered `{answers[question.id]}` first and `{answer}` later: "
                    "the state changed while questions were asked"
                )


def _answers(
    questions: Sequence[Question], driver: Driver, settings: Settings, jobs: int
) -> Iterator[tuple[Sequence[Question], Sequence[SystemAnswer]]]:
    """The answers as they come, by as many questions as the driver takes at once."""
    size = max(1, driver.batch)
    chunks = [questions[start : start + size] for start in range(0, len(questions), size)]
    pace = _RateLimit(settings.rate)

    def ask(chunk: Sequence[Question]) -> Sequence[SystemAnswer]:
        pace.wait(len(chunk))
        requests = [question.request for question in chunk]
        return driver.ask_many(requests) if size > 1 else [driver.ask(requests[0])]

    pause = 0.0 if settings.rate is None else size / settings.rate
    late = f"the driver gave no answer for {settings.timeout:g} s"
    work = [partial(ask, chunk) for chunk in chunks]
    for number, answers in _in_threads(work, jobs, settings.timeout + pause, late):
        if len(answers) != len(chunks[number]):
            given = count(len(answers), "answer")
            raise DriverError(f"the driver gave {given} to {count(len(chunks[number]), 'question')}")
        yield chunks[number], answers


def _bounded(function: Callable[[], T], seconds: float, what: str) -> T:
    """The result of a function in a thread of its own. Raises DriverError if it takes too long."""
    [(_, result)] = _in_threads([function], 1, seconds, f"{what} took more than {seconds:g} s")
    return result


def _in_threads(work: Sequence[Callable[[], T]], jobs: int, seconds: float, late: str) -> Iterator[tuple[int, T]]:
    """The results of some functions as they come, with their positions. Raises what a function raises.

    Raises DriverError, with the text `late`, if there is none for too long; the threads are then left behind.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Future[T]]] = queue.SimpleQueue()
    stopped = threading.Event()
    for number in range(len(work)):
        waiting.put(number)

    def worker() -> None:
        while not stopped.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            result: Future[T] = Future()
            try:
                result.set_result(work[number]())
            except BaseException as error:  # noqa: BLE001  (also SystemExit: the thread must not end without a word)
                result.set_exception(error)
            done.put((number, result))

    for _ in range(min(jobs, len(work))):
        threading.Thread(target=worker, daemon=True).start()
    try:
        for _ in work:
            try:
                number, result = done.get(timeout=seconds)
            except queue.Empty:
                raise DriverError(late) from None
            error = result.exception()
            if error is not None and not isinstance(error, Exception):
                raise DriverError(_failure(error)) from error
            yield number, result.result()
    finally:
        stopped.set()


class _RateLimit:
    """At most so many questions in a second, over all threads."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def wait(self, questions: int) -> None:
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            pause = max(0.0, self._next - now)
            self._next = max(now, self._next) + questions / self._rate
        time.sleep(pause)


class AnswerFile:
    """The answers of a test, and what it made, in a file of JSON lines, the first of which names the plan: so that a test can be resumed.

    The file has what was kept of the answers of the system, such as tokens: only its owner can read it.
    """

    def __init__(self, path: Path, plan: QuestionPlan) -> None:
        """Read the answers so far, if there are any. Raises UsageError if they are answers to another plan."""
        self.path = path
        self.known: dict[str, SystemAnswer] = {}
        self.made: dict[str, dict[str, str]] = {}
        """What a driver made and did not remove, with what was kept of it, as Journal says."""
        ids = {question.id for question in plan.questions}
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            for number, line in enumerate(lines):
                try:
                    value = json.loads(line)
                    if number == 0:
                        digest = value["plan"]
                        if digest != plan.digest:
                            raise UsageError(f"{path} has the answers of another plan: remove it, or name another file")
                    elif "made" in value:
                        self.made[value["made"]] = dict(value["kept"])
                    elif "removed" in value:
                        self.made.clear()
                    elif value["question"] in ids:
                        self.known[value["question"]] = SystemAnswer(value["answer"])
                except (ValueError, KeyError, TypeError) as error:
                    if number + 1 == len(lines) and number:
                        break  # the test ended while it wrote this line
                    raise UsageError(f"{path}:{number + 1} is no answer of a conformance test") from error
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8")
        except OSError as error:
            raise FileError(f"{path}: {error.strerror}") from error
        if not lines:
            self._write([{"plan": plan.digest}])

    def add(self, answers: Mapping[str, SystemAnswer]) -> None:
        """Append answers, by the ids of their questions."""
        self._write({"question": question, "answer": str(answer)} for question, answer in answers.items())

    def add_made(self, what: str, kept: Mapping[str, str]) -> None:
        """As Journal.add_made."""
        self._write([{"made": what, "kept": dict(kept)}])

    def removed(self) -> None:
        """Note that everything that was made is removed."""
        self._write([{"removed": "everything"}])

    def _write(self, values: Iterable[Mapping[str, object]]) -> None:
        self._file.write("".join(f"{json.dumps(value)}\n" for value in values))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
