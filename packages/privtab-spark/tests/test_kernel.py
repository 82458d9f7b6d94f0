"""The vectorised plan on executors: batches, files, bytes that are no text, and the way of Spark 4.0."""

from __future__ import annotations

import dataclasses
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import decision_rows
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.base import DecisionUnavailable
from privtab_spark import decide, kernel, shipping
from privtab_spark.arguments import read_arguments
from privtab_spark.packed_values import mapped, packed, unpacked
from privtab_spark.policies import open_policy
from privtab_spark.shipping import PackedState, ShippedBytes, loaded
from privtab_spark.states import prepared

USERS, BOXES = ("ann", "bob", "cy"), ("s/a/1", "s/a/2", "s/b/1", "s//", "s/100%25/a%2Fb")
MAY = {("ann", "s/a/1"), ("ann", "s/b/1"), ("ann", "s/100%25/a%2Fb"), ("bob", "s/b/1"), ("cy", "s/100%25/a%2Fb")}


@pytest.fixture
def ready(spark: SparkSession, tmp_path: Path) -> PackedState:
    policy, state = decision_rows.files(tmp_path)
    return prepared(open_policy(policy), state, spark)


def layout(**more: Any) -> kernel.Layout:
    return kernel.Layout(
        columns=("user", "path"), constants={"action": "look", "type": "box"}, slots=(), flags=(), **more
    )


@pytest.mark.slow
@pytest.mark.parametrize("whole_rows", [False, True])
def test_batches_of_any_size_give_every_row_its_own_answer(
    whole_rows: bool,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many rows in several partitions, a hundred thousand wide ones; gathered, repeated, out of order."""
    if whole_rows:  # as with Spark 4.0, which lacks the function
        monkeypatch.delattr("pyspark.sql.pandas.functions.arrow_udf", raising=False)
    users, boxes = (F.array(*map(F.lit, names)) for names in (USERS, BOXES))
    df = spark.range(100_000, numPartitions=3).select(
        "id",
        F.get(users, (F.col("id") % 3).cast("int")).alias("user"),
        F.get(boxes, (F.xxhash64("id") % 5 + 4).cast("int") % 5).alias("box"),
        *(F.concat(F.lit(f"column {at} of "), "id").alias(f"wide{at}") for at in range(12)),
        F.struct("id", F.array("id").alias("ids")).alias("deep"),
    )
    decided = decide(
        df, *decision_rows.files(tmp_path), subject="user", action="look", resource=("box", "box"), plan="kernel"
    )
    found = decided.groupBy("user", "box", "allowed", "reason").agg(
        F.count("*").alias("rows"), F.max(F.col("wide11") != F.concat(F.lit("column 11 of "), "deep.id")).alias("torn")
    )
    rows = found.collect()
    assert sum(row["rows"] for row in rows) == 100_000
    assert not any(row["torn"] for row in rows)
    assert {(row["user"], row["box"]): row["allowed"] for row in rows} == {
        (user, box): (user, box) in MAY for user in USERS for box in BOXES
    }
    assert len(rows) == len(USERS) * len(BOXES)
    assert {row["reason"] for row in rows if row["box"] == "s//"} == {"malformed path"}


@pytest.mark.parametrize("local", [True, False])
def test_a_large_state_comes_as_a_file_that_is_sent_once_unless_executors_are_here(
    spark: SparkSession,
    ready: PackedState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    connected: bool,
    local: bool,
) -> None:
    if not local:
        monkeypatch.setattr(shipping, "_is_local", lambda _: False)
    policy, _ = decision_rows.files(tmp_path)
    df = decision_rows.frame(spark, [row[:2] for row in decision_rows.LOOKS], "user string, path string")
    request = read_arguments(df, open_policy(policy), subject="user", action="look", resource=("box", "path"))
    shipped = ready.ship(spark, within=0)
    assert shipped.content is None
    assert shipped.file is not None
    assert Path(shipped.file).name == f"privtab-{ready.digest}.bin"
    assert Path(shipped.file).is_file() is (local and not connected)
    assert ready.ship(spark, within=0) == shipped
    for _ in range(2):
        frame = kernel.decide_by_kernel(request, shipped, rows=4)
        yes, why = kernel.answer_columns(request)
        assert decision_rows.answer_rows(frame.select("n", yes.alias("allowed"), why.alias("reason"))) == [
            r[2:] for r in decision_rows.LOOKS
        ]


def test_an_answer_is_computed_once_however_often_it_is_used(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    df = decision_rows.frame(spark, [("ann", "s/a/1"), ("ann", "s/a/2")], "user string, path string")
    decided = decide(
        df, *decision_rows.files(tmp_path), subject="user", action="look", resource=("box", "path"), plan="kernel"
    )
    used = (
        decided.where("allowed")
        .where(F.col("reason").isNull())
        .select("n", "allowed", F.col("allowed") & F.lit(col=True))
    )
    used.explain()
    assert capsys.readouterr().out.count("ArrowEvalPython") == (0 if pyspark.__version__ < "4.1" else 1)
    assert [row["n"] for row in used.collect()] == [0]


def test_bytes_that_are_not_utf8_match_no_user(ready: PackedState) -> None:
    batches = loaded(ShippedBytes(digest=ready.digest, content=ready.content))
    users = pa.array([b"ann", b"a\xffnn", b"ann"]).cast(pa.binary()).view(pa.string())
    paths = pa.array([b"s/a/1", b"s/a/1", b"s/\xc3/1"]).cast(pa.binary()).view(pa.string())
    codes = kernel.codes(batches, layout(), [users, paths]).to_pylist()
    assert [kernel.CODES[code] for code in codes] == [None, "null", "null"]


def test_small_batches_are_gathered_large_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [(pa.array(["x" * 10] * rows),) for rows in (3, 3, 3, 9, 1)]
    parts = list(kernel.combined_batches(iter(batches), 6))
    assert [[len(batch[0]) for batch in part] for part in parts] == [[3, 3], [3, 9], [1]]
    monkeypatch.setattr(kernel, "BYTES", 40)
    assert [len(part) for part in kernel.combined_batches(iter(batches), 1000)] == [1, 1, 1, 1, 1]


FREED_AND_TAKEN_AGAIN = """
import resource
import numpy as np
from privtab_spark.kernel import combined_batches

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [np.ones(1 << 20, np.uint8) for _ in range(24)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {combine}:
    list(combined_batches([], 1))
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's allocator")
def test_the_memory_of_a_batch_is_kept_for_the_next() -> None:
    def faults(*, combine: bool) -> int:
        code = FREED_AND_TAKEN_AGAIN.format(combine=combine)
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    assert faults(combine=True) * 10 < faults(combine=False)


def test_a_matrix_shipped_in_a_file_is_the_same(ready: PackedState, tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    path.write_bytes(ready.content)
    program, arrays = mapped(path)
    assert program["system"] == "deck"
    assert packed(unpacked(packed((program, arrays)))) == packed((program, arrays))
    with pytest.raises(ValueError, match="not a packed value"):
        unpacked(b"something else")


def test_a_worker_keeps_few_states_and_reports_a_missing_one(
    ready: PackedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "_STATES", shipping.WorkerCache(most=1))
    shipped = ShippedBytes(digest=ready.digest, content=ready.content)
    first = loaded(shipped)
    assert loaded(shipped) is first
    loaded(dataclasses.replace(shipped, digest="another"))
    assert loaded(shipped) is not first
    with pytest.raises(DecisionUnavailable, match="was not sent to this executor"):
        loaded(ShippedBytes(digest="third", file="privtab-none.bin"))


def test_a_state_that_stays_the_same_is_made_ready_once(spark: SparkSession, tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
    opened = open_policy(policy)
    first = prepared(opened, state, spark)
    assert prepared(open_policy(policy), state, spark) is first
    Path(state).write_text(decision_rows.STATE.replace("user:cy", "user:di"), encoding="utf-8")
    assert prepared(opened, state, spark).digest != first.digest
