"""A narrower state from logged decisions: how long it takes to find what was used, and to remove the rest."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from measure import Report, Spread, Table, Target, WrongAnswerError
from prepared import Prepared, policy_text, tables
from replaying import written

from privtab_logs import reading
from privtab_logs.distinct import distinct
from privtab_logs.excerpts import Row, StateRows
from privtab_logs.proposal import propose, removal_order
from privtab_logs.schema import Reading
from privtab_logs.usage import usage

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
            command = [_command(prepared, logs, Path(name)) for _ in range(repetitions)]
            spreads[size], processor = (Spread(values=tuple(cost[n] for cost in command)) for n in (0, 1))
            figures = [step.text(1) for step in steps], (f"{number:,}" for number in runs[0][1])
            rows.append((size, *figures[0], *figures[1], spreads[size].text(1), processor.text(1)))
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
            "the command",
            "its processor time",
        ),
        rows=tuple(rows),
    )
    targets = [
        Target(what=f"a narrower state, {size}", spread=spread, wanted=300, sense="at most", unit=" s")
        for size, spread in spreads.items()
    ]
    return Report(part="narrowing", tables=(table,), targets=tuple(targets))


def _command(prepared: Prepared, logs: Path, folder: Path) -> tuple[float, float]:
    """Seconds of `privtab unused --propose`, and of processor time."""
    policy, state, narrower = (folder / f"{prepared.size}-{name}" for name in ("lake.yaml", "state.json", "less.json"))
    policy.write_text(policy_text(), encoding="utf-8")
    state.write_text(json.dumps(tables(prepared.world)), encoding="utf-8")
    command = [
        "unused",
        str(logs),
        "-p",
        str(policy),
        "-s",
        str(state),
        "--system",
        "gravitino",
        "--propose",
        str(narrower),
    ]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    subprocess.run([sys.executable, "-m", "privtab", *command], check=True, capture_output=True)
    seconds = time.perf_counter() - started
    if not narrower.stat().st_size < state.stat().st_size:
        raise WrongAnswerError("the command writes no narrower state")
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


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
