"""Formats of tables that Spark reads, and those that the core reads."""

from __future__ import annotations

from privtab.base.files import ENDINGS, LOCAL_ENDINGS
from privtab_spark.formats import SPARK


def test_every_file_ending_is_read_by_spark_or_by_the_core() -> None:
    assert set(ENDINGS) == {*LOCAL_ENDINGS, *SPARK}
    assert set(LOCAL_ENDINGS) - set(SPARK) == {".yaml", ".yml"}
