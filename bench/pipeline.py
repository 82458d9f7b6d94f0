"""The state pipeline on Spark beside Spark's own read, distinct and write of the same rows, in one session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import Report, Spread, Table, Target

ROWS = int(os.environ.get("PRIVTAB_BENCH_ROWS", "10_000_000"))
"""Grant rows; fewer for a look."""
ROOTS, ROLES, USERS, ASSIGNMENTS = 64, 5_000, 100_000, 300_000
WANTED = 0.5
POLICY = "gravitino/1.1.0"


def report(_sizes: Sequence[str], repetitions: int) -> Report:
    """Each repetition in a session of its own: Spark alone, the whole pipeline, and the pipeline with one shard changed."""
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as folder:
        _in_process("world", folder)
        runs = [_in_process("race", folder) for _ in range(min(repetitions, 3))]
    spread = {name: Spread(values=tuple(run[name] for run in runs)) for name in runs[0] if name != "stages"}
    rate = Spread(values=tuple(run["spark"] / run["pipeline"] for run in runs))
    steps = tuple((f"  of it {stage}", f"{runs[0]['stages'][stage]:.1f}", "") for stage in runs[0]["stages"])
    rows = (
        ("Spark: read → distinct → write", spread["spark"].text(1), f"{ROWS / spread['spark'].median / 1e3:,.0f}k"),
        ("validate, index, bundle", spread["pipeline"].text(1), f"{ROWS / spread['pipeline'].median / 1e3:,.0f}k"),
        *steps,
        ("again, nothing changed", spread["again"].text(1), ""),
        ("again, one root changed", spread["changed"].text(1), ""),
        ("deltas of both builds, proved", spread["deltas"].text(1), ""),
    )
    sizes = (
        ("bundles, MB", f"{runs[0]['bytes'] / 1e6:.1f}"),
        ("the largest shard, MB", f"{runs[0]['largest'] / 1e6:.2f}"),
        ("one shard's delta, bytes", f"{runs[0]['delta']:,.0f}"),
    )
    return Report(
        part="pipeline",
        tables=(
            Table(
                title=f"{ROWS:,} grant rows, {ROOTS} root entities", columns=("what", "seconds", "rows/s"), rows=rows
            ),
            Table(title="What was built", columns=("what", "size"), rows=sizes),
        ),
        targets=(Target(what="pipeline: rate over Spark's own", spread=rate, wanted=WANTED, sense="at least"),),
    )


def _in_process(step: str, folder: str) -> dict[str, Any]:
    """A step in a process of its own: a Java machine that has not worked before."""
    command = [sys.executable, __file__, step, folder]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _session() -> Any:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
    import sparks

    return sparks.session(memory="8g")


def world(folder: Path) -> dict[str, Any]:
    """Grants, owners, assignments, memberships and members as Parquet; made by Spark, the same on every machine."""
    from pyspark.sql import functions as fn

    spark = _session()

    def hashed(salt: int, below: int) -> Any:
        return fn.pmod(fn.xxhash64(fn.col("id"), fn.lit(salt)), fn.lit(below))

    rows = spark.range(0, ROWS, 1, 8)
    root = fn.concat(fn.lit("m"), hashed(1, ROOTS).cast("string"))
    catalog = fn.concat(root, fn.lit("/c"), hashed(2, 20).cast("string"))
    schema = fn.concat(catalog, fn.lit("/s"), hashed(3, 100).cast("string"))
    table = fn.concat(schema, fn.lit("/t"), hashed(4, 200).cast("string"))
    draw = hashed(5, 10)
    entity = (
        fn.when(draw == 0, fn.concat(fn.lit("catalog:"), catalog))
        .when(draw < 4, fn.concat(fn.lit("schema:"), schema))
        .otherwise(fn.concat(fn.lit("table:"), table))
    )
    privilege = (
        fn.when(draw == 0, fn.lit("USE_CATALOG")).when(draw < 4, fn.lit("USE_SCHEMA"))
        .otherwise(fn.when(draw < 8, fn.lit("SELECT_TABLE")).otherwise(fn.lit("MODIFY_TABLE")))
    )  # fmt: skip
    rows.select(
        fn.concat(fn.lit("role:r"), hashed(6, ROLES).cast("string")).alias("grantee"),
        fn.when(hashed(7, 50) == 0, fn.lit("deny")).otherwise(fn.lit("allow")).alias("effect"),
        privilege.alias("privilege"),
        entity.alias("entity"),
    ).write.mode("overwrite").parquet(str(folder / "state" / "grants"))
    spark.range(ASSIGNMENTS).select(
        fn.concat(fn.lit("user:u"), hashed(8, USERS).cast("string")).alias("principal"),
        fn.concat(fn.lit("r"), hashed(9, ROLES).cast("string")).alias("role"),
    ).distinct().write.mode("overwrite").parquet(str(folder / "state" / "assignments"))
    spark.stop()
    return {}


def race(folder: Path) -> dict[str, Any]:
    """Spark's own way, the pipeline, and the pipeline once more with little changed."""
    from pyspark.sql import functions as fn

    from privtab.spark.state import build, deltas

    spark = _session()
    spark.range(1000).selectExpr("cast(id as string)").mapInArrow(lambda batches: batches, "id string").count()  # warm
    state = folder / "state"
    found: dict[str, Any] = {}

    def timed(name: str, work: Any) -> Any:
        started = time.perf_counter()
        result = work()
        found[name] = time.perf_counter() - started
        return result

    plain = str(folder / "plain")
    timed("spark", lambda: spark.read.parquet(str(state / "grants")).distinct().write.mode("overwrite").parquet(plain))
    built = folder / "built"
    shutil.rmtree(built, ignore_errors=True)
    made = timed("pipeline", lambda: build(spark, state, POLICY, built, allow_partial=True))
    found["stages"] = dict(made.seconds)
    found["bytes"] = made.manifest["people"]["bytes"] + sum(s["bytes"] for s in made.shards.values())
    found["largest"] = max(s["bytes"] for s in made.shards.values())
    timed("again", lambda: build(spark, state, POLICY, built, allow_partial=True))
    grants = spark.read.parquet(str(state / "grants"))
    more = spark.createDataFrame([("role:r1", "allow", "USE_CATALOG", "catalog:m1/new")], grants.schema)
    tables = {"grants": grants.unionAll(more), "assignments": spark.read.parquet(str(state / "assignments"))}
    changed = timed("changed", lambda: build(spark, tables, POLICY, built, allow_partial=True))
    if changed.rebuilt != ("metalake:m1",):
        raise AssertionError(f"one root changed, and these were built again: {changed.rebuilt}")
    differences = timed("deltas", lambda: deltas(spark, built))
    found["delta"] = sum(row["bytes"] for row in differences.rows)
    counted = spark.read.parquet(plain).groupBy().agg(fn.count(fn.lit(1)).alias("n")).collect()[0]["n"]
    grants_held = sum(s["allow"] + s["deny"] for s in made.shards.values())
    if counted != grants_held:
        raise AssertionError(f"{counted} distinct rows, {grants_held} in the shards")
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps({"world": world, "race": race}[sys.argv[1]](Path(sys.argv[2]))))
