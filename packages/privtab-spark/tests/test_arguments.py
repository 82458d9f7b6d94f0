"""What `decide` makes of its arguments before a row is looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.base import InvalidRequest, UsageError
from privtab_spark import decide, plan, visible
from privtab_spark.arguments import RequestColumns, read_arguments
from privtab_spark.policies import open_policy

Ask = Callable[..., RequestColumns]


@pytest.fixture
def ask(spark: SparkSession, tmp_path: Path) -> Ask:
    """Reads arguments; those that a test does not give are right."""
    policy = open_policy(decision_rows.files(tmp_path)[0])
    df: DataFrame = spark.range(1).select(
        F.lit("ann").alias("user"), F.lit("s/a/1").alias("path"), F.lit("x").alias("with.dots"), F.lit(7).alias("id")
    )

    def read(**arguments: Any) -> RequestColumns:
        return read_arguments(
            df, policy, **{"subject": "user", "action": "look", "resource": ("box", "path"), **arguments}
        )

    return read


def test_arguments_equal_for_all_rows_are_no_column(ask: Ask) -> None:
    found = ask(flags=["careful"], with_={"target": ("shelf", "path")}, action="take")
    assert list(found.columns) == ["user", "path", "with_target_path"]
    assert found.constants == {"action": "take", "type": "box", "with_target_type": "shelf", "flag_careful": True}
    assert (found.slots, found.flags) == (("target",), ("careful",))


def test_columns_may_be_columns_or_names_of_them(ask: Ask) -> None:
    found = ask(
        action=F.lit("look"), resource=(F.lit("box"), F.concat("path", F.lit(""))), flags={"careful": F.lit(1) > 0}
    )
    assert list(found.columns) == ["user", "action", "type", "path", "flag_careful"]
    assert "path" in ask(resource=("box", "with.dots")).columns
    assert "path" in ask(subject="USER", resource=("box", "id")).columns
    assert found.with_canonical_columns().columns == ["c0", "c1", "c2", "c3", *found.columns]


@pytest.mark.slow
def test_a_path_may_be_a_list_of_columns_of_names(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("cy", "s", "100%", "a/b"), ("ann", "s", "a", "1"), ("ann", "s", "a", None), ("ann", "s", "a", "")]
    df = decision_rows.frame(spark, rows, "user string, shop string, shelf string, box string")
    for kind in ("box", F.lit("box")):
        arguments: dict[str, Any] = {
            "subject": "user",
            "action": "look",
            "resource": (kind, [F.lit("s"), "shelf", "box"]),
        }
        decided = decide(df, *decision_rows.files(tmp_path), **arguments)
        assert decision_rows.answer_rows(decided) == [
            (True, None),
            (True, None),
            (False, "null"),
            (False, "wrong depth"),
        ]


def test_groups_count_only_where_the_policy_takes_them(ask: Ask, spark: SparkSession, tmp_path: Path) -> None:
    for groups in (F.array(F.lit("hr")), F.lit(None), F.array(F.lit(7))):
        assert "groups" in ask(groups=groups).columns
    other = tmp_path / "other.yaml"
    other.write_text(decision_rows.POLICY.replace("groups: [state, request]", "groups: [state]"))
    df = spark.range(1).select(F.lit("ann").alias("user"), F.lit("box:s/a/1").alias("box"))

    def without(**arguments: Any) -> RequestColumns:
        return read_arguments(df, open_policy(other), subject="user", action="look", resource="box", **arguments)

    assert "groups" not in without(groups=F.array("user")).columns
    with pytest.raises(UsageError, match="groups: no column `grups`"):
        without(groups="grups")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"subject": "usr"}, UsageError, "subject: no column `usr`; did you mean `user`?"),
        ({"resource": "nothing like it"}, UsageError, "there are: user, path, with.dots, id"),
        ({"resource": ("box", "pth")}, UsageError, "the path of resource: no column `pth`; did you mean `path`?"),
        ({"subject": 7}, UsageError, "subject is 7: give a column or the name of one"),
        ({"subject": None}, UsageError, "subject is None: give a column or the name of one; one user for all rows is"),
        ({"subject": "ann"}, UsageError, 'one user for all rows is `privtab_spark.user("alice")`'),
        ({"action": None}, UsageError, "action is None: give the name of an operation, or a Column of such names"),
        ({"action": ["look"]}, UsageError, "action is ['look']"),
        ({"resource": None}, UsageError, "resource is None: give a column of entities `type:path`"),
        ({"resource": ("box",)}, UsageError, "resource is ('box',): give a column of entities"),
        (
            {"resource": ("box", "path", "id")},
            UsageError,
            "or a pair (type, column of paths or list of columns of names)",
        ),
        ({"resource": ("box", None)}, UsageError, "the path of resource is None: give a column"),
        ({"resource": ["box", "path"]}, UsageError, "resource is ['box', 'path']"),
        ({"resource": ("box", [])}, UsageError, "the path of resource is an empty list: give columns of names"),
        (
            {"resource": ("box", ["user", "pth"])},
            UsageError,
            "name 2 of the path of resource: no column `pth`; did you mean `path`?",
        ),
        (
            {"resource": ("box", ["s", "path"])},
            UsageError,
            'name 1 of the path of resource: no column `s`; there are: user, path, with.dots, id; one name for all rows is `F.lit("',
        ),
        ({"flags": "careful"}, UsageError, "flags is 'careful': give a list of names, or a mapping"),
        ({"flags": None}, UsageError, "flags is None"),
        ({"flags": 7}, UsageError, "flags is 7"),
        ({"flags": {"careful": 1}}, UsageError, "flag `careful` is 1: give a column or the name of one, True or False"),
        ({"flags": ["carefull"]}, InvalidRequest, "unknown flag `carefull`; flags of system `deck`: `careful`"),
        ({"flags": {None: False}}, InvalidRequest, "unknown flag `None`"),
        ({"with_": "target"}, UsageError, "with_ is 'target': give a mapping of objects by name"),
        ({"with_": ("target", "path")}, UsageError, "with_ is ('target', 'path')"),
        ({"with_": {"target": None}}, UsageError, "with `target` is None: give a column of entities"),
        (
            {"groups": "path"},
            UsageError,
            'an array of strings is wanted, as of `F.split(column, ",")` or `F.array(column)`',
        ),
        ({"groups": ["hr"]}, UsageError, "groups is ['hr']: give a column"),
        (
            {"resource": ("bx", "path")},
            InvalidRequest,
            "unknown entity type `bx` in system `deck`; did you mean `box`?",
        ),
        ({"action": "lok"}, InvalidRequest, "unknown operation `lok` on `box`; did you mean `look`?"),
        (
            {"action": "lok", "resource": "path"},
            InvalidRequest,
            "unknown operation `lok` in system `deck`; did you mean",
        ),
        ({"action": "move"}, InvalidRequest, "`move` on `box` needs with_: `target`, of type shelf or shop"),
        ({"with_": {"targt": "path"}}, InvalidRequest, "has a `with` object `targt`; did you mean `target`?"),
    ],
    ids=str,
)
def test_a_mistake_of_the_program_is_reported_before_any_row_is_read(
    arguments: dict[str, Any], error: type[Exception], message: str, ask: Ask
) -> None:
    with pytest.raises(error) as caught:
        ask(**arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize("wrong", [{"a": 1}, "deck/none", None, "", 7], ids=str)
def test_invalid_policies_are_refused(wrong: Any) -> None:
    with pytest.raises(Exception, match=r"not the program|not a policy|no policy"):
        open_policy(wrong)


def test_columns_of_other_kinds_and_columns_of_nothing_are_reported(ask: Ask) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"subject": F.col("usr")}, "subject: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ({"resource": ("box", "nothing.there")}, "the path of resource: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ({"subject": F.col("*")}, "subject is 4 columns: give one"),
        ({"subject": F.array("user")}, "subject is a column of type `array<string>`: a text is wanted"),
        ({"resource": F.create_map("user", "path")}, "resource is a column of type `map<string,string>`"),
        ({"flags": {"careful": F.array("path")}}, "flag `careful` is a column of type `array<string>`: true or false"),
        ({"groups": F.array(F.array("path"))}, "groups is a column of type `array<array<string>>`"),
    ]
    for arguments, message in wrong:
        with pytest.raises(UsageError, match=re.escape(message)):
            ask(**arguments)


def test_invalid_frames_names_and_limits_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    files = decision_rows.files(tmp_path)
    df = spark.range(1).select(F.lit("ann").alias("user"), F.lit("box:s/a/1").alias("box"))
    arguments: dict[str, Any] = {"subject": "user", "action": "look", "resource": "box"}
    calls: list[Callable[..., Any]] = [decide, visible, plan]
    for call in calls:
        with pytest.raises(UsageError, match="'box' is not a Spark DataFrame"):
            call("box", *files, **arguments)
        with pytest.raises(UsageError, match=r"limits is 7: give `Limits\(…\)`"):
            call(df, *files, limits=7, **arguments)
    with pytest.raises(UsageError, match="reason is None: give the name of the new column"):
        decide(df, *files, reason=None, **arguments)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="None is not a policy"):
        decide(df, None, files[1], **arguments)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no state given"):
        decide(df, files[0], None, **arguments)
