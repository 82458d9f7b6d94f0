"""Pandas-on-Spark DataFrames are taken wherever a DataFrame is, and come back as what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import decision_rows
import pyspark
import pytest
from pyspark.sql import SparkSession

from privtab.base import UsageError
from privtab_spark import decide, entitlements, plan, visible
from privtab_spark.state import state_tables

pytest.importorskip("pandas")
refuses_ansi = pytest.mark.skipif(
    pyspark.__version__.startswith("4.0."),
    reason="the pandas API of Spark 4.0 refuses ANSI mode, which is on by default (PANDAS_API_ON_SPARK_FAIL_ON_ANSI_MODE)",
)
BOX: dict[str, Any] = {"subject": "user", "action": "look", "resource": ("box", "path")}


@refuses_ansi
@pytest.mark.slow
def test_pandas_on_spark_comes_back_with_its_index_and_its_labels(spark: SparkSession, tmp_path: Path) -> None:
    files = decision_rows.files(tmp_path)
    frame = spark.createDataFrame(
        [(7, "ann", "s/a/1"), (8, "ann", "s/a/2"), (9, None, "s/a/1")], "row int, user string, path string"
    ).pandas_api(index_col="row")
    taken: Any = frame
    for by in ("kernel", "portions"):
        decided: Any = decide(taken, *files, plan=by, **BOX)
        assert type(decided).__module__ == "pyspark.pandas.frame"
        assert list(decided.index.names) == ["row"]
        rows = decided.sort_index().to_pandas()
        assert list(rows.columns) == ["user", "path", "allowed", "reason"]
        assert list(rows["allowed"]) == [True, False, False]
        assert list(rows.index) == [7, 8, 9]
    assert list(visible(taken, *files, **BOX).to_pandas().index) == [7]
    assert plan(frame, *files, **BOX).plan == "kernel"
    unnamed = frame.reset_index(drop=True)
    without_names: Any = decide(unnamed, *files, **BOX)
    assert list(without_names.index.names) == [None]


@refuses_ansi
@pytest.mark.long
def test_pandas_on_spark_may_be_a_state_and_what_a_matrix_is_about(spark: SparkSession, tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
    grants = spark.createDataFrame(
        [("user:ann", "allow", "LOOK", "box:s/a/1")], "grantee string, effect string, privilege string, entity string"
    ).pandas_api()
    df = decision_rows.frame(spark, [("ann", "s/a/1"), ("cy", "s/a/1")], "user string, path string")
    for form in ({"grants": grants}, state_tables(spark, policy, {"grants": grants})):
        assert decision_rows.answer_rows(decide(df, policy, form, **BOX), "allowed") == [(True,), (False,)]
    entities = spark.createDataFrame([("box:s/a/1",)], "entity string").pandas_api()
    users = spark.createDataFrame([("ann",), ("bob",)], "name string").pandas_api()
    rows = entitlements(policy, state, entities, operations=["look"], users=users)
    assert [row["user"] for row in rows.collect()] == ["ann"]


def test_a_frame_of_pandas_is_refused_with_advice(spark: SparkSession, tmp_path: Path) -> None:
    import pandas as pd

    with pytest.raises(UsageError, match=r"a DataFrame is not a Spark DataFrame; write `spark.createDataFrame\(df\)`"):
        decide(pd.DataFrame({"user": ["a"] * 99, "path": ["s/a/1"] * 99}), *decision_rows.files(tmp_path), **BOX)
