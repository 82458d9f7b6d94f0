"""The ways in which Spark decides: all of them give the same answers to the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab_spark import decide

WAYS: Mapping[str, Mapping[str, Any]] = {"kernel": {"plan": "kernel"}, "portions": {"plan": "portions"}}
"""The arguments of `decide` for each way."""
in_every_way = pytest.mark.parametrize("way", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
"""Portions in `make test-long`: Spark takes several times as long for them, and `test_features` has them in `make test-full`."""


def check_rows(
    spark: SparkSession, folder: Path, policy: str, state: str, rows: Sequence[tuple[str | None, ...]], way: str
) -> None:
    """Decide rows of (user, operation, entity, the object `to`, the reason of a denial or None) in one way."""
    files = folder / "policy.yaml", folder / "state.yaml"
    for path, text in zip(files, (policy, state), strict=True):
        path.write_text(text, encoding="utf-8")
    frame = decision_rows.frame(
        spark, [row[:4] for row in rows], "user string, action string, entity string, to string"
    )
    decided = decide(
        frame, *map(str, files), subject="user", action=F.col("action"), resource="entity", with_={"to": "to"},
        **WAYS[way],
    )  # fmt: skip
    for row, answer in zip(rows, decision_rows.answer_rows(decided), strict=True):
        assert answer == (row[4] is None, row[4]), row
