"""Compare contestants: repetitions are interleaved, every answer is checked, and ratios are taken within a repetition."""

from __future__ import annotations

import gc
import http.client
import json
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One way to get answers. `run` returns all of them, in the order of `truth`."""

    name: str
    size: str
    run: Callable[[], Sequence[bool]]
    truth: Sequence[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One figure for each repetition."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure that is reported."""
        return statistics.median(self.values)

    def text(self, digits: int = 0, unit: str = "") -> str:
        """`median (min..max)`.

        >>> Spread(values=(3.0, 1.0, 2.0)).text()
        '2 (1..3)'
        """
        low, high = (f"{edge(self.values):,.{digits}f}" for edge in (min, max))
        return f"{self.median:,.{digits}f}{unit}" + (f" ({low}..{high})" if len(self.values) > 1 else "")

    def over(self, other: Spread) -> Spread:
        """The ratio in each repetition, in which noise of the machine that affects both cancels out."""
        return Spread(values=tuple(a / b for a, b in zip(self.values, other.values, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A limit for a ratio or a time."""

    what: str
    spread: Spread
    wanted: float
    sense: Literal["at least", "at most"]
    digits: int = 2
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the median is within the limit."""
        value = self.spread.median
        return value >= self.wanted if self.sense == "at least" else value <= self.wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of figures; the first column is a name."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of one part."""

    part: str
    tables: tuple[Table, ...] = ()
    targets: tuple[Target, ...] = ()
    repetitions: str = ""
    """The page's words on repetitions, where rows have each their own."""
    adds: bool = False
    """True if rows of an earlier run that this one has not measured again stay on the page."""


class WrongAnswerError(Exception):
    """A contestant gave wrong answers, which makes its figures worthless."""


def race(contestants: Sequence[Contestant], repetitions: int) -> dict[tuple[str, str], Spread]:
    """Decisions a second by name and size. Each contestant runs once in every repetition, in rotating order."""
    rates: dict[tuple[str, str], list[float]] = {(c.name, c.size): [] for c in contestants}
    for contestant in contestants:
        _timed(contestant)  # warm up: open connections, map pages
    for repetition in range(repetitions):
        first = repetition % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            rates[contestant.name, contestant.size].append(len(contestant.truth) / _timed(contestant))
    return {key: Spread(values=tuple(values)) for key, values in rates.items()}


def _timed(contestant: Contestant) -> float:
    """Seconds of one run; raises WrongAnswerError."""
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        answers = contestant.run()
        seconds = time.perf_counter() - started
    finally:
        gc.enable()
    if list(answers) != list(contestant.truth):
        wrong = sum(a is not b for a, b in zip(answers, contestant.truth, strict=False))
        raise WrongAnswerError(
            f"{contestant.name}, {contestant.size}: {wrong} of {len(contestant.truth)} answers are wrong"
        )
    return seconds


class Caller:
    """A bare keepalive connection to an OPA."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=300)

    def ask(self, path: str, document: object) -> Any:
        """The result of a rule, such as `privtab/gravitino/allow`, for an input."""
        body = json.dumps({"input": document}, separators=(",", ":"))
        self._connection.request("POST", f"/v1/data/{path}", body, {"Content-Type": "application/json"})
        return json.loads(self._connection.getresponse().read())["result"]

    def read(self, path: str) -> bytes:
        """The body of a GET."""
        self._connection.request("GET", path)
        return self._connection.getresponse().read()


def resident(pid: int) -> float:
    """Resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def markdown(report: Report) -> str:
    """The tables and targets of a part as Markdown."""
    parts = [_markdown_table(table) for table in report.tables]
    if report.targets:
        parts.append(_markdown_table(targets_table(report.targets)))
    return "\n\n".join(parts)


def with_earlier_rows(report: Report, text: str) -> Report:
    r"""A report of one table with the rows of `text`, the Markdown of an earlier run, that it has not measured again.

    A new row stands where a row of its name stood, or at the end. Raises WrongAnswerError where the earlier table has other columns.

    >>> table = Table(title="Waits", columns=("what", "s"), rows=(("b", "2"), ("c", "3")))
    >>> text = "**Waits**\n\n| what | s |\n|---|---:|\n| a | 8 |\n| b | 9 |\n"
    >>> with_earlier_rows(Report(part="waits", tables=(table,)), text).tables[0].rows
    (('a', '8'), ('b', '2'), ('c', '3'))
    """
    (table,) = report.tables
    columns, *earlier = [tuple(re.split(r" ?\| ?", line)[1:-1]) for line in text.splitlines() if line.startswith("| ")]
    if columns != table.columns:
        raise WrongAnswerError(f"an earlier run has the columns {', '.join(columns)}: run all groups")
    rows = {row[0]: row for row in (*earlier, *table.rows)}
    return replace(report, tables=(replace(table, rows=tuple(rows.values())),))


def targets_table(targets: Sequence[Target]) -> Table:
    """Targets as a table of limits and measured figures."""
    return Table(
        title="Targets",
        columns=("target", "wanted", "measured", "met"),
        rows=tuple(
            (
                t.what,
                f"{t.sense} {t.wanted:g}{t.unit}",
                t.spread.text(t.digits, t.unit),
                "yes" if t.met else "**no**",
            )
            for t in targets
        ),
    )


def _markdown_table(table: Table) -> str:
    lines = [f"**{table.title}**", "", "| " + " | ".join(table.columns) + " |"]
    lines.append("|" + "|".join(["---", *["---:"] * (len(table.columns) - 1)]) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join(lines)
