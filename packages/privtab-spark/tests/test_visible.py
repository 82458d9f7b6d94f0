"""The rows that a user may see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.base import InvalidRequest, UsageError
from privtab_spark import user, visible

BOXES = ["s/a/1", "s/a/2", "s/b/1", None, "s//"]


@pytest.mark.parametrize("plan", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
def test_only_what_a_user_may_see_stays(plan: str, spark: SparkSession, tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
    df = decision_rows.frame(
        spark, [("ann" if at % 2 else "bob", box) for at, box in enumerate(BOXES)], "who string, box string"
    )

    def seen(**arguments: Any) -> list[int]:
        rows = visible(df, policy, state, resource=("box", "box"), plan=plan, **arguments)
        assert rows.columns == df.columns
        return sorted(row["n"] for row in rows.collect())

    # `list` takes the call (LOOK on the shop) and the item (LOOK on the box).
    assert seen(subject=user("ann")) == [0, 2]
    assert seen(subject=user("user:bob")) == []
    assert seen(subject=user("bob"), action="look") == [2]
    assert seen(subject="who", action=F.lit("look")) == [2]


def test_a_missing_user_or_type_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
    with pytest.raises(UsageError, match=r"not the name of a user|no user's name"):
        user("user:")
    df = decision_rows.frame(spark, [("s/a",)], "shelf string")
    with pytest.raises(InvalidRequest, match="unknown operation `list` on `shelf`"):
        visible(df, policy, state, subject=user("ann"), resource=("shelf", "shelf"))
