"""Rows that forget a flag which their operation requires are denied with the reason, by every plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import required_flag_policy
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.base import InvalidRequest, UsageError
from privtab_spark import decide, entitlements, require

MISSING_FLAG = "a required flag is missing"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return required_flag_policy.files(tmp_path, f"{required_flag_policy.POLICY}    touch: READ (file)\n")


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
def test_rows_say_it_or_are_denied(plan: str, spark: SparkSession, files: tuple[str, str]) -> None:
    policy, state = files
    rows = [(0, "read", True), (1, "read", False), (2, "read", None), (3, "touch", None)]
    df = spark.createDataFrame(rows, "n int, op string, pii boolean")
    arguments: dict[str, Any] = {"subject": F.lit("ann"), "action": F.col("op"), "resource": ("file", F.lit("w/1"))}

    def answers(**more: Any) -> list[tuple[bool, str | None]]:
        decided = decide(df, policy, state, **{**arguments, **more, "plan": plan}).orderBy("n").collect()
        return [(row["allowed"], row["reason"]) for row in decided]

    no, yes = (False, "not granted"), (True, None)
    assert answers() == [(False, MISSING_FLAG)] * 3 + [yes]
    assert answers(flags={"pii": "pii"}) == [no, yes, no, yes]
    assert answers(flags={"pii": False}) == answers(flags=["pii=false"]) == [yes] * 4
    assert answers(flags=["pii"]) == [no] * 3 + [yes]


def test_one_operation_for_all_rows_requires_the_flag(spark: SparkSession, files: tuple[str, str]) -> None:
    df = spark.range(1)
    with pytest.raises(InvalidRequest, match="`read` on `file` needs the flag `pii`: True, False or a column"):
        decide(df, *files, subject=F.lit("ann"), action="read", resource=("file", F.lit("w/1")))


def test_require_and_the_matrix_require_the_flag(spark: SparkSession, files: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="needs the flag `pii`"):
        require(*files, "ann", "read", "file:w/1", spark=spark)
    assert require(*files, "ann", "read", "file:w/1", flags={"pii": False}, spark=spark).allowed
    with pytest.raises(UsageError, match="`file/read` needs the flag `pii`: add `pii` or `pii=false` to the flags"):
        entitlements(*files, spark=spark)
