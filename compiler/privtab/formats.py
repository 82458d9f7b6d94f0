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
    reader: str | None = None
    """The module whose `read(file, reading, table)` reads it without Spark, if one does."""
    spark: bool = True
    """Whether Spark can read it."""


FILE_FORMATS = (
    FileFormat(name="csv", endings=(".csv",), reader="privtab.state.read_csv"),
    FileFormat(name="json", endings=(".json",), whole=True, reader="privtab.state.read_json"),
    FileFormat(name="json", endings=(".jsonl", ".ndjson")),
    FileFormat(name="orc", endings=(".orc",)),
    FileFormat(name="parquet", endings=(".parquet",), reader="privtab.state.read_parquet"),
    FileFormat(name="yaml", endings=(".yaml", ".yml"), whole=True, reader="privtab.state.read_yaml", spark=False),
)

ENDINGS = tuple(ending for f in FILE_FORMATS for ending in f.endings)
WHOLE = tuple(ending for f in FILE_FORMATS if f.whole for ending in f.endings)
READERS: Mapping[str, str] = {ending: f.reader for f in FILE_FORMATS if f.reader for ending in f.endings}
"""The module that reads a file without Spark, by file ending."""
LOCAL = tuple(READERS)
SPARK: Mapping[str, str] = {ending: f.name for f in FILE_FORMATS if f.spark for ending in f.endings}
"""Spark's name for the format, by file ending."""

STATE_HELP = "A YAML or JSON file, a folder with a file for each table, a bundle, registry:URL#CHANNEL[@RELEASE], or store:URL[@MOMENT]."
"""What a state may be given as, in the help of options."""
