"""Read the configuration of a state's sources from files and folders, name sources, and detect tables in versioned formats (Delta, Iceberg, Hudi)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from privtab.base import Diagnostic, SourceFile, StateInvalid, UsageError, strict_loads
from privtab.state import RawReader, RowLocation, TableFiles
from privtab_spark.failures import spark_errors
from privtab_spark.formats import SPARK
from privtab_spark.state.schemas import UNREAD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_configuration(path: Path) -> Mapping[str, Any]:
    """The content of a configuration file; raises FileError if it is missing, UsageError if it is not a mapping."""
    file = SourceFile.load(path)
    value: object
    if path.suffix == ".json":
        try:
            value = strict_loads(file.text)
        except ValueError as error:
            raise UsageError(f"{path} is not JSON: {error}") from error
    else:
        value = _yaml_value(file)
    if not isinstance(value, Mapping):
        raise UsageError(f"{path} is not a configuration: it must be a mapping with `tables`")
    return value


def _yaml_value(file: SourceFile) -> object:
    """The value of a YAML file, read like a policy; raises UsageError with the position of every error.

    The lines themselves are not shown, since they may contain passwords.
    """
    from privtab.language import DocumentReader, compose_yaml

    found: list[Diagnostic] = []
    tree = compose_yaml(file, found, "a configuration begins with `tables:`")
    value = None if tree is None else DocumentReader(file, found).plain(tree)
    if found:
        texts = "\n\n".join(finding.render() for finding in found)
        raise UsageError(f"{file.path} is not a readable configuration:\n{texts}")
    return value


def folder_sources(
    spark: SparkSession, folder: Path, accepted: Collection[str], tables: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """A source for each table that has a file or a folder, as `state.load` finds them; also raises StateInvalid where `state.load` does."""
    reader = RawReader(accepted)
    sources: dict[str, dict[str, Any]] = {}
    columns = [name.split(".", 1) for name in accepted if "." in name]
    for table, files in TableFiles.in_folder(folder, reader, tuple(SPARK), tables).items():
        whole = files.ending == ".json" and files.path.is_file()
        if SPARK[files.ending] == "json" and (problem := _json_problem(spark, files.path, whole=whole)) is not None:
            reader.report("S002", f"not JSON: {problem}", RowLocation(path=str(files.path), table=table, row=0))
        sources[table] = {
            "format": TableFiles.format_of(files.path) or SPARK[files.ending],
            "path": str(files.path.resolve()),
            "options": {"multiLine": "true"} if whole else {},
            "name": files.path.name,
            "extra": [column for of, column in columns if of == table],
        }
    if wrong := tuple(reader.findings):
        raise StateInvalid(wrong, UNREAD)
    return sources


def _json_problem(spark: SparkSession, path: Path, *, whole: bool) -> str | None:
    """The problem of JSON of which Spark would read a part: the first of several values on a line, or in a whole file; one of two cells."""
    text = spark.read.text(str(path.resolve()), wholetext=whole)
    problem = fn.udf(_problem, "string")("value").alias("problem")
    try:
        found = text.select(problem).where("problem is not null").take(1)
    except spark_errors() as error:
        return "not UTF-8" if "UnicodeDecodeError" in str(error) else str(error).splitlines()[0]
    return found[0]["problem"] if found else None


def _problem(text: str) -> str | None:
    try:
        strict_loads(text if text.strip() else "null")
    except ValueError as error:
        return str(error)
    return None


def label_of(table: str, options_of_table: Mapping[str, Any]) -> str:
    """The name of a source for messages, without options that may contain secrets."""
    for key in ("path", "table"):
        if options_of_table.get(key) is not None:
            return str(options_of_table[key])
    options = options_of_table.get("options") or {}
    return str(options.get("dbtable") or (f"{options_of_table.get('format', 'a query')} for {table}"))


def listed(names: Sequence[str]) -> str:
    """Names as a list for messages."""
    return ", ".join(f"`{name}`" for name in names) or "none"


def wrong_count(number: int) -> str:
    """`1 thing is wrong`, `3 things are wrong`."""
    return "1 thing is wrong" if number == 1 else f"{number} things are wrong"


BARE = ("parquet", "orc")
"""Formats of plain files: if used to read a table in a versioned format, they also return deleted rows."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def is_url(path: str) -> bool:
    """Return whether a path names its file system: `s3a://…`, `file:/…`, `dbfs:/…`."""
    return _URL.match(path) is not None


def advice(format_: object, message: str) -> str | None:
    """Advice for an error message that shows that jars or settings of a format are missing."""
    if "DATA_SOURCE_NOT_FOUND" in message or "ClassNotFoundException" in message:
        if format_ in ("delta", "iceberg"):
            return f"bring the jars of {format_} for this Spark: `spark.jars.packages`"
        return "bring its jars: `spark.jars.packages`"
    if "DELTA_CONFIGURE_SPARK_SESSION" in message:
        return "give the session the settings of Delta: `spark.jars.packages` in `--conf` does, or `--conf spark.sql.extensions=…`"
    return None


def versioned(spark: SparkSession, path: str) -> str | None:
    """The versioned format of the table at a path, if there is one."""
    if not is_url(path):
        return TableFiles.format_of(Path(path))
    for format_, log in (("delta", "_delta_log"), ("hudi", ".hoodie")):
        try:
            spark.read.text(f"{path.rstrip('/')}/{log}").schema  # noqa: B018 - checks that the folder exists
        except PySparkException:
            continue
        return format_
    return None
