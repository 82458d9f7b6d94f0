"""One table from a Parquet file, or from a directory of them as Spark writes it; needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privtab._install import how_to_install
from privtab.state.nodes import RowLocation
from privtab.state.raw import LARGEST, MOST_ROWS, NotText, RawReader

LOGS = {"delta": "_delta_log", "hudi": ".hoodie", "iceberg": "metadata"}
"""Where a table of a format that has versions says which of its files count."""


def read_parquet(file: Path, path: str, reading: RawReader, table: str) -> None:
    """Read the rows of `table`; columns are text, or whole numbers."""
    place = RowLocation(path=path, table=table, row=0)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        advice = f"install the extra `fast` ({how_to_install('fast')}), or export the table as CSV"
        reading.report("S001", "reading Parquet needs pyarrow, which is not installed", place, help=advice)
        return
    format_ = table_format(file)
    if format_ is not None:
        advice = "read it with `privtab state build`, or export its rows"
        reading.report("S001", f"is a table of {format_}, whose files hold deleted rows, too", place, help=advice)
        return
    number = 0
    try:
        for batch in _batches(file, table, reading, place):
            names = batch.schema.names
            columns = [_cells(column) for column in batch.columns]
            for cells in zip(*columns, strict=True):
                number += 1
                reading.row(path, table, number, None, dict(zip(names, cells, strict=True)))
    except (pyarrow.ArrowException, OSError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        reading.report("S001", f"not a Parquet file that can be read: {said}", place)


def _batches(file: Path, table: str, reading: RawReader, place: RowLocation) -> Iterator[Any]:
    """Some rows at a time, their texts as dictionaries, which repeat nothing; none where there are too many or columns are wrong.

    A kilobyte of Parquet may say one long text ten million times: sizes are asked of the file before anything is read.
    """
    from pyarrow import dataset, types

    found = dataset.dataset(file, format="parquet", partitioning=None)
    if not reading.header(table, found.schema.names, place):
        return
    groups = [group for fragment in found.get_fragments() for group in fragment.row_groups]
    rows, size = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    if rows > MOST_ROWS:
        reading.too_much(f"`{table}` has {rows:,} rows, and {MOST_ROWS:,} is the most", place)
        return
    if size > LARGEST:
        reading.too_much(f"`{table}` unpacks to {size:,} bytes, and {LARGEST:,} is the most", place)
        return
    texts = [field.name for field in found.schema if types.is_string(field.type) or types.is_large_string(field.type)]
    as_written = dataset.ParquetFileFormat(read_options=dataset.ParquetReadOptions(dictionary_columns=texts))
    read = dataset.dataset(file, format=as_written, partitioning=None)
    yield from read.to_batches(batch_size=65536, batch_readahead=1, fragment_readahead=1, use_threads=False)


def table_format(path: Path) -> str | None:
    """The format of a table with versions, where a folder holds one: its Parquet files alone are not its rows."""
    if not path.is_dir():
        return None
    for format_, log in LOGS.items():
        if (path / log).is_dir() and (format_ != "iceberg" or any((path / log).glob("*.metadata.json"))):
            return format_
    return None


def _cells(column: Any) -> list[object]:
    """The cells of a column; what is repeated is one object."""
    import pyarrow

    if isinstance(column, pyarrow.DictionaryArray):
        known = _cells(column.dictionary)
        return [None if at is None else known[at] for at in column.indices.to_pylist()]
    try:
        values: list[object] = column.to_pylist()
    except UnicodeDecodeError:
        values = [_text(value) for value in column.cast(pyarrow.binary()).to_pylist()]
    kinds = (str, int, NotText)
    return [v if v is None or type(v) in kinds else NotText(f"a {type(v).__name__}") for v in values]


def _text(value: bytes | None) -> object:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return NotText("a run of bytes that are not UTF-8")
