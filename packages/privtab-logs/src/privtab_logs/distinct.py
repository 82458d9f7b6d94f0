"""Logged decisions as distinct requests, each with how often it was decided so, and when first and last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import InvalidRequest, Request, Window
from privtab.ir import Program, vocabulary
from privtab_logs.deciding import hidden_by_mask, request_of
from privtab_logs.replaying import grouped, merged, more, request_row, usable, without
from privtab_logs.schema import MASKED

INVALID = "no request of the policy"
KEYS = ("user", "action", "resource", "more", "allowed")
HOW = (("requests", "sum"), ("first", "min"), ("last", "max"))
QUESTIONS = pa.schema(
    [
        *((name, pa.string()) for name in KEYS[:-1]),
        ("allowed", pa.bool_()),
        *((name, pa.int64()) for name, _ in HOW),
    ]
)
"""Questions with their answers, number, and first and last time, in microseconds since 1970."""
_PENDING = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """A distinct request and answer of a log: how often, and when first and last, in nanoseconds since 1970."""

    request: Request
    allowed: bool
    count: int = 1
    first: int = Window().begin
    last: int = Window().end

    @property
    def operation(self) -> tuple[str, str]:
        """The row of the table that decides it: type and operation."""
        return self.request.resource.type, self.request.action


@dataclass(slots=True, kw_only=True)
class Log:
    """The distinct requests of a log, and what else was there."""

    requests: list[LoggedRequest] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Decisions that are not among these, by why."""
    samples: dict[str, str] = field(default_factory=dict)
    """The first message for each reason why requests are none of the policy."""
    timeline: Counter[tuple[int, bool]] = field(default_factory=Counter)
    """Decisions by minute since 1970 and answer."""
    window: tuple[int, int] | None = None
    """The times of the first and the last decision; None if no decision has a time."""

    def skip(self, why: str, number: int) -> None:
        """Count decisions that are left out."""
        if number:
            self.skipped[why] += number

    def know(self, questions: pa.Table, program: Program) -> None:
        """Take over what was asked and answered, as QUESTIONS, each once."""
        names = vocabulary(program)
        for question in questions.to_pylist():
            try:
                request = request_of(request_row(question), names)
            except InvalidRequest as error:
                self.skip(INVALID, question["requests"])
                self.samples.setdefault(INVALID, str(error))
                continue
            self.requests.append(_logged(request, question))
        timed = [logged for logged in self.requests if logged.first != Window().begin]
        if timed:
            self.window = min(logged.first for logged in timed), max(logged.last for logged in timed)

    def account(self) -> dict[str, Any]:
        """All but the requests, as JSON."""
        return {"skipped": dict(self.skipped), "timeline": [[*key, number] for key, number in self.timeline.items()]}

    def add(self, other: Mapping[str, Any]) -> None:
        """Add the account of a part of the log, in its JSON form."""
        self.skipped.update(other["skipped"])
        self.timeline.update({(minute, allowed): number for minute, allowed, number in other["timeline"]})


def distinct(batches: Iterable[pa.RecordBatch], program: Program, *, system: str | None = None) -> Log:
    """The distinct requests of batches of logged decisions. `system`: the package in the log that counts; default: the policy's name."""
    found = Log()
    found.know(questions(batches, found, system or program.system, hides=hidden_by_mask(program)), program)
    return found


def questions(batches: Iterable[pa.RecordBatch], found: Log, package: str, *, hides: bool) -> pa.Table:
    """Return the distinct questions and answers, as QUESTIONS; `found` takes the account of the rest."""

    def parts() -> Iterator[pa.Table]:
        for batch in batches:
            rows = usable(batch, package, found.skip)
            if hides:
                rows = without(rows, rows["masked"].is_valid(), MASKED, found.skip)
            found.timeline.update(_minutes(rows))
            yield grouped(_questions(rows), KEYS, HOW)

    return merged(parts(), QUESTIONS, KEYS, HOW, most=_PENDING)


def _logged(request: Request, question: Mapping[str, Any]) -> LoggedRequest:
    first, last = question["first"], question["last"]
    return LoggedRequest(
        request=request,
        allowed=question["allowed"],
        count=question["requests"],
        first=Window().begin if first is None else first * 1000,
        last=Window().end if last is None else last * 1000,
    )


def _questions(rows: pa.RecordBatch) -> pa.Table:
    times = rows["time"].cast(pa.int64())
    columns = {name: rows[name] for name in ("user", "action", "resource", "allowed")} | {
        "more": pa.array(more(rows), pa.string()),
        "requests": pa.repeat(pa.scalar(1, pa.int64()), len(rows)),
        "first": times,
        "last": times,
    }
    return pa.table(columns, schema=QUESTIONS)


def _minutes(rows: pa.RecordBatch) -> dict[tuple[int, bool], int]:
    table = pa.table({"minute": pc.divide(rows["time"].cast(pa.int64()), 60_000_000), "allowed": rows["allowed"]})
    counted = table.group_by(["minute", "allowed"], use_threads=False).aggregate([([], "count_all")]).to_pylist()
    return {(c["minute"], c["allowed"]): c["count_all"] for c in counted if c["minute"] is not None}
