"""Which plan is taken, and what is said about it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import decision_rows
import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from pyspark.sql import SparkSession

from privtab.base import UsageError
from privtab.state import load_raw_state, validate
from privtab_spark import Choice, Limits, choose, decide, open_policy, plan
from privtab_spark.arguments import read_arguments
from privtab_spark.state import state_tables
from privtab_spark.states import decided_before

BOX: dict[str, Any] = {"subject": "user", "action": "look", "resource": ("box", "path")}


@pytest.mark.slow
def test_the_size_of_the_state_decides_and_the_limits_are_arguments(spark: SparkSession, tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
    df = decision_rows.frame(spark, [("ann", "s/a/1"), ("bob", "s/a/1")], "user string, path string")
    tables = state_tables(spark, policy, state)

    opened = open_policy(policy)
    request = read_arguments(df, opened, **BOX)

    def chosen(**limits: int) -> Choice:
        return choose.choice_for(request, opened, tables, plan="auto", limits=Limits(**limits))  # type: ignore[arg-type]

    assert chosen().plan == "kernel"
    assert chosen().figures["rows"] == 8
    assert chosen().figures["grants"] == 5
    assert (chosen(rows=7).plan, chosen(size=100).plan) == ("portions", "portions")
    assert plan(df, policy, state, **BOX).figures == chosen().figures


PLACES = (
    "rows",
    "state",
    "plain",
    "filtered",
    "tables",
    "address",
    "missing",
    "over",
    "divided",
    "portions",
    "misspelt",
    "forced",
)
"""Where a state is, or what is asked of it."""
AHEAD = {"rows", "state", "plain", "forced"}


@pytest.mark.parametrize("where", PLACES)
def test_a_state_is_prepared_ahead_only_where_the_driver_reads_it_for_the_kernel(
    where: str, spark: SparkSession, tmp_path: Path, connected: bool
) -> None:
    policy, path = decision_rows.files(tmp_path)
    opened = open_policy(policy)
    grants = [{"grantee": "user:ann", "effect": "allow", "privilege": "LOOK", "entity": "box:s/a/1"}] * 2
    pq.write_table(pa.Table.from_pylist(grants), tmp_path / "grants.parquet")
    frame = spark.read.parquet(str(tmp_path / "grants.parquet"))
    state: Any = {
        "state": validate(opened.as_program, load_raw_state(path))[0],
        "plain": {"grants": frame},
        "filtered": {"grants": frame.where("grantee > 'a'")},
        "tables": state_tables(spark, policy, path),
        "address": "http://127.0.0.1:9/state.tar.gz",
        "missing": str(tmp_path / "nothing.yaml"),
        "divided": {"grants": frame},
    }.get(where, path)
    limits = Limits(rows=1) if where == "over" else Limits(large=1) if where == "divided" else None
    asked = {"portions": "portions", "misspelt": "kernl", "forced": "kernel"}.get(where, "auto")
    thread = choose.begin(opened, state, spark, plan=asked, limits=limits)
    thread.join()
    assert decided_before(opened, state) == (where in AHEAD - ({"plain"} if connected else set()))


def test_a_choice_reads_well_and_is_logged(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy, state = decision_rows.files(tmp_path)
    df = decision_rows.frame(spark, [("ann", "s/a/1")], "user string, path string")
    with caplog.at_level(logging.INFO, logger="privtab.spark"):
        decide(df, policy, state, **BOX)
    assert caplog.messages[0].startswith("decide: kernel: the state has 8 rows, whose arrays fit every executor\n")
    assert caplog.messages[0].endswith("has this version of privtab")


@pytest.mark.slow
def test_a_state_beyond_the_limits_is_divided(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy, state = decision_rows.files(tmp_path)
    df = decision_rows.frame(spark, [("ann", "s/a/1"), ("bob", "s/a/1")] * 4, "user string, path string")
    chosen = str(plan(df, policy, state, limits=Limits(rows=7), **BOX))
    assert chosen.startswith("portions: the state has 8 rows; more than 7 are not collected on the driver\n")
    with (
        caplog.at_level(logging.INFO, logger="privtab.spark"),
        pytest.warns(DeprecationWarning, match="`portions` now"),
    ):
        decided = decide(df, policy, state, plan="joins", **BOX)
    assert caplog.messages[0].startswith("decide: portions: the caller asks for it\n")
    assert {(row["user"], row["allowed"]) for row in decided.collect()} == {("ann", True), ("bob", False)}


def test_a_stream_that_is_too_much_for_the_kernel_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("'ann' AS user", "'s/a/1' AS path")
    files = decision_rows.files(tmp_path)
    assert plan(stream, *files, **BOX).plan == "kernel"
    with pytest.raises(UsageError, match="a stream is not divided into portions"):
        plan(stream, *files, limits=Limits(rows=7), **BOX)
