"""Tables in formats that keep versions (Delta, Iceberg, Hudi): how they are told from bare files, and what their jars are for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from privtab.state.read_parquet import LOGS, table_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BARE = ("parquet", "orc")
"""Formats of single files: of a table in another format they read what was deleted, too."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def is_url(path: str) -> bool:
    """Whether a path names its file system: `s3a://…`, `file:/…`, `dbfs:/…`."""
    return _URL.match(path) is not None


def advice(format_: object, message: str) -> str | None:
    """What to do where a format's own jars or settings are missing."""
    if "DATA_SOURCE_NOT_FOUND" in message or "ClassNotFoundException" in message:
        if format_ in ("delta", "iceberg"):
            return f"bring the jars of {format_} for this Spark: `--package GROUP:ARTIFACT:VERSION`, or `spark.jars.packages`"
        return "bring its jars: `--package GROUP:ARTIFACT:VERSION`, or `spark.jars.packages`"
    if "DELTA_CONFIGURE_SPARK_SESSION" in message:
        return "give the session the settings of Delta: `--package` does, or `--conf spark.sql.extensions=…`"
    return None


def versioned(spark: SparkSession, path: str) -> str | None:
    """The format of the table with versions that lies at a path, where this machine or Spark sees one."""
    if not is_url(path):
        return table_format(Path(path))
    for format_ in ("delta", "hudi"):
        try:
            spark.read.text(f"{path.rstrip('/')}/{LOGS[format_]}").schema  # noqa: B018 - looks whether it is there
        except PySparkException:
            continue
        return format_
    return None
