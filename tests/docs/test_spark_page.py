"""The examples of the page about Spark, in order and in one session."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from documentation_pages import read
from pyspark.sql import SparkSession


@pytest.mark.long
def test_the_page_shows_what_happens(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = read("docs/how-to/spark.md")
    page.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in page.blocks if "spark" in block.says]
    assert len(blocks) >= 6
    known: dict[str, object] = {"spark": spark}
    for block in blocks:
        example = doctest.DocTestParser().get_doctest(
            block.text, known, f"{page.path}:{block.line}", page.path, block.line
        )
        example.globs = known
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, clear_globs=False).failed == 0
