"""One table from a Parquet file, or from a directory of them as Spark writes it; needs pyarrow."""

from __future__ import annotations

from pathlib import Path

from privtab._install import how_to_install
from privtab.state.nodes import Place
from privtab.state.raw import NotText, Reading

LOGS = {"delta": "_delta_log", "hudi": ".hoodie", "iceberg": "metadata"}
"""Where a table of a format that has versions says which of its files count."""


def read_parquet(file: Path, path: str, reading: Reading, table: str) -> None:
    """Read the rows of `table`; columns are text, or whole numbers."""
    place = Place(path=path, table=table, row=0)
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
    try:
        data = pyarrow.parquet.read_table(file, partitioning=None)
    except (pyarrow.ArrowException, OSError) as error:
        reading.report("S001", f"not a Parquet file that can be read: {str(error).splitlines()[0]}", place)
        return
    names = data.column_names
    if not reading.header(table, names, place):
        return
    number = 0
    for batch in data.to_batches(max_chunksize=65536):
        columns = [_cells(column) for column in batch.columns]
        for cells in zip(*columns, strict=True):
            number += 1
            reading.row(path, table, number, None, dict(zip(names, cells, strict=True)))


def table_format(path: Path) -> str | None:
    """The format of a table with versions, where a folder holds one: its Parquet files alone are not its rows."""
    if not path.is_dir():
        return None
    for format_, log in LOGS.items():
        if (path / log).is_dir() and (format_ != "iceberg" or any((path / log).glob("*.metadata.json"))):
            return format_
    return None


def _cells(column: object) -> list[object]:
    values: list[object] = column.to_pylist()  # type: ignore[attr-defined]  # pyarrow ships no types
    return [v if v is None or type(v) in {str, int} else NotText(f"a {type(v).__name__}") for v in values]
