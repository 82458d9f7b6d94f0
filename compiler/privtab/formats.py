"""Formats of the files that tables of a state come in: the one list, by the ending of a file's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """A format, the endings of its files, and who reads it."""

    name: str
    """As Spark names the format."""
    endings: tuple[str, ...]
    whole: bool = False
    """Whether one file may hold all tables."""
    local: bool = False
    """Whether it is read without Spark."""
    spark: bool = True
    """Whether Spark reads it."""


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
"""By the ending the format as Spark names it."""

STATE_HELP = "A YAML or JSON file, or a folder with one file for each table."
"""What a state may be given as, for the help of options."""
