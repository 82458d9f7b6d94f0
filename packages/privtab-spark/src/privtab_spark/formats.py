"""The file formats of tables that Spark reads and writes."""

from __future__ import annotations

from collections.abc import Mapping

SPARK: Mapping[str, str] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
    ".parquet": "parquet",
}
"""Spark's name for the format, by file ending."""
