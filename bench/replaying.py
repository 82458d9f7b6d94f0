"""Logged decisions read and replayed: on this machine by columns, and on Spark beside Spark's own reading of the same files."""

from __future__ import annotations

import gzip
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Report, Spread, Table, Target, WrongAnswerError
from prepared import Prepared

from privtab.logs import reading, replaying
from privtab.logs.moments import KnownState, Moments, Policy
from privtab.logs.schema import Reading
from privtab.pipeline import policy_revision
from privtab.state.index import index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECISIONS = 1_000_000
IN_FILE = 50_000
"""Decisions of a file, which is one packed array."""
_ENTRY = (
    '{"labels":{"app":"lake","id":"c18e2482-b401-45f8-8c10-f3d3dbdc53a8","version":"1.22.2"},"decision_id":"%s",'
    '"bundles":{"policy":{"revision":"%s"},"state":{"revision":"%s"}},"path":"privtab/gravitino/allow",'
    '"input":{"action":{"name":"%s"},"resource":{"id":"%s","type":"table"},"subject":{"id":"%s","type":"user"}},"result":%s,'
    '"timestamp":"2026-11-%02dT%02d:%02d:%02d.%09dZ","metrics":{"counter_server_query_cache_hit":1,'
    '"timer_rego_input_parse_ns":%d,"timer_rego_query_eval_ns":%d,"timer_server_handler_ns":%d}}'
)


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Seconds and memory of reading and replaying a million decisions."""
    rows: list[tuple[str, ...]] = []
    spreads: dict[str, tuple[Spread, Spread]] = {}
    ratios: dict[str, Spread] = {}
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        for size in sizes:
            prepared = Prepared(size=size, folder=Path(name))
            logs = written(prepared, Path(name) / f"logs-{size}", DECISIONS)
            costs = [_measured(size, logs) for _ in range(repetitions)]
            seconds, memory = (Spread(values=tuple(cost[n] for cost in costs)) for n in (0, 1))
            spreads[size] = seconds, memory
            packed = sum(file.stat().st_size for file in logs.iterdir()) / 1e6
            ours, sparks = on_spark(size, logs, Path(name), repetitions)
            ratios[size] = ours.over(sparks)
            figures = seconds.text(1), memory.text(2), ours.text(), sparks.text(), ratios[size].text(2)
            rows.append((size, f"{packed:,.0f}", *figures))
    table = Table(
        title=f"{DECISIONS:,} logged decisions, read and replayed: in one process, and on Spark with two cores",
        columns=("size", "MB packed", "s", "GB", "on Spark: decisions/s", "Spark's own read, parse, count/s", "ratio"),
        rows=tuple(rows),
    )
    targets = [
        target
        for size, (seconds, memory) in spreads.items()
        for target in (
            Target(what=f"a million decisions of {size}", spread=seconds, wanted=60, sense="at most", unit=" s"),
            Target(what=f"their memory, {size}", spread=memory, wanted=1.5, sense="at most", unit=" GB"),
            Target(
                what=f"on Spark, beside Spark's own reading, {size}", spread=ratios[size], wanted=0.5, sense="at least"
            ),
        )
    ]
    return Report(part="replaying", tables=(table,), targets=tuple(targets))


def written(prepared: Prepared, folder: Path, count: int) -> Path:
    """A folder of logs of the world's requests and right answers, packed as OPA uploads them."""
    folder.mkdir()
    entries = _entries(prepared, count)
    for start in range(0, count, IN_FILE):
        texts = [text for _, text in zip(range(min(IN_FILE, count - start)), entries, strict=False)]
        (folder / f"{start:09d}.json.gz").write_bytes(gzip.compress(f"[{','.join(texts)}]".encode(), 4))
    return folder


def _entries(prepared: Prepared, count: int) -> Iterator[str]:
    world, rnd = prepared.world, random.Random(7)
    revisions = policy_revision(prepared.program), index(prepared.program, prepared.state)["revision"]
    answers = {"load": world.may_load, "select": world.may_select}
    for number in range(count):
        action = "load" if number % 2 else "select"
        at = rnd.randrange(len(world.requests))
        user, table = world.requests[at]
        second, nanoseconds = divmod(number * 250_000, 1_000_000_000)
        yield _ENTRY % (
            f"{rnd.getrandbits(128):032x}",
            *revisions,
            action,
            table,
            user,
            "true" if answers[action][at] else "false",
            1 + second // 86_400,
            second // 3600 % 24,
            second // 60 % 60,
            second % 60,
            nanoseconds,
            *(rnd.randrange(10_000, 999_999) for _ in range(3)),
        )  # fmt: skip


def _measured(size: str, logs: Path) -> tuple[float, float]:
    """Seconds of reading and replaying, and the most memory of the process in GB."""
    ran = subprocess.run([sys.executable, __file__, size, str(logs)], check=True, capture_output=True, text=True)
    seconds, memory = map(float, ran.stdout.split())
    return seconds, memory


def on_spark(size: str, logs: Path, folder: Path, repetitions: int) -> tuple[Spread, Spread]:
    """Decisions a second on Spark: read and replayed; and those that Spark itself reads, parses and counts of the same files."""
    from pyspark.sql import SparkSession

    from privtab.logs.on_spark import replay_files

    prepared = Prepared(size=size, folder=folder)
    policy = Policy.of(prepared.program)
    known = KnownState(documents=(index(prepared.program, prepared.state),))
    moments = Moments(new=policy, policy=lambda _: policy, state=lambda _: known)
    builder: Any = SparkSession.builder
    spark: SparkSession = builder.master("local[2]").config("spark.driver.memory", "2g").getOrCreate()
    runs: tuple[Callable[[list[str]], int], ...] = (
        lambda paths: replay_files(spark, paths, moments).replayed,
        lambda paths: _counted(spark, paths),
    )
    rates: tuple[list[float], list[float]] = ([], [])
    for run in runs:
        run([str(min(logs.iterdir()))])
    for _ in range(repetitions):
        for run, found in zip(runs, rates, strict=True):
            started = time.perf_counter()
            count = run([str(logs)])
            found.append(count / (time.perf_counter() - started))
    spark.stop()
    return Spread(values=tuple(rates[0])), Spread(values=tuple(rates[1]))


def _counted(spark: SparkSession, paths: Sequence[str]) -> int:
    """The decisions whose columns Spark's own reader finds, all of which must be there."""
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    entries = spark.read.schema(_PARSED).option("multiLine", "true").json(list(paths))
    columns = (
        "decision_id", "bundles.policy.revision", "bundles.state.revision", "path", "input.action.name", "input.resource.id",
        "input.resource.type", "input.subject.id", "result", "timestamp", "metrics.timer_server_handler_ns",
    )  # fmt: skip
    there = [F.count(F.col(name)).alias(name.replace(".", "_")) for name in columns]
    (row,) = entries.agg(*there).collect()
    if len(set(row)) != 1:
        raise WrongAnswerError(f"Spark does not find every column: {row}")
    return int(row[0])


_PARSED = (
    "decision_id string, bundles struct<policy: struct<revision: string>, state: struct<revision: string>>, path string, "
    "input struct<action: struct<name: string>, resource: struct<id: string, type: string>, subject: struct<id: string, type: string>>, "
    "result boolean, timestamp timestamp, metrics struct<timer_server_handler_ns: long>"
)


def main(size: str, logs: Path) -> None:
    """Read and replay logs by the policy and the state that decided, and by a policy in which nobody may load."""
    with tempfile.TemporaryDirectory() as name:
        prepared = Prepared(size=size, folder=Path(name))
        policy = Policy.of(prepared.program)
        known = KnownState(documents=(index(prepared.program, prepared.state),))
        started = time.perf_counter()
        moments = Moments(new=policy, policy=lambda _: policy, state=lambda _: known)
        account = Reading()
        found = replaying.replay(reading.batches([logs], account), moments, reading=account)
        seconds = time.perf_counter() - started
        if found.questions.num_rows or found.replayed != account.decisions or account.damaged:
            raise WrongAnswerError(f"{found.questions.num_rows} differences where nothing changed")
    sys.stdout.write(f"{seconds} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
