"""`may(user, action, resource)` in SQL."""

from __future__ import annotations

from pathlib import Path

import decision_rows
import pytest
from pyspark.sql import SparkSession

from privtab import pipeline
from privtab.base import InvalidRequest, UsageError
from privtab.state import load_raw_state, validate
from privtab_spark import register_function


@pytest.mark.slow
def test_a_function_of_sql_answers_as_decide_does(spark: SparkSession, tmp_path: Path) -> None:
    files = decision_rows.files(tmp_path)
    rows = decision_rows.frame(spark, [row[:2] for row in decision_rows.LOOKS], "user string, path string")
    rows.createOrReplaceTempView("asked")
    register_function(spark, *files, type="box")
    register_function(spark, *files, name="may_any")
    answers = spark.sql("SELECT n, may(user, 'look', path) AS a, may_any(user, 'look', 'box:' || path) AS b FROM asked")
    assert [(r["a"], r["b"]) for r in answers.orderBy("n").collect()] == [
        (row[2], row[2]) for row in decision_rows.LOOKS
    ]
    counted = spark.sql("SELECT count(*) AS n FROM asked WHERE may(user, 'look', path)").collect()
    assert counted[0]["n"] == sum(row[2] for row in decision_rows.LOOKS)
    odd = spark.sql(
        "SELECT may_any('ann', 'look', 's/a/1') a, may_any('ann', 'look', NULL) b, may_any('ann', NULL, 'box:s/a/1') c, "
        "may_any('ann', 'fly', 'box:s/a/1') d, may_any('bob', 'move', 'box:s/a/1') e, may_any('bob', 'take', 'box:s/a/1') f"
    )
    assert tuple(odd.collect()[0]) == (False, False, False, False, False, True)


def test_a_function_follows_the_state_and_sets_flags(spark: SparkSession, tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
    register_function(spark, policy, state, name="may_take", type="box", flags=["careful"], refresh=0)
    register_function(spark, policy, state, name="may_now", type="box", refresh=0)
    program = pipeline.load_program(policy)
    valid = validate(program, load_raw_state(state))[0]
    register_function(spark, program, valid, name="may_kept", type="box", refresh=None)
    ask = "SELECT may_take('bob', 'take', 's/a/1') a, may_now('ann', 'look', 's/a/1') b, may_kept('ann', 'look', 's/a/1') c"
    assert tuple(spark.sql(ask).collect()[0]) == (False, True, True)
    Path(state).write_text("owners: []\n")
    assert tuple(spark.sql(ask).collect()[0]) == (False, False, True)
    with pytest.raises(UsageError, match="executors cannot follow a State: give the path"):
        register_function(spark, program, valid)
    with pytest.raises(InvalidRequest, match="unknown entity type `bx`; did you mean `box`"):
        register_function(spark, policy, state, type="bx")
    with pytest.raises(InvalidRequest, match="unknown flag `carful`; did you mean `careful`"):
        register_function(spark, policy, state, flags=["carful"])
    with pytest.raises(UsageError, match="flags is the text"):
        register_function(spark, policy, state, flags="careful")
