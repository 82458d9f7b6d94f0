"""Logged decisions read and replayed: on this machine by columns, and on Spark beside Spark's own reading of the same files."""

from __future__ import annotations

import gzip
import multiprocessing
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Report, Spread, Table, Target, WrongAnswerError
from prepared import Prepared, program, serve

from privtab.base.request import Entity, Request
from privtab.client import Client
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts, policy_revision
from privtab.state.index import index_document
from privtab_logs import reading, replaying
from privtab_logs.moments import KnownState, Moments, Policy
from privtab_logs.schema import Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECISIONS = 1_000_000
LARGE = 10_000_000
SAMPLE = 100_000
DUCKDB = "duckdb"
IN_FILE = 50_000
"""Decisions of a file, which is one packed array."""
_HEAD = '{"labels":{"app":"lake","id":"c18e2482-b401-45f8-8c10-f3d3dbdc53a8","version":"1.22.4"},"decision_id":"'
_QUESTION = (
    '","bundles":{"policy":{"revision":"%s"},"state":{"revision":"%s"}},"path":"privtab/gravitino/allow",'
    '"input":{"action":{"name":"%s"},"resource":{"id":"%s","type":"table"},"subject":{"id":"%s","type":"user"}},"result":%s,'
    '"timestamp":"'
)


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Seconds and memory of reading and replaying a million decisions."""
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        for size in sizes:
            logs = written([Prepared(size=size, folder=Path(name))], Path(name) / f"logs-{size}", DECISIONS)
            costs = [(*measured(size, logs), *measured(DUCKDB, logs)) for _ in range(repetitions)]
            seconds, processor, memory, duckdb = (Spread(values=tuple(cost[n] for cost in costs)) for n in range(4))
            packed = sum(file.stat().st_size for file in logs.iterdir()) / 1e6
            rows.append(
                (size, f"{packed:,.0f}", *(one.text(1) for one in (seconds, processor, duckdb)), memory.text(2))
            )
            targets += [
                Target(what=f"a million decisions of {size}", spread=seconds, wanted=60, sense="at most", unit=" s"),
                Target(what=f"their memory, {size}", spread=memory, wanted=1.5, sense="at most", unit=" GB"),
            ]
    table = Table(
        title=f"{DECISIONS:,} logged decisions, read and replayed in one process",
        columns=("size", "MB packed", "s", "s of processor", "DuckDB only reads them, s of processor", "GB"),
        rows=tuple(rows),
    )
    return Report(part="replaying", tables=(table,), targets=tuple(targets))


def report_large(sizes: Sequence[str], repetitions: int) -> Report:
    """Ten million decisions on Spark, beside Spark's own reading of the same files; and a sample against a fresh OPA with another policy."""
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        worlds = [Prepared(size=size, folder=Path(name)) for size in sizes]
        logs = written(worlds, Path(name) / "logs", LARGE)
        packed = sum(file.stat().st_size for file in logs.iterdir()) / 1e6
        ours, sparks = _on_spark(worlds, logs, repetitions)
        sampled = [
            (prepared.size, *_against_opa(prepared, logs, worlds.index(prepared), len(worlds))) for prepared in worlds
        ]
    ratio = ours.over(sparks)
    tables = (
        Table(
            title=f"{LARGE:,} logged decisions of {' and '.join(sizes)} on Spark with two cores, none of which differs",
            columns=("MB packed", "read and replayed, decisions/s", "Spark's own read, parse, count/s", "ratio"),
            rows=((f"{packed:,.0f}", ours.text(), sparks.text(), ratio.text(2)),),
        ),
        Table(
            title="Logged decisions by another policy: replayed, and asked of a fresh OPA",
            columns=("size", "decisions", "gained", "lost", "answered otherwise by OPA"),
            rows=tuple((size, *(f"{number:,}" for number in numbers)) for size, *numbers in sampled),
        ),
    )
    target = Target(what="on Spark, beside Spark's own reading", spread=ratio, wanted=0.5, sense="at least")
    return Report(part="replaying_large", tables=tables, targets=(target,))


def written(worlds: Sequence[Prepared], folder: Path, count: int) -> Path:
    """A folder of logs of the worlds' requests and right answers, packed as OPA uploads them; a file is of one world, one after the other."""
    folder.mkdir()
    texts = [_questions(prepared) for prepared in worlds]
    starts = range(0, count, IN_FILE)
    parts = [(folder, start, min(IN_FILE, count - start)) for start in starts]
    with multiprocessing.get_context("fork").Pool(initializer=_TEXTS.extend, initargs=(texts,)) as pool:
        pool.map(_write, parts, chunksize=1)
    return folder


_TEXTS: list[list[str]] = []
"""Of each world, what an entry says of each question."""


def _questions(prepared: Prepared) -> list[str]:
    world = prepared.world
    revisions = policy_revision(prepared.program), index_document(prepared.program, prepared.state)["revision"]
    return [
        _QUESTION % (*revisions, action, table, user, "true" if answer else "false")
        for action, answers in (("load", world.may_load), ("select", world.may_select))
        for (user, table), answer in zip(world.requests, answers, strict=True)
    ]


def _write(part: tuple[Path, int, int]) -> None:
    folder, start, count = part
    rnd = random.Random(start)
    texts, entries = _TEXTS[start // IN_FILE % len(_TEXTS)], []
    for number in range(start, start + count):
        second, nanoseconds = divmod(number * 250_000, 1_000_000_000)
        day, second = divmod(second, 86_400)
        entries.append(
            f"{_HEAD}{rnd.getrandbits(128):032x}{texts[int(rnd.random() * len(texts))]}2026-11-{day + 1:02d}T{second // 3600:02d}:"
            f'{second // 60 % 60:02d}:{second % 60:02d}.{nanoseconds:09d}Z","metrics":{{"counter_server_query_cache_hit":1,'
            f'"timer_rego_input_parse_ns":{rnd.getrandbits(16)},"timer_rego_query_eval_ns":{rnd.getrandbits(18)},'
            f'"timer_server_handler_ns":{rnd.getrandbits(20)}}}}}'
        )
    (folder / f"{start:09d}.json.gz").write_bytes(gzip.compress(f"[{','.join(entries)}]".encode(), 1))


def measured(size: str, logs: Path) -> list[float]:
    """Seconds of reading and replaying, the same of the processor, and the most memory of the process in GB; for DUCKDB its seconds of the processor."""
    ran = subprocess.run([sys.executable, __file__, size, str(logs)], check=True, capture_output=True, text=True)
    return [*map(float, ran.stdout.split())]


def _on_spark(worlds: Sequence[Prepared], logs: Path, repetitions: int) -> tuple[Spread, Spread]:
    """Decisions a second on Spark: read and replayed; and those that Spark itself reads, parses and counts of the same files."""
    from pyspark.sql import SparkSession

    from privtab_logs.on_spark import replay_files

    moments = _moments(worlds, worlds[0].program)
    builder: Any = SparkSession.builder
    spark: SparkSession = builder.master("local[2]").config("spark.driver.memory", "2g").getOrCreate()

    def replayed(paths: list[str]) -> int:
        found = replay_files(spark, paths, moments)
        if found.questions.num_rows or found.not_replayed or found.reading.damaged:
            raise WrongAnswerError(f"differences where nothing changed: {found.account()}")
        return found.replayed

    runs: tuple[Callable[[list[str]], int], ...] = (replayed, lambda paths: _counted(spark, paths))
    rates: tuple[list[float], list[float]] = ([], [])
    for run in runs:
        run([str(file) for file in sorted(logs.iterdir())[: 2 * len(worlds)]])  # so that workers and states are open
    for _ in range(repetitions):
        for run, found in zip(runs, rates, strict=True):
            started = time.perf_counter()
            count = run([str(logs)])
            found.append(count / (time.perf_counter() - started))
    spark.stop()
    return Spread(values=tuple(rates[0])), Spread(values=tuple(rates[1]))


def _moments(worlds: Sequence[Prepared], new: Program) -> Moments:
    """The policy and the states that decided, and a new policy."""
    policy = Policy.of(worlds[0].program)
    documents = (index_document(prepared.program, prepared.state) for prepared in worlds)
    known = {document["revision"]: KnownState(documents=(document,)) for document in documents}
    return Moments(new=Policy.of(new), policy=lambda _: policy, state=lambda revision: known[str(revision)])


def _against_opa(prepared: Prepared, logs: Path, first: int, step: int) -> tuple[int, int, int, int]:
    """How many of SAMPLE decisions of a world another policy changes: replayed, gained and lost, and as a fresh OPA answers."""
    files = sorted(logs.iterdir())[first::step][: SAMPLE // IN_FILE]
    rows = reading.read(*files)
    new = program("USE_SCHEMA (schema) and MODIFY_TABLE (table)")
    found = replaying.replay(rows.to_batches(), _moments([prepared], new))
    replayed = Counter({(q["user"], q["action"], q["resource"]): q["requests"] for q in found.questions.to_pylist()})
    asked: Counter[tuple[str, str, str]] = Counter()
    policy = prepared.folder / "changed.tar.gz"
    policy.write_bytes(policy_artifacts(new).bundle())
    with serve({**prepared.ours(), "policy": policy}) as opa, Client(opa.url, system="gravitino") as client:
        names = ("user", "action", "resource")
        questions = list(zip(*(rows[name].to_pylist() for name in names), strict=True))
        answers = client.check_many(
            [Request(user=user, action=action, resource=Entity.parse(entity)) for user, action, entity in questions]
        )
    for question, answer, logged in zip(questions, answers, rows["allowed"].to_pylist(), strict=True):
        asked[question] += answer != logged
    if +asked != replayed or not replayed or found.replayed != len(rows):
        raise WrongAnswerError("a replay differs from what a fresh OPA answers")
    return len(rows), found.count("gained"), found.count("lost"), asked.total()


def _counted(spark: SparkSession, paths: Sequence[str]) -> int:
    """The decisions whose columns Spark's own reader finds, all of which must be there."""
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    entries = spark.read.schema(_PARSED).option("multiLine", "true").json(list(paths))
    there = [F.count(F.col(name)).alias(name.replace(".", "_")) for name in _FIELDS]
    (row,) = entries.agg(*there).collect()
    if len(set(row)) != 1:
        raise WrongAnswerError(f"Spark does not find every column: {row}")
    return int(row[0])


_FIELDS = (
    "decision_id", "bundles.policy.revision", "bundles.state.revision", "path", "input.action.name", "input.resource.id",
    "input.resource.type", "input.subject.id", "result", "timestamp", "metrics.timer_server_handler_ns",
)  # fmt: skip
_PARSED = (
    "decision_id string, bundles struct<policy: struct<revision: string>, state: struct<revision: string>>, path string, "
    "input struct<action: struct<name: string>, resource: struct<id: string, type: string>, subject: struct<id: string, type: string>>, "
    "result boolean, timestamp timestamp, metrics struct<timer_server_handler_ns: long>"
)


def main(size: str, logs: Path) -> None:
    """Read and replay logs by the policy and the state that decided, and by a policy in which nobody may load."""
    with tempfile.TemporaryDirectory() as name:
        prepared = Prepared(size=size, folder=Path(name))
        moments = _moments([prepared], prepared.program)
        started, before = time.perf_counter(), time.process_time()
        account = Reading()
        found = replaying.replay(reading.batches([logs], account), moments, reading=account)
        seconds, processor = time.perf_counter() - started, time.process_time() - before
        if found.questions.num_rows or found.replayed != account.decisions or account.damaged:
            raise WrongAnswerError(f"{found.questions.num_rows} differences where nothing changed")
    sys.stdout.write(f"{seconds} {processor} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}\n")


def by_duckdb(logs: Path) -> None:
    """Let DuckDB's own reader find the fields that a row needs, on one processor, and count them."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    counts = ", ".join(f"count({name})" for name in _FIELDS)
    before = time.process_time()
    found = connection.execute(
        f"SELECT {counts} FROM read_json(?, format = 'array', columns = {_COLUMNS})",  # noqa: S608  (constants)
        [[str(file) for file in sorted(logs.iterdir())]],
    ).fetchall()
    processor = time.process_time() - before
    if len(set(found[0])) != 1:
        raise WrongAnswerError(f"DuckDB does not find every column: {found[0]}")
    sys.stdout.write(f"{processor}\n")


_COLUMNS = (
    "{decision_id: 'VARCHAR', bundles: 'STRUCT(policy STRUCT(revision VARCHAR), state STRUCT(revision VARCHAR))', path: 'VARCHAR', "
    "input: 'STRUCT(action STRUCT(name VARCHAR), resource STRUCT(id VARCHAR, type VARCHAR), subject STRUCT(id VARCHAR, type VARCHAR))', "
    "result: 'BOOLEAN', timestamp: 'TIMESTAMP', metrics: 'STRUCT(timer_server_handler_ns BIGINT)'}"
)

if __name__ == "__main__":
    if sys.argv[1] == DUCKDB:
        by_duckdb(Path(sys.argv[2]))
    else:
        main(sys.argv[1], Path(sys.argv[2]))
