"""The file formats for tables of a state, by file ending."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """A format, its file endings, and whether it can be read with and without Spark."""

    name: str
    """Spark's name for the format."""
    endings: tuple[str, ...]
    whole: bool = False
    """Whether one file may contain all tables."""
    local: bool = False
    """Whether it can be read without Spark."""
    spark: bool = True
    """Whether Spark can read it."""


FILE_FORMATS = (
    FileFormat(name="csv", endings=(".csv",), local=True),
    FileFormat(name="json", endings=(".json",), whole=True, local=True),
    FileFormat(name="json", endings=(".jsonl", ".ndjson")),
    FileFormat(name="orc", endings=(".orc",)),
    FileFormat(name="parquet", endings=(".parquet",), local=True),
    FileFormat(name="yaml", endings=(".yaml", ".yml"), whole=True, local=True, spark=False),
)

ENDINGS = tuple(ending for f in FILE_FORMATS for ending in f.endings)
WHOLE = tuple(ending for f in FILE_FORMATS if f.whole for ending in f.endings)
LOCAL = tuple(ending for f in FILE_FORMATS if f.local for ending in f.endings)
YAML = tuple(ending for f in FILE_FORMATS if f.name == "yaml" for ending in f.endings)
SPARK: Mapping[str, str] = {ending: f.name for f in FILE_FORMATS if f.spark for ending in f.endings}
"""Spark's name for the format, by file ending."""

STATE_HELP = "A YAML or JSON file, or a folder with one file for each table."
"""What a state may be given as, in the help of options."""
