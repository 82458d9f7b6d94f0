"""`decide`: what goes in and what comes out, whatever the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from pyspark.sql.types import BooleanType, StringType

from privtab import pipeline
from privtab.base import DecisionUnavailable, StateInvalid, UsageError
from privtab.bundle import shard_bundles, state_bundle
from privtab.bundle.pack import LISTING_FILE, shard_files
from privtab.pipeline import policy_artifacts
from privtab.state import load_raw_state, validate
from privtab_spark import decide, entitlements
from privtab_spark.state import state_tables

BOX: dict[str, Any] = {"subject": "user", "action": "look", "resource": ("box", "path")}
PLANS = ("kernel", "portions")


@pytest.fixture
def policy_and_state(tmp_path: Path) -> tuple[str, str]:
    return decision_rows.files(tmp_path)


@pytest.mark.parametrize("plan", PLANS)
def test_rows_keep_their_columns_and_get_an_answer_with_its_reason(
    plan: str, spark: SparkSession, policy_and_state: tuple[str, str]
) -> None:
    df = decision_rows.frame(spark, [row[:2] for row in decision_rows.LOOKS], "user string, path string")
    df = df.withColumn("wide.name", F.struct("n", "path")).withColumn("tags", F.array("path"))
    decided = decide(df, *policy_and_state, plan=plan, **BOX)
    assert decided.columns == [*df.columns, "allowed", "reason"]
    allowed, reason = decided.schema["allowed"], decided.schema["reason"]
    assert (allowed.dataType, allowed.nullable, reason.dataType) == (BooleanType(), False, StringType())
    # Each of the rows once: a second query would be compiled and run anew.
    rows = decision_rows.answer_rows(decided, *decided.columns)
    assert [row[-2:] for row in rows] == [row[2:] for row in decision_rows.LOOKS]
    assert [row[:-2] for row in rows] == decision_rows.answer_rows(df, *df.columns)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
def test_everything_of_a_request_may_be_a_column(
    plan: str, spark: SparkSession, policy_and_state: tuple[str, str]
) -> None:
    rows: list[tuple[Any, ...]] = [
        # user, action, entity, target, careful, groups, allowed, reason
        ("ann", "look", "box:s/a/1", None, False, [], True, None),
        ("bob", "move", "box:s/a/1", "shelf:s/b", False, [], True, None),
        ("bob", "move", "box:s/a/1", "shelf:s/a", False, [], False, "not granted"),
        ("bob", "move", "box:s/a/1", "box:s/b/1", False, [], False, "not of a type that the operation takes"),
        ("bob", "move", "box:s/a/1", None, False, [], False, "null"),
        ("bob", "take", "box:s/a/1", None, False, [], True, None),
        ("bob", "take", "box:s/a/1", None, True, [], False, "not granted"),
        ("bob", "take", "box:s/a/1", None, None, [], False, "not granted"),
        ("dan", "take", "box:s/a/1", None, False, ["hr"], True, None),
        ("dan", "take", "box:s/a/1", None, False, ["it", "hr"], True, None),
        ("dan", "take", "box:s/a/1", None, False, ["it"], False, "not granted"),
        ("dan", "take", "box:s/a/1", None, False, None, False, "null"),
        ("dan", "take", "box:s/a/1", None, False, ["hr", None], False, "null"),
        ("ann", "fly", "box:s/a/1", None, False, [], False, "unknown operation"),
        ("ann", None, "box:s/a/1", None, False, [], False, "null"),
        ("ann", "look", "cup:s/a/1", None, False, [], False, "unknown operation"),
        ("ann", "look", "s/a/1", None, False, [], False, "malformed entity"),
        ("ann", "look", ":s/a/1", None, False, [], False, "malformed entity"),
        ("ann", "look", None, None, False, [], False, "null"),
        ("ann", "list", "box:s/a", None, False, [], True, None),
        ("ann", "list", "box:s/a/2", None, False, [], False, "not granted"),
        ("ann", "get", "user:s/ann", None, False, [], True, None),
        ("ann", "get", "user:s/bob", None, False, [], False, "not granted"),
        ("bob", "use", "role:s/clerk", None, False, [], True, None),
        ("dan", "use", "role:s/clerk", None, False, ["hr"], True, None),
        ("ann", "use", "role:s/clerk", None, False, [], False, "not granted"),
    ]
    schema = "user string, action string, entity string, target string, careful boolean, groups array<string>"
    df = decision_rows.frame(spark, [row[:6] for row in rows], schema)
    decided = decide(
        df, *policy_and_state, subject=F.col("user"), action=F.col("action"), resource="entity", with_={"target": "target"},
        flags={"careful": "careful"}, groups="groups", plan=plan,
    )  # fmt: skip
    # An object that is not there is no reason to refuse what does not look at it.
    assert decision_rows.answer_rows(decided) == [row[6:] for row in rows]


@pytest.mark.slow
def test_a_state_comes_in_many_forms(spark: SparkSession, policy_and_state: tuple[str, str], tmp_path: Path) -> None:
    program = pipeline.load_program(policy_and_state[0])
    rows, _ = validate(program, load_raw_state(policy_and_state[1]))
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(program, rows))
    df = decision_rows.frame(spark, [row[:2] for row in decision_rows.LOOKS], "user string, path string")
    grants = spark.createDataFrame(
        [("user:dan", "allow", "LOOK", "box:s/a/1")], "grantee string, effect string, privilege string, entity string"
    )
    bundles = tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"
    forms: list[tuple[Any, Any]] = [
        (program, rows),
        (policy_and_state[0], state_tables(spark, program, rows)),
        bundles,
        (str(bundles[0]), str(bundles[1])),
    ]
    every = [
        decide(df, policy, state, allowed=f"by_{at}", reason=f"why_{at}", **BOX)
        for at, (policy, state) in enumerate(forms)
    ]
    for at, decided in enumerate(every):
        assert decision_rows.answer_rows(decided, f"by_{at}", f"why_{at}") == [row[2:] for row in decision_rows.LOOKS]
    requests = df.where("n = 0").withColumn("user", F.lit("dan"))
    assert decision_rows.answer_rows(decide(requests, program, {"grants": grants}, **BOX)) == [(True, None)]


@pytest.mark.slow
def test_a_state_in_parts_is_whole_or_none(
    spark: SparkSession, policy_and_state: tuple[str, str], tmp_path: Path
) -> None:
    program = pipeline.load_program(policy_and_state[0])
    folder = tmp_path / "parts"
    folder.mkdir()
    for name, bundle in shard_files(
        shard_bundles(program, validate(program, load_raw_state(policy_and_state[1]))[0])
    ).items():
        (folder / name).write_bytes(bundle)
    df = decision_rows.frame(spark, [row[:2] for row in decision_rows.LOOKS], "user string, path string")
    for plan in PLANS:
        assert decision_rows.answer_rows(decide(df, program, folder, plan=plan, **BOX)) == [
            row[2:] for row in decision_rows.LOOKS
        ]
    matrix = entitlements(program, folder, operations=["look"], spark=spark).where("user = 'ann'")
    assert [row["path"] for row in matrix.collect()] == ["s/100%25/a%2Fb"]
    (folder / LISTING_FILE).unlink()
    next(file for file in folder.iterdir() if file.name.startswith("shop")).unlink()
    for plan in PLANS:
        with pytest.raises(DecisionUnavailable, match="1 of its shards are missing, such as `shop:s`"):
            decide(df, program, folder, plan=plan, **BOX)
    with pytest.raises(DecisionUnavailable, match="incomplete"):
        entitlements(program, folder, spark=spark)


@pytest.mark.parametrize("plan", PLANS)
def test_the_state_of_another_system_is_none(
    plan: str, spark: SparkSession, policy_and_state: tuple[str, str], tmp_path: Path
) -> None:
    program = pipeline.load_program(policy_and_state[0])
    (tmp_path / "state.tar.gz").write_bytes(
        state_bundle(program, validate(program, load_raw_state(policy_and_state[1]))[0])
    )
    other = tmp_path / "other.yaml"
    other.write_text(decision_rows.POLICY.replace("system: deck", "system: dock"))
    df = decision_rows.frame(spark, [("ann", "s/a/1")], "user string, path string")
    with pytest.raises(UsageError, match="holds `deck`, but no state of `dock`"):
        decide(df, other, tmp_path / "state.tar.gz", plan=plan, **BOX)
    read = state_tables(spark, program, validate(program, load_raw_state(policy_and_state[1]))[0])
    with pytest.raises(UsageError, match="the state is for `deck`, but the policy is for `dock`"):
        decide(df, other, read, plan=plan, **BOX)
    other.write_text(decision_rows.POLICY.replace("[LOOK, TAKE]", "[LOOK, TAKE, BURN]"))
    with pytest.raises(
        UsageError, match=r"another policy of `deck`, with other privileges \(`BURN`\): read it with this"
    ):
        decide(df, other, read, plan=plan, **BOX)


@pytest.mark.slow
def test_no_rows_no_answers_and_names_may_repeat(spark: SparkSession, policy_and_state: tuple[str, str]) -> None:
    df = decision_rows.frame(spark, [("ann", "s/a/1")], "user string, path string")
    for plan in PLANS:
        assert decide(df.where("n < 0"), *policy_and_state, plan=plan, **BOX).collect() == []
        twice = df.select("*", F.lit(1).alias("x"), F.lit(2).alias("x"))
        row = decide(twice, *policy_and_state, plan=plan, **BOX).collect()[0]
        assert tuple(row) == (0, "ann", "s/a/1", 1, 2, True, None)


def test_an_answer_may_have_another_name_but_never_one_that_is_taken(
    spark: SparkSession, policy_and_state: tuple[str, str]
) -> None:
    df = decision_rows.frame(spark, [("ann", "s/a/1", "x")], "user string, path string, Allowed string")
    with pytest.raises(UsageError, match="has a column `allowed`"):
        decide(df, *policy_and_state, **BOX)
    with pytest.raises(UsageError, match="both"):
        decide(df, *policy_and_state, allowed="may", reason="MAY", **BOX)
    assert decide(df, *policy_and_state, allowed="may", **BOX).columns[-2:] == ["may", "reason"]


def test_a_wrong_state_is_no_state(spark: SparkSession, policy_and_state: tuple[str, str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("grants: [{grantee: 'user:ann', effect: deny, privilege: LOKO, entity: 'shop:s'}]\n")
    df = decision_rows.frame(spark, [("ann", "s/a/1")], "user string, path string")
    with pytest.raises(StateInvalid):
        decide(df, policy_and_state[0], wrong, **BOX)
    with pytest.raises(UsageError, match="unknown plan `both`"):
        decide(df, *policy_and_state, plan="both", **BOX)
