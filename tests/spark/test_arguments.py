"""What `decide` makes of its arguments before a row is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import decks
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.errors import InvalidRequest, UsageError
from privtab.spark.arguments import Asked, asked
from privtab.spark.policies import open_policy

Ask = Callable[..., Asked]


@pytest.fixture
def ask(spark: SparkSession, tmp_path: Path) -> Ask:
    """Reads arguments; those that a test does not give are right."""
    policy = open_policy(decks.files(tmp_path)[0])
    df: DataFrame = spark.range(1).select(
        F.lit("ann").alias("user"), F.lit("s/a/1").alias("path"), F.lit("x").alias("with.dots"), F.lit(7).alias("id")
    )

    def read(**given: Any) -> Asked:
        return asked(df, policy, **{"subject": "user", "action": "look", "resource": ("box", "path"), **given})

    return read


def test_what_is_the_same_for_all_rows_is_no_column(ask: Ask) -> None:
    found = ask(flags=["careful", "unheard"], with_={"target": ("shelf", "path")}, action="take")
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
    assert found.beside().columns == ["c0", "c1", "c2", "c3", *found.columns]


def test_groups_count_only_where_the_policy_takes_them(ask: Ask) -> None:
    assert "groups" in ask(groups=F.array(F.lit("hr"))).columns


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"subject": "usr"}, UsageError, "subject: no column `usr`; did you mean `user`?"),
        ({"resource": "nothing like it"}, UsageError, "there are: user, path, with.dots, id"),
        ({"resource": ("box", "pth")}, UsageError, "the path of resource: no column `pth`; did you mean `path`?"),
        ({"subject": 7}, UsageError, "subject is 7: give a column or the name of one"),
        ({"flags": "careful"}, UsageError, "flags is the text `careful`"),
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
def test_a_mistake_of_the_program_is_told_before_any_row_is_read(
    given: dict[str, Any], error: type[Exception], message: str, ask: Ask
) -> None:
    with pytest.raises(error) as caught:
        ask(**given)
    assert message in str(caught.value)


@pytest.mark.parametrize("wrong", [{"a": 1}, "deck/none"], ids=str)
def test_what_is_no_policy_is_refused(wrong: Any) -> None:
    with pytest.raises(Exception, match=r"no program|no policy"):
        open_policy(wrong)
