"""Detect tables in versioned formats (Delta, Iceberg, Hudi), and advise on missing jars."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from privtab.state.read_parquet import LOGS, table_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BARE = ("parquet", "orc")
"""Formats of plain files: if used to read a table in a versioned format, they return deleted rows, too."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def is_url(path: str) -> bool:
    """Whether a path names its file system: `s3a://…`, `file:/…`, `dbfs:/…`."""
    return _URL.match(path) is not None


def advice(format_: object, message: str) -> str | None:
    """Advice for an error message that shows that jars or settings of a format are missing."""
    if "DATA_SOURCE_NOT_FOUND" in message or "ClassNotFoundException" in message:
        if format_ in ("delta", "iceberg"):
            return f"bring the jars of {format_} for this Spark: `--package GROUP:ARTIFACT:VERSION`, or `spark.jars.packages`"
        return "bring its jars: `--package GROUP:ARTIFACT:VERSION`, or `spark.jars.packages`"
    if "DELTA_CONFIGURE_SPARK_SESSION" in message:
        return "give the session the settings of Delta: `--package` does, or `--conf spark.sql.extensions=…`"
    return None


def versioned(spark: SparkSession, path: str) -> str | None:
    """The versioned format of the table at a path, if there is one."""
    if not is_url(path):
        return table_format(Path(path))
    for format_ in ("delta", "hudi"):
        try:
            spark.read.text(f"{path.rstrip('/')}/{LOGS[format_]}").schema  # noqa: B018 - checks that the folder exists
        except PySparkException:
            continue
        return format_
    return None
