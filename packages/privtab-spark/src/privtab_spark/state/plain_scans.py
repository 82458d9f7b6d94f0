"""Read on the driver the rows that Spark would read by a plain scan of Parquet files: a job takes seconds in a new session, pyarrow parts of one.

A plain scan has whole files of this machine and columns of text as they are in the files: no filter, no partitions, no cache, no other format.
The plan and every file are looked at, and whatever is not known to be plain is left to Spark. Connect tells no plans.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_FILES = 200
"""Most files of a scan: each is a few calls into the JVM, and Spark reads many at once."""
MOST_BYTES = 1 << 30
"""Most bytes of its files."""
_SOURCES = "org.apache.spark.sql.execution.datasources."
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_TEXTS = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class _File:
    """A file as Spark listed it when the DataFrame was made; times in milliseconds."""

    path: Path
    size: int
    changed: int

    def content(self) -> bytes | None:
        """The content; None if it is not what was listed, or not what the checksum beside it says, which Hadoop writes and Spark checks."""
        with self.path.open("rb") as file:
            before = os.fstat(file.fileno())
            found = file.read()
            after = os.fstat(file.fileno())
        same = before.st_mtime_ns == after.st_mtime_ns and after.st_mtime_ns // 1_000_000 == self.changed
        return found if same and len(found) == self.size and self._has_checksum_of(found) else None

    def _has_checksum_of(self, content: bytes) -> bool:
        try:
            sums = self.path.with_name(f".{self.path.name}.crc").read_bytes()
        except FileNotFoundError:
            return True
        magic, width = struct.unpack_from(">4si", sums)
        pieces = (content[at : at + width] for at in range(0, len(content), width))
        return magic == b"crc\0" and sums[8:] == b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)


@dataclass(frozen=True, slots=True)
class PlainScan:
    """The columns of rows, by name, and the files with them."""

    columns: Mapping[str, str | None]
    """The names in the files; None for a column of nulls."""
    files: tuple[_File, ...]

    @classmethod
    def of(cls, rows: DataFrame) -> PlainScan | None:
        """The scan that Spark plans for a DataFrame; None if it is not known to be plain."""
        frame: Any = getattr(rows, "_jdf", None)
        if frame is None:
            return None
        try:
            return _of_plan(frame.queryExecution().optimizedPlan(), rows.sparkSession)
        except Exception:  # noqa: BLE001  (of Spark's JVM, also for parts of plans that another version has not)
            return None

    def count(self) -> int | None:
        """The number of rows, from the footers of the files; None if one cannot be read."""
        try:
            return sum(int(parquet.read_metadata(file.path).num_rows) for file in self.files)
        except (OSError, pa.ArrowException):
            return None

    def table(self) -> pa.Table | None:
        """The rows, with dictionaries of texts; None if Spark may read something else from the files as they are now."""
        try:
            parts = [self._part(file) for file in self.files]
        except (OSError, ValueError, KeyError, struct.error, pa.ArrowException):
            return None
        return pa.concat_tables(parts) if all(part is not None for part in parts) else None

    def _part(self, file: _File) -> pa.Table | None:
        if (content := file.content()) is None:
            return None
        names = list(filter(None, self.columns.values()))
        with parquet.ParquetFile(pa.BufferReader(content), read_dictionary=names) as opened:
            if not all(_has_texts(opened, name) for name in names):
                return None
            found = opened.read(names)
        none = pa.nulls(len(found), _TEXTS)
        cells = {name: none if source is None else found.column(source) for name, source in self.columns.items()}
        return pa.table({name: texts.cast(_TEXTS) for name, texts in cells.items()})


def _has_texts(file: parquet.ParquetFile, name: str) -> bool:
    """Return whether a file has this column as texts, and none whose name differs in case alone."""
    found = [column for column in map(file.schema.column, range(len(file.schema))) if _top(column) == name.lower()]
    alike = [
        (column.path, column.physical_type, column.logical_type.type, column.max_repetition_level) for column in found
    ]
    return alike == [(name, "BYTE_ARRAY", "STRING", 0)]


def _top(column: Any) -> str:
    return str(column.path).partition(".")[0].lower()


def _of_plan(plan: Any, spark: Any) -> PlainScan | None:
    """The scan of an optimised plan; None for one that is not known to be plain."""
    projected = None
    if _kind(plan) == "org.apache.spark.sql.catalyst.plans.logical.Project":
        projected, plan = list(_each(plan.projectList())), plan.child()
    if _kind(plan) != f"{_SOURCES}LogicalRelation" or plan.isStreaming():
        return None
    relation, output = plan.relation(), list(_each(plan.output()))
    if (
        _kind(relation) != f"{_SOURCES}HadoopFsRelation"
        or _kind(relation.fileFormat()) != f"{_SOURCES}parquet.ParquetFileFormat"
        or _kind(relation.location()) != f"{_SOURCES}InMemoryFileIndex"
        or relation.partitionSchema().length()
    ):
        return None
    in_files = {column.exprId().id(): column.name() for column in output if _is_text(column)}
    columns: dict[str, str | None] = {}
    for named in output if projected is None else projected:
        column = named.child() if _kind(named) == f"{_EXPRESSIONS}Alias" else named
        if _kind(column) == f"{_EXPRESSIONS}Literal" and column.value() is None:
            columns[named.name()] = None
        elif _kind(column) == f"{_EXPRESSIONS}AttributeReference" and column.exprId().id() in in_files:
            columns[named.name()] = in_files[column.exprId().id()]
        else:
            return None
    files = _files(relation.location(), spark)
    return None if files is None else PlainScan(columns, files)


def _files(location: Any, spark: Any) -> tuple[_File, ...] | None:
    """The files that Spark listed and will read; None if one is not on this machine, or if there are none, too many or too large ones."""
    none = spark._jvm.PythonUtils.toSeq([])  # noqa: SLF001
    listed = [file.fileStatus() for part in _each(location.listFiles(none, none)) for file in _each(part.files())]
    if not 0 < len(listed) <= MOST_FILES or sum(status.getLen() for status in listed) > MOST_BYTES:
        return None
    found = [(status.getPath().toUri(), status) for status in listed]
    if any(uri.getScheme() != "file" for uri, _ in found):
        return None
    return tuple(_File(Path(uri.getPath()), status.getLen(), status.getModificationTime()) for uri, status in found)


def _is_text(column: Any) -> bool:
    """Return whether a column is of plain strings: no `char`, no collation, no default for files that lack it, no field id."""
    return bool(column.dataType().simpleString() == "string" and column.metadata().json() == "{}")


def _kind(value: Any) -> str:
    return str(value.getClass().getName())


def _each(values: Any) -> Iterator[Any]:
    return (values.apply(number) for number in range(values.size()))
