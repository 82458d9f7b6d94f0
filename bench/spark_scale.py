"""A million requests on Spark over growing states, in sessions with Spark's default memory, beside joins by hand.

`python bench/run.py scale`, or one size: `python bench/spark_scale.py 5000000`; `python bench/run.py first` for the first question of a session.
What is right is computed with numpy alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Report, Spread, Table, Target, WrongAnswerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GRANTS = (1_000_000, 5_000_000, 20_000_000)
REQUESTS = 1_000_000
USERS, ROLES_OF_USER, SCHEMA_TABLES = 100_000, 3, 100
POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {lake: {schema: {table: }}}
privileges: [READ]
semantics: {inheritance: down, deny: overrides}
tables: {table: {read: READ (table)}}
"""
ALLOWED_BITS, DENIED_BITS = np.uint8(1), np.uint8(2)
OURS, HAND = "decide", "joins by hand"
PATH, LIMIT = (
    "decide, the state by its path",
    "nothing decided: `mapInArrow` reads both columns and returns one Boolean",
)
AGAIN = ", again"
"""The same once more in the same session, which has Spark's code compiled, and ours the state prepared; caching the tables made the joins slower."""


class Numbers:
    """The state and the requests as numbers: half of the lake's grants are on the first root, the others on nine more."""

    def __init__(self, grants: int) -> None:
        chance = np.random.default_rng(20261125)
        self.roles = max(1000, grants // 1000)
        self.tables = grants
        self.schemas = grants // SCHEMA_TABLES
        on_schema = grants // 50
        self.grant_role = chance.integers(0, self.roles, grants)
        # Tables are numbered from 0, schemas behind them.
        self.grant_entity = chance.integers(0, self.tables, grants)
        self.grant_entity[:on_schema] = self.tables + chance.integers(0, self.schemas, on_schema)
        self.deny = chance.random(grants) < 0.02
        self.role_of = chance.integers(0, self.roles, (USERS, ROLES_OF_USER))
        # Half of the requests are about a grant of one of the user's roles, the others about any table.
        order = np.argsort(self.grant_role, kind="stable")
        begins = np.searchsorted(self.grant_role[order], np.arange(self.roles + 1))
        self.user = chance.integers(0, USERS, REQUESTS)
        role = self.role_of[self.user, chance.integers(0, ROLES_OF_USER, REQUESTS)]
        counts = begins[role + 1] - begins[role]
        grant = order[np.minimum(begins[role] + (chance.random(REQUESTS) * counts).astype(np.int64), len(order) - 1)]
        table = self.grant_entity[grant]
        in_schema = table >= self.tables
        table[in_schema] = (table[in_schema] - self.tables) * SCHEMA_TABLES + chance.integers(
            0, SCHEMA_TABLES, int(in_schema.sum())
        )
        self.table = np.where(chance.random(REQUESTS) < 0.5, table, chance.integers(0, self.tables, REQUESTS))

    def right(self) -> Any:
        """The answers: an allow to a role of the user on the table or its schema, and no denial."""
        key = self.grant_role.astype(np.int64) << 32 | self.grant_entity
        order = np.argsort(key, kind="stable")
        keys = key[order]
        begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        bits = np.bitwise_or.reduceat(np.where(self.deny[order], DENIED_BITS, ALLOWED_BITS), begins)
        keys = keys[begins]
        found = np.zeros(REQUESTS, np.uint8)
        for entity in (self.table, self.tables + self.table // SCHEMA_TABLES):
            for column in range(ROLES_OF_USER):
                asked = self.role_of[self.user, column].astype(np.int64) << 32 | entity
                at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
                found |= np.where(keys[at] == asked, bits[at], np.uint8(0))
        return found == ALLOWED_BITS

    def lakes(self, schema: Any) -> Any:
        """The root of a schema, the first of which has half of them."""
        return np.where(schema % 2 == 0, 0, schema % 10)

    def write(self, folder: Path) -> None:
        """Parquet files of the state, in `state`, and the requests with what is right, in `requests.parquet`."""
        (folder / "state").mkdir()
        (folder / "lake.yaml").write_text(POLICY, encoding="utf-8")
        members = {
            "principal": _texts("user:u", np.repeat(np.arange(USERS), ROLES_OF_USER)),
            "role": _texts("r", self.role_of.ravel()),
        }
        pq.write_table(pa.table(members), folder / "state" / "assignments.parquet")
        with pq.ParquetWriter(folder / "state" / "grants.parquet", _GRANTS) as writer:
            for start in range(0, len(self.deny), 1_000_000):
                part = slice(start, start + 1_000_000)
                entity = self.grant_entity[part]
                is_schema = entity >= self.tables
                names = np.where(is_schema, "schema:", "table:").astype(object) + self._path(entity, is_schema)
                columns = [
                    _texts("role:r", self.grant_role[part]),
                    pa.array(np.where(self.deny[part], "deny", "allow")),
                    pa.array(["READ"] * len(entity)),
                    pa.array(names, pa.string()),
                ]
                writer.write_table(pa.table(columns, schema=_GRANTS))
        path = self._path(self.table, np.zeros(REQUESTS, bool))
        asked = {"user": _texts("u", self.user), "path": pa.array(path, pa.string()), "want": pa.array(self.right())}
        pq.write_table(pa.table(asked), folder / "requests.parquet", row_group_size=100_000)

    def _path(self, entity: Any, is_schema: Any) -> Any:
        schema = np.where(is_schema, entity - self.tables, entity // SCHEMA_TABLES)
        lake = np.char.add("l", self.lakes(schema).astype(str)).astype(object)
        found = lake + "/s" + schema.astype(str).astype(object)
        return np.where(is_schema, found, found + "/t" + entity.astype(str).astype(object))


_GRANTS = pa.schema([(name, pa.string()) for name in ("grantee", "effect", "privilege", "entity")])


def _texts(prefix: str, numbers: Any) -> pa.Array:
    return pa.array(np.char.add(prefix, numbers.astype(str)), pa.string())


def report(sizes: Sequence[str], repetitions: int) -> Report:  # noqa: ARG001  (every part takes them)
    """Seconds by number of grants, whatever `sizes` names, each number in a session of its own; at most two repetitions, since one takes minutes."""
    seconds: dict[tuple[int, str], list[float]] = {}
    for grants in GRANTS:
        for _ in range(min(repetitions, 2)):
            for name, value in _measured(grants).items():
                seconds.setdefault((grants, name), []).append(value)
    spreads = {key: Spread(values=tuple(values)) for key, values in seconds.items()}
    rows = tuple((f"{grants:,}", name, spread.text(1)) for (grants, name), spread in spreads.items())
    ours = {grants: spreads[grants, OURS] for grants in GRANTS}
    targets = [
        Target(what=f"{more:,} grants / 1,000,000 grants", spread=ours[more].over(ours[GRANTS[0]]), wanted=wanted, sense="at most")
        for more, wanted in ((GRANTS[1], 1.5), (GRANTS[2], 8.0))
    ] + [
        Target(
            what=f"{grants:,} grants: rate of decide / joins by hand", spread=spreads[grants, HAND].over(ours[grants]), wanted=1.0,
            sense="at least",
        )
        for grants in GRANTS[1:]
    ] + [
        Target(
            what=f"{GRANTS[0]:,} grants, again: rate of decide / joins by hand", wanted=5.0, sense="at least",
            spread=spreads[GRANTS[0], HAND + AGAIN].over(spreads[GRANTS[0], OURS + AGAIN]),
        )
    ]  # fmt: skip
    table = Table(title="1,000,000 requests, Spark's default memory", columns=("grants", "who", "seconds"), rows=rows)
    return Report(part="scale", tables=(table,), targets=tuple(targets))


def report_first(sizes: Sequence[str], repetitions: int) -> Report:  # noqa: ARG001  (every part takes them)
    """Seconds of the first question of a session over the smallest state, and of the same once more, in rotating order."""
    ways = (OURS, PATH, HAND, LIMIT)
    seconds: dict[str, list[float]] = {way + when: [] for way in ways for when in ("", AGAIN)}
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        Numbers(GRANTS[0]).write(Path(name))
        for repetition in range(repetitions):
            for way in (*ways[repetition % len(ways) :], *ways[: repetition % len(ways)]):
                for when, value in zip(("", AGAIN), _run(way, name, way), strict=True):
                    seconds[way + when].append(value)
    spreads = {name: Spread(values=tuple(values)) for name, values in seconds.items()}
    rows = tuple((way, spreads[way].text(1), spreads[way + AGAIN].text(1)) for way in ways)
    title = f"{REQUESTS:,} requests over {GRANTS[0]:,} grants, Spark's default memory, local[2]: seconds"
    table = Table(title=title, columns=("who", "first question of a session", "again"), rows=rows)
    targets = (
        Target(what="first: decide / joins by hand", spread=spreads[OURS].over(spreads[HAND]), wanted=0.5, sense="at most"),
        Target(
            what="again: rate of decide / of what decides nothing", wanted=0.8, sense="at least",
            spread=spreads[LIMIT + AGAIN].over(spreads[OURS + AGAIN]),
        ),
    )  # fmt: skip
    return Report(part="first", tables=(table,), targets=targets)


def _measured(grants: int) -> dict[str, float]:
    found: dict[str, float] = _run(f"{grants:,} grants", str(grants))
    return found


def _run(what: str, *arguments: str) -> Any:
    """What this file prints last with other arguments, from JSON."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False, timeout=3000
    )
    if done.returncode:
        raise WrongAnswerError(f"{what}: {done.stderr[-2000:]}")
    print(f"{what}: {done.stdout.splitlines()[-1]}", file=sys.stderr, flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", value=False)
    session: SparkSession = builder.config("spark.ui.showConsoleProgress", value=False).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _by_hand(asked: DataFrame, grants: DataFrame, roles: DataFrame) -> DataFrame:
    """The joins that an expert would write: ancestors exploded, roles joined, one aggregate for each request."""
    from pyspark.sql import functions as F  # noqa: N812

    above = F.array(F.concat(F.lit("table:"), "path"), F.concat(F.lit("schema:"), F.substring_index("path", "/", 2)))
    pairs = asked.select("user", "path").distinct().select("user", "path", F.explode(above).alias("entity"))
    held = pairs.join(roles.withColumn("user", F.substring("principal", 6, 99)), "user")
    held = held.withColumn("grantee", F.concat(F.lit("role:"), "role")).join(grants, ["entity", "grantee"])
    answers = held.groupBy("user", "path").agg(F.min(F.col("effect") == "allow").alias("got"))
    return asked.join(answers, ["user", "path"], "left").withColumn("got", F.coalesce("got", F.lit(col=False)))


def main(grants: int) -> None:
    """Decide once for a number of grants, each way in a session of its own, and print the seconds as JSON."""
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        Numbers(grants).write(Path(name))
        # What runs second in a session finds Spark's code compiled.
        found = {who: _run(f"{grants:,} grants, {who}", name, who) for who in (OURS, HAND)}
    print(
        json.dumps(
            {
                who + when: value
                for who, values in found.items()
                for when, value in zip(("", AGAIN), values, strict=True)
            }
        )
    )


def _nothing(asked: DataFrame) -> DataFrame:
    """Both columns are read in Python, and nothing is decided."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            users, paths = (pc.greater(pc.binary_length(column), 0) for column in batch.columns)
            yield pa.RecordBatch.from_arrays([pc.and_(users, paths)], ["got"])

    return asked.select("user", "path").mapInArrow(read, "got boolean").selectExpr("got", "true as want")


def decide_twice(folder: Path, who: str, clock: Callable[[], float] = time.perf_counter) -> None:
    """Decide the requests of a folder one way, once and again, and print the seconds of both as JSON."""
    from privtab_spark import decide

    spark = _session()
    spark.range(1000).count()
    asked = spark.read.parquet(str(folder / "requests.parquet"))
    state = {t: spark.read.parquet(str(folder / "state" / f"{t}.parquet")) for t in ("grants", "assignments")}
    seconds = []
    for _ in range(2):
        started = clock()
        if who == HAND:
            decided = _by_hand(asked, state["grants"], state["assignments"])
        elif who == LIMIT:
            decided = _nothing(asked)
        else:
            policy = folder / "lake.yaml"
            given = folder / "state" if who == PATH else state
            decided = decide(
                asked, policy, given, subject="user", action="read", resource=("table", "path"), allowed="got"
            )
        wrong = decided.where("want <> got").count()
        seconds.append(clock() - started)
        if wrong:
            raise WrongAnswerError(f"{who}: {wrong} answers are wrong")
    print(json.dumps(seconds))
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1])) if len(sys.argv) == 2 else decide_twice(Path(sys.argv[1]), sys.argv[2])
