"""A narrower state from logged decisions: how long it takes to find what was used, and to remove the rest."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from measure import Report, Spread, Table, Target
from prepared import Prepared
from replaying import written

from privtab.logs import reading
from privtab.logs.distinct import distinct
from privtab.logs.excerpts import Row, StateRows
from privtab.logs.proposal import propose, removal_order
from privtab.logs.schema import Reading
from privtab.logs.usage import usage

DECISIONS = 100_000


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Seconds of each step; a proposal is checked by deciding the whole log again, which is part of the last one."""
    rows, spreads = [], {}
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        for size in sizes:
            prepared = Prepared(size=size, folder=Path(name))
            logs = written([prepared], Path(name) / f"logs-{size}", DECISIONS)
            runs = [_run(prepared, logs) for _ in range(repetitions)]
            steps = [Spread(values=tuple(seconds[step] for seconds, _ in runs)) for step in range(3)]
            spreads[size] = Spread(values=tuple(sum(seconds) for seconds, _ in runs))
            rows.append((size, *(step.text(1) for step in steps), *(f"{number:,}" for number in runs[0][1])))
    table = Table(
        title=f"A narrower state from {DECISIONS:,} logged decisions: seconds, and numbers of rows",
        columns=(
            "size",
            "read",
            "find what was used",
            "remove, and prove",
            "distinct allows",
            "rows",
            "removed",
            "needed",
        ),
        rows=tuple(rows),
    )
    targets = [
        Target(what=f"a narrower state, {size}", spread=spread, wanted=300, sense="at most", unit=" s")
        for size, spread in spreads.items()
    ]
    return Report(part="narrowing", tables=(table,), targets=tuple(targets))


def _run(prepared: Prepared, logs: Path) -> tuple[tuple[float, ...], tuple[int, ...]]:
    order: list[Row] = []

    def rank(rows: StateRows) -> Mapping[Row, int]:
        order.extend(removal_order(prepared.program, rows, {}))
        return {row: number for number, row in enumerate(order)}

    state = prepared.state
    times = [time.perf_counter()]
    log = distinct(reading.batches([logs], Reading()), prepared.program)
    times.append(time.perf_counter())
    found = usage(prepared.program, state, log.requests, rank=rank)
    times.append(time.perf_counter())
    proposal = propose(prepared.program, found, order, {})
    times.append(time.perf_counter())
    seconds = tuple(after - before for before, after in pairwise(times))
    return seconds, (len(found.allows), len(found.rows), len(proposal.removed), len(proposal.needed))
