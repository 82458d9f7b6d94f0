"""Millions of decisions on Spark: `decide` compared with joins that an expert would write, and with a request for every row.

Every contestant counts its wrong answers, over the same cached DataFrame in the same session.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from masks import Masks
from measure import Report, Spread, Table, Target, WrongAnswerError
from spark_by_hand import ByHand
from spark_growth import growth, growth_table, growth_targets

if TYPE_CHECKING:
    import pyarrow as pa
    from prepared import Prepared
    from pyspark.sql import DataFrame, SparkSession

# For `spark_sessions`, the sessions of the tests.
sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))

ROWS = 1_000_000
SINGLES = 2_000

JOINS, DISTINCT_JOINS = "by hand, native joins", "by hand, native joins on distinct pairs"
KERNEL, PORTIONS = "decide, kernel", "decide, portions"
LOAD = "decide, kernel, the policy's `load`"
THROUGH = "nothing decided: `mapInArrow` returns both columns"
READ = "nothing decided: `mapInArrow` reads both columns and returns one Boolean"
NEAR = 0.75
"""Share of READ's rate that the kernel reaches with distinct pairs."""
ONE = "one request a row, `requests`"
REPEATED, ALONE = "10,000 distinct pairs", "all pairs distinct"
CLOSE = "all pairs distinct, these three alone"
"""The kernel beside what decides nothing, in a race without joins, which leave the machine warm and its caches cold."""
CLOSE_REPETITIONS = 12
"""Repetitions at least, since what decides nothing varies most."""


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Every contestant at every size, then growing numbers of rows."""
    import spark_sessions
    from prepared import Prepared

    rates: dict[tuple[str, str, str], Spread] = {}
    prepared_in: dict[str, dict[str, float]] = {}
    first: dict[tuple[str, str], Spread] = {}
    # 2 GB, like the driver of a small job. Batches keep Spark's default size: larger ones would speed up every contestant.
    session = spark_sessions.session(memory="2g", spark__sql__adaptive__enabled="true")
    try:
        with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
            for size in sizes:
                arena = Arena(session, Prepared(size=size, folder=Path(name)), Path(name))
                distinct = arena.contestants(ALONE)
                close = [runner for runner in distinct if runner.name in (READ, KERNEL, LOAD)]
                for shape, runners, times in (
                    (REPEATED, arena.contestants(REPEATED), repetitions),
                    (ALONE, distinct, repetitions),
                    (CLOSE, close, max(CLOSE_REPETITIONS, repetitions)),
                ):
                    raced = race(runners, times)
                    rates |= {(who, shape, size): spread for who, spread in raced.items()}
                rates[ONE, REPEATED, size] = arena.row_by_row(min(repetitions, 3))
                prepared_in[size] = {**arena.seconds, "by hand": arena.hand.seconds}
                first |= {(who, size): spread for who, spread in arena.first_rows(min(repetitions, 3)).items()}
                arena.close()
    finally:
        session.stop()
    seconds, mib = growth(sizes[-1], min(repetitions, 3))
    return Report(
        part="spark",
        tables=(
            _rates(rates, sizes),
            _first(first, sizes),
            _preparation(prepared_in, sizes),
            growth_table(seconds, mib),
        ),
        targets=(
            *(t for size in sizes for t in (*_targets(rates, size), _soon(first, size))),
            *_across(rates, sizes),
            *growth_targets(seconds, mib),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """One way to decide all rows of a frame; `wrong` runs it and returns the number of wrong answers."""

    name: str
    rows: int
    wrong: Callable[[], int]


def race(runners: Sequence[Runner], repetitions: int) -> dict[str, Spread]:
    """Rows a second by name. Each runner runs once in every repetition, in rotating order, every other time backwards.

    So none always runs after the same other one, which leaves its garbage and its memory to it.
    """
    rates: dict[str, list[float]] = {runner.name: [] for runner in runners}
    for runner in runners:
        _timed(runner)
    for repetition in range(repetitions):
        first = repetition // 2 % len(runners)
        for runner in (*runners[first:], *runners[:first])[:: -1 if repetition % 2 else 1]:
            rates[runner.name].append(runner.rows / _timed(runner))
    return {name: Spread(values=tuple(values)) for name, values in rates.items()}


def _timed(runner: Runner) -> float:
    gc.collect()
    started = time.perf_counter()
    wrong = runner.wrong()
    seconds = time.perf_counter() - started
    if wrong:
        raise WrongAnswerError(f"{runner.name}: {wrong} of {runner.rows} answers are wrong")
    return seconds


class Arena:
    """The frames of one size, and the tables that each contestant prepares."""

    def __init__(self, spark: SparkSession, prepared: Prepared, folder: Path) -> None:
        self.spark = spark
        self.prepared = prepared
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self._cached: list[DataFrame] = []
        self.hand = ByHand(spark, prepared, folder, self._keep)

    def close(self) -> None:
        """Unpersist the cached frames."""
        for frame in self._cached:
            frame.unpersist()

    def contestants(self, shape: str) -> list[Runner]:
        """The hand-written joins and our plans, over the frame of a shape."""
        frame = self.frame(shape)
        hand = [
            Runner(name=JOINS, rows=ROWS, wrong=lambda: _wrong(self.hand.row_by_row(frame))),
            Runner(name=DISTINCT_JOINS, rows=ROWS, wrong=lambda: _wrong(self.hand.on_distinct(frame))),
        ]
        return [
            Runner(name=THROUGH, rows=ROWS, wrong=lambda: _missing(_through(frame))),
            Runner(name=READ, rows=ROWS, wrong=lambda: _missing(_read(frame).where("got"))),
            *hand,
            self._ours(frame, KERNEL, "kernel"),
            self._ours(frame, LOAD, "kernel", "load"),
            self._ours(frame, PORTIONS, "portions"),
        ]

    def _ours(self, frame: DataFrame, name: str, plan: str, action: str = "select") -> Runner:
        from privtab_spark import decide

        started = time.perf_counter()
        decided = decide(
            frame, self.prepared.program, self.state, subject="user", action=action, resource=("table", "table"),
            plan=plan, allowed="got",
        )  # fmt: skip
        wrong = decided.where("want <> got" if action == "select" else "want_load <> got")
        self.seconds.setdefault(name, time.perf_counter() - started)
        return Runner(name=name, rows=ROWS, wrong=wrong.count)

    @cached_property
    def state(self) -> Any:
        """The state for `decide`; its tables are cached, like those of the hand-written joins."""
        from privtab_spark.state import state_tables

        started = time.perf_counter()
        state = state_tables(self.spark, self.prepared.program, self.prepared.state)
        for table in state.tables.values():
            self._keep(table)
        self.seconds["state"] = time.perf_counter() - started
        return state

    def frame(self, shape: str) -> DataFrame:
        """`user`, `table`, `want` and `want_load`: the requests a hundred times, or each user with all tables of several schemas."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        world = self.prepared.world
        if shape == REPEATED:
            pairs = list(world.requests)
            wants, loads = list(world.may_select), list(world.may_load)
        else:
            roles = {user: world.all_roles(user) for user in world.roles_of}
            masks = Masks(world.grants, roles, members=world.members, owners=world.owners)
            pairs = _beside(world.requests, world.size.tables)
            wants = [masks.allow(user, table) for user, table in pairs]
            loads = [masks.load(user, table) for user, table in pairs]
        columns = {"user": [u for u, _ in pairs], "table": [t for _, t in pairs], "want": wants, "want_load": loads}
        path = self.folder / f"{self.prepared.size}-{len(pairs)}.parquet"
        pq.write_table(pa.table(columns), path)
        frame = self.spark.read.parquet(str(path))
        if len(pairs) < ROWS:
            frame = frame.crossJoin(self.spark.range(ROWS // len(pairs)).withColumnRenamed("id", "time"))
        return self._keep(frame.select(*columns).repartition(4))

    def first_rows(self, repetitions: int) -> dict[str, Spread]:
        """Seconds from the call to the first row, by name, with the state in Parquet files and nothing prepared."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        from prepared import tables

        from privtab_spark import decide

        folder = self.folder / f"{self.prepared.size}-state"
        folder.mkdir()
        for name, rows in tables(self.prepared.world).items():
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
        frame = self.frame(ALONE)

        def ours() -> None:
            os.utime(folder / "grants.parquet")  # otherwise the state would be known from the last call
            decide(
                frame, self.prepared.program, str(folder), subject="user", action="select", resource=("table", "table"),
                plan="kernel", allowed="got",
            ).head(1)  # fmt: skip

        def by_hand() -> None:
            self.hand.from_files_row_by_row(frame, folder).head(1)

        seconds: dict[str, list[float]] = {KERNEL: [], JOINS: []}
        for _ in range(repetitions + 1):
            for name, run in ((KERNEL, ours), (JOINS, by_hand)):
                gc.collect()
                started = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - started)
        return {name: Spread(values=tuple(values[1:])) for name, values in seconds.items()}

    def row_by_row(self, repetitions: int) -> Spread:
        """Rows a second if the driver sends a request for every row."""
        import requests
        from prepared import serve

        rows = list(zip(self.prepared.world.requests, self.prepared.world.may_select, strict=True))[:SINGLES]
        rates = []
        with serve(self.prepared.ours()) as opa:
            for _ in range(repetitions):
                started = time.perf_counter()
                wrong = 0
                for (user, table), want in rows:
                    asked = {
                        "subject": {"type": "user", "id": user},
                        "action": {"name": "select"},
                        "resource": {"type": "table", "id": table},
                    }
                    answer = requests.post(
                        f"{opa.url}/v1/data/privtab/{self.prepared.program.system}/allow",
                        json={"input": asked},
                        timeout=30,
                    )
                    wrong += answer.json()["result"] is not want
                rates.append(len(rows) / (time.perf_counter() - started))
                if wrong:
                    raise WrongAnswerError(f"{ONE}: {wrong} of {len(rows)} answers are wrong")
        return Spread(values=tuple(rates))

    def _keep(self, frame: DataFrame) -> DataFrame:
        cached = frame.cache()
        cached.count()
        self._cached.append(cached)
        return cached


def _beside(requests: Sequence[tuple[str, str]], tables: int) -> list[tuple[str, str]]:
    """A million pairs: each user with all tables of the schemas in their requests, then of schemas in other requests."""
    pairs: dict[tuple[str, str], None] = {}
    for shift in itertools.count():
        for number, (user, _) in enumerate(requests):
            schema = requests[(number + shift) % len(requests)][1].rpartition("/")[0]
            pairs.update(dict.fromkeys((user, f"{schema}/t{n}") for n in range(tables)))
            if len(pairs) >= ROWS:
                return list(pairs)[:ROWS]
    raise AssertionError("counting never ends")


def _through(frame: DataFrame) -> DataFrame:
    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return frame.select("user", "table").mapInArrow(through, "user string, table string")


def _read(frame: DataFrame) -> DataFrame:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            users, tables = (pc.greater(pc.binary_length(column), 0) for column in batch.columns)
            yield pa.RecordBatch.from_arrays([pc.and_(users, tables)], ["got"])

    return frame.select("user", "table").mapInArrow(read, "got boolean")


def _missing(frame: DataFrame) -> int:
    return ROWS - frame.count()


def _wrong(frame: DataFrame) -> int:
    return frame.where("want <> got").count()


# --- what is shown -----------------------------------------------------------------------------------------------------


def _rates(rates: Mapping[tuple[str, str, str], Spread], sizes: Sequence[str]) -> Table:
    rows = dict.fromkeys((who, shape) for who, shape, _ in rates)
    return Table(
        title=f"Rows decided a second, {ROWS:,} rows, local[2]: median of the repetitions (min..max)",
        columns=("contestant", *sizes),
        rows=tuple(
            (f"{who}, {shape}", *(rates[who, shape, size].text() if (who, shape, size) in rates else "" for size in sizes))
            for who, shape in rows
        ),
    )  # fmt: skip


def _first(first: Mapping[tuple[str, str], Spread], sizes: Sequence[str]) -> Table:
    return Table(
        title="Seconds from the call to the first row, with the state in Parquet files and all pairs distinct",
        columns=("contestant", *sizes),
        rows=tuple(
            (who, *(first[who, size].text(1) for size in sizes)) for who in dict.fromkeys(who for who, _ in first)
        ),
    )


def _soon(first: Mapping[tuple[str, str], Spread], size: str) -> Target:
    ratio = first[KERNEL, size].over(first[JOINS, size])
    return Target(what=f"{size}: first row: decide / joins by hand", spread=ratio, wanted=1.5, sense="at most")


def _preparation(seconds: Mapping[str, Mapping[str, float]], sizes: Sequence[str]) -> Table:
    names = dict.fromkeys(name for of in seconds.values() for name in of)
    return Table(
        title="Preparation before the first row, seconds, once",
        columns=("what", *sizes),
        rows=tuple(
            (name, *(f"{seconds[size][name]:.2f}" if name in seconds[size] else "" for size in sizes)) for name in names
        ),
    )


def _targets(rates: Mapping[tuple[str, str, str], Spread], size: str) -> list[Target]:
    kernel = rates[KERNEL, REPEATED, size]
    one = rates[ONE, REPEATED, size]
    found = [
        (f"{REPEATED}: decide / joins by hand", kernel, rates[JOINS, REPEATED, size], 5.0),
        (f"{ALONE}: decide / joins by hand", rates[KERNEL, ALONE, size], rates[JOINS, ALONE, size], 4.0),
        (f"{CLOSE}: decide / one Boolean and nothing decided", rates[KERNEL, CLOSE, size], rates[READ, CLOSE, size], NEAR),
        (f"{CLOSE}: decide, `load` / one Boolean and nothing decided", rates[LOAD, CLOSE, size], rates[READ, CLOSE, size], NEAR),
    ]  # fmt: skip
    row_by_row = Spread(values=tuple(rate / one.median for rate in kernel.values))
    return [
        *(
            Target(what=f"{size}: {what}", spread=ours.over(theirs), wanted=wanted, sense="at least")
            for what, ours, theirs, wanted in found
        ),
        Target(what=f"{size}: decide / a request for every row", spread=row_by_row, wanted=1500, sense="at least", digits=0),
    ]  # fmt: skip


def _across(rates: Mapping[tuple[str, str, str], Spread], sizes: Sequence[str]) -> list[Target]:
    if not {"S", "L"} <= set(sizes):
        return []
    return [
        Target(
            what=f"{shape}: rate at L / rate at S",
            spread=Spread(values=(rates[KERNEL, shape, "L"].median / rates[KERNEL, shape, "S"].median,)),
            wanted=0.8,
            sense="at least",
        )
        for shape in (REPEATED, ALONE)
    ]
