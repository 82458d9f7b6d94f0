"""`decide` on the columns that somebody has: random ones, bytes that are no text, names of privtab's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.base import UsageError
from privtab_spark import Limits, decide, entitlements, read_state, visible

BOX: dict[str, Any] = {"subject": "user", "action": "look", "resource": ("box", "path")}
PLANS = ("kernel", pytest.param("portions", marks=pytest.mark.long))


@pytest.fixture
def policy_and_state(tmp_path: Path) -> tuple[str, str]:
    return decision_rows.files(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_random_expressions_have_one_value_for_each_row(
    plan: str, spark: SparkSession, policy_and_state: tuple[str, str]
) -> None:
    entity = F.when(F.rand() < 0.5, F.lit("box:s/a/1")).otherwise(F.lit("no entity"))
    df = spark.range(400).withColumn("user", F.lit("ann"))
    decided = decide(df, *policy_and_state, subject="user", action="look", resource=entity, plan=plan)
    assert decided.columns == ["id", "user", "allowed", "reason"]
    answers = {(row["allowed"], row["reason"]) for row in decided.collect()}
    assert answers == {(True, None), (False, "malformed entity")}


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_bytes_that_are_not_utf8_match_no_user(
    plan: str, spark: SparkSession, policy_and_state: tuple[str, str]
) -> None:
    wrong = "cast(X'732F612FFF' AS string)"
    df = spark.sql(
        f"SELECT 0 n, 'ann' user, 's/a/1' path, array('x') brought UNION ALL SELECT 1, {wrong}, 's/a/1', array('x') "
        f"UNION ALL SELECT 2, 'ann', {wrong}, array('x') UNION ALL SELECT 3, 'ann', 's/a/1', array('x', {wrong})"
    )
    decided = decide(df, *policy_and_state, **BOX, groups="brought", plan=plan)
    # Connect reads what it collects as text: the answers alone.
    answers = decided.select("n", "allowed", "reason")
    assert decision_rows.answer_rows(answers) == [(True, None), *[(False, "null")] * 3]


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_a_name_with_an_unusable_character_is_no_request(
    plan: str, spark: SparkSession, policy_and_state: tuple[str, str]
) -> None:
    rows = [("ann", "s/a/1", ["x"])]
    expected: list[tuple[bool, str | None]] = [(True, None)]
    for sign in ("\n", "\x7f", "\x85", "\u2028", "\u2029", "\uffff"):
        rows += [(f"ann{sign}", f"s/a/1{sign}", ["x"]), ("ann", f"s{sign}/a/1", ["x"]), ("ann", f"s/a{sign}", ["x"])]
        expected += [(False, "malformed name"), (False, "malformed path"), (False, "malformed path")]
    rows += [("ann\u00a0", "s/\u00fc/1", ["x"]), ("ann", "s/a/1", ["x", "hr\x85"])]
    expected += [(False, "not granted"), (False, "malformed name")]
    df = decision_rows.frame(spark, rows, "user string, path string, brought array<string>")
    decided = decide(df, *policy_and_state, **BOX, groups="brought", plan=plan)
    assert decision_rows.answer_rows(decided, "allowed", "reason") == expected


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_a_flag_that_is_neither_yes_nor_no_is_set(
    plan: str, spark: SparkSession, policy_and_state: tuple[str, str]
) -> None:
    df = decision_rows.frame(
        spark, [("bob", "s/a/1", flag) for flag in ("no", "maybe", "true")], "user string, path string, f string"
    )
    decided = decide(df, *policy_and_state, **{**BOX, "action": "take"}, flags={"careful": "f"}, plan=plan)
    assert [allowed for (allowed,) in decision_rows.answer_rows(decided, "allowed")] == [True, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_no_name_of_a_column_is_in_the_way(plan: str, spark: SparkSession, policy_and_state: tuple[str, str]) -> None:
    names = (
        "__privtab",
        "__privtab_0",
        "__privtab_allowed",
        "__privtab_reason",
        "__privtab_who",
        "c0",
        "type",
        "unasked",
    )
    df = decision_rows.frame(spark, [("ann", "s/a/1"), ("ann", "s/a/2")], "user string, path string")
    df = df.select("*", *(F.lit(name).alias(name) for name in names))
    decided = decide(df, *policy_and_state, **{**BOX, "subject": F.concat("user", F.lit(""))}, plan=plan)
    assert decided.columns == [*df.columns, "allowed", "reason"]
    rows = decision_rows.answer_rows(decided, "allowed", "reason", *names)
    assert rows == [(True, None, *names), (False, "not granted", *names)]
    assert (
        decision_rows.answer_rows(visible(df, *policy_and_state, **BOX, plan=plan), *df.columns)
        == decision_rows.answer_rows(df, *df.columns)[:1]
    )
    again = decide(decided, *policy_and_state, **BOX, plan=plan, allowed="__PRIVTAB_", reason="why")
    assert decision_rows.answer_rows(again, "__PRIVTAB_", "why") == [(True, None), (False, "not granted")]


def test_a_name_of_another_case_is_the_column_or_nothing(
    spark: SparkSession, policy_and_state: tuple[str, str]
) -> None:
    """To Spark `user` is the session's user where no column is called so."""
    df = decision_rows.frame(spark, [("ann", "s/a/1"), ("bob", "s/a/1")], "USER string, path string")
    assert decision_rows.answer_rows(decide(df, *policy_and_state, **BOX), "allowed") == [(True,), (False,)]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(UsageError, match="no column `user`"):
            decide(df, *policy_and_state, **BOX)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.fixture
def padded(spark: SparkSession, tmp_path: Path) -> Iterator[DataFrame]:
    """A table whose columns have a fixed length: what is shorter comes back with spaces."""
    spark.sql(
        "CREATE TABLE padded (n int, user char(8), path char(9), entity char(12), brought array<char(4)>) "
        f"USING parquet LOCATION '{tmp_path}/padded'"
    )
    spark.sql(
        "INSERT INTO padded VALUES (0, 'ann', 's/a/1', 'box:s/a/1', array('x')), "
        "(1, 'ann', 's/a/2', 'box:s/a/2', array('x')), (2, 'dan', 's/a/1', 'box:s/a/1', array('hr'))"
    )
    yield spark.table("padded").coalesce(1)
    spark.sql("DROP TABLE padded")


@pytest.mark.slow
def test_the_padding_of_fixed_lengths_is_no_part_of_a_name(
    spark: SparkSession, policy_and_state: tuple[str, str], padded: DataFrame
) -> None:
    """Box 2 is denied to ann, and box `2   ` would not be."""
    questions: list[dict[str, Any]] = [
        BOX,
        {**BOX, "resource": F.col("entity")},
        {**BOX, "action": "take", "groups": "brought"},
        # What an expression makes of a column is taken as it is.
        {**BOX, "resource": ("box", F.concat("path", F.lit("")))},
    ]
    decided = padded
    for at, arguments in enumerate(questions):
        decided = decide(decided, *policy_and_state, allowed=f"by_{at}", reason=f"why_{at}", **arguments)
    assert decision_rows.answer_rows(decided, "path", "by_0", "by_1", "by_2", "by_3") == [
        ("s/a/1    ", True, True, False, True),
        ("s/a/2    ", False, False, False, True),
        ("s/a/1    ", False, False, True, False),
    ]
    grants = {
        "grants": padded.where("n = 1").selectExpr(
            "concat('user:', rtrim(user)) AS grantee", "'deny' AS effect", "'LOOK' AS privilege", "entity"
        )
    }
    found = read_state(spark, grants, policy_and_state[0]).good("grants").collect()
    assert [(row["grantee"], row["path"]) for row in found] == [("user:ann", "s/a/2")]
    matrix = entitlements(
        *policy_and_state, padded.select("entity"), users=padded.select("user"), operations=["look"], spark=spark
    )
    assert [(row["user"], row["path"]) for row in matrix.collect()] == [("ann", "s/a/1")]


@pytest.mark.slow
def test_rows_of_an_undeclared_random_function_are_pinned_for_portions(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes the function for one that always gives the same; portions would see other rows each time."""

    def drawn(_: int) -> str:
        import random

        return f"s/a/{random.randrange(1_000_000)}"

    files = decision_rows.files(tmp_path)
    rows = spark.range(200).select(F.lit("ann").alias("user"), F.udf(drawn, "string")("id").alias("path"))
    limits = Limits(pin=True)
    arguments: dict[str, Any] = {"subject": "user", "action": "look", "resource": ("box", "path"), "plan": "portions"}
    decided = decide(rows, *files, **arguments, limits=limits)
    assert decided.where("allowed").count() == 200
    first, second = (decided.orderBy("path").collect() for _ in range(2))
    assert first == second
    assert {row["reason"] for row in first} == {None}


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_a_group_is_spelt_in_one_way(plan: str, spark: SparkSession, policy_and_state: tuple[str, str]) -> None:
    good = (["x"], ["group:x"], ["x", "group:x"], ["urn:x"])
    bad = (
        ["user:x"],
        ["role:x"],
        ["x", "Group:x"],
        ["groups:x"],
        ["group:group:x"],
        ["*"],
        ["group:user:x"],
        ["user:"],
    )
    rows = [("ann", "s/a/1", groups) for groups in (*good, *bad, ["group:"])]
    df = decision_rows.frame(spark, rows, "user string, path string, brought array<string>")
    answers = decision_rows.answer_rows(decide(df, *policy_and_state, **BOX, groups="brought", plan=plan))
    assert answers == [*[(True, None)] * len(good), *[(False, "malformed group")] * len(bad), (False, "null")]
