"""Read one table from a Parquet file, or from a directory of them as Spark writes it; needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privtab.base.moments import EARLIEST, LATEST, WINDOW_COLUMNS, moment_text
from privtab.base.resources import how_to_install
from privtab.state import raw
from privtab.state.findings import RowLocation
from privtab.state.folders import TableFiles
from privtab.state.raw import LARGEST, NotText, RawReader, arrow_cells


def read(file: Path, reader: RawReader, table: str) -> None:
    """Read the rows of `table`; columns are text or integers."""
    path = str(file)
    place = RowLocation(path=path, table=table, row=0)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        advice = f"install the extra `compiler` ({how_to_install('compiler')}), or export the table as CSV"
        reader.report("S001", "reading Parquet needs pyarrow, which is not installed", place, help=advice)
        return
    format_ = TableFiles.format_of(file)
    if format_ is not None:
        advice = "read it with `privtab state build`, or export its rows"
        reader.report("S001", f"is a table of {format_}, whose files hold deleted rows, too", place, help=advice)
        return
    try:
        content = _File(file)
        if not reader.header(table, content.names, place):
            return
        columns = content.rows >= raw.LARGE and content.plain
        limit = raw.MOST_COLUMN_ROWS if columns else raw.MOST_ROWS
        if content.rows > limit:
            reader.too_much(f"`{table}` has {content.rows:,} rows, and {limit:,} is the most", place)
        elif content.size > LARGEST:
            reader.too_much(f"`{table}` unpacks to {content.size:,} bytes, and {LARGEST:,} is the most", place)
        elif not columns or not _columns(content, path, reader, table):
            number = 0
            for batch in content.batches():
                for cells in zip(*map(_cells, content.names, batch.columns), strict=True):
                    number += 1
                    reader.row(path, table, number, None, dict(zip(content.names, cells, strict=True)))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        reader.report("S001", f"not a Parquet file that can be read: {message}", place)


class _File:
    """A Parquet file, or a folder of them. Texts are read as dictionaries, which store repeated values once.

    A kilobyte of Parquet may repeat one long text ten million times, so the sizes in its metadata are checked before reading.
    """

    def __init__(self, file: Path) -> None:
        from pyarrow import parquet

        self._file = file
        self._parts: list[str] = []
        """The files of a folder: it is listed once, so that a part that is removed meanwhile is missed."""
        self.schema: Any
        if file.is_dir():
            from pyarrow import dataset

            found = dataset.dataset(file, format="parquet", partitioning=None)
            self.schema, self._parts = found.schema, found.files
            fragments = list(found.get_fragments())
            known = [set(fragment.physical_schema.names) for fragment in fragments]
            # Only the columns of the first file would be read.
            if some := set[str]().union(*known) - set(found.schema.names).intersection(*known):
                raise OSError(f"not all of its files have the column `{min(some)}`")
            groups = [group for fragment in fragments for group in fragment.row_groups]
        else:
            with parquet.ParquetFile(file) as opened:
                self.schema = opened.schema_arrow
                groups = [opened.metadata.row_group(number) for number in range(opened.metadata.num_row_groups)]
        self.names: list[str] = self.schema.names
        self.rows = sum(group.num_rows for group in groups)
        self.size = sum(group.total_byte_size for group in groups)

    @property
    def texts(self) -> list[str]:
        """The names of the columns of strings."""
        from pyarrow import types

        kinds = ((f.name, f.type.value_type if types.is_dictionary(f.type) else f.type) for f in self.schema)
        return [name for name, kind in kinds if types.is_string(kind) or types.is_large_string(kind)]

    @property
    def plain(self) -> bool:
        """Whether every column contains texts, integers or moments."""
        from pyarrow import types

        texts = self.texts
        return all(f.name in texts or types.is_integer(f.type) or _is_moment(f.name, f.type) for f in self.schema)

    def batches(self) -> Iterator[Any]:
        """The rows in batches. Raises OSError if there are not as many as before."""
        count = 0
        for batch in self._batches():
            count += batch.num_rows
            yield batch
        self._check(count)

    def _check(self, rows: int) -> None:
        if rows != self.rows:
            raise OSError("it changed while it was read")

    def _batches(self) -> Iterator[Any]:
        from pyarrow import parquet

        if self._file.is_dir():
            from pyarrow import dataset

            as_written = dataset.ParquetFileFormat(
                read_options=dataset.ParquetReadOptions(dictionary_columns=self.texts)
            )
            read = dataset.dataset(self._parts, format=as_written, partitioning=None)
            yield from read.to_batches(batch_size=65536, batch_readahead=1, fragment_readahead=1, use_threads=False)
            return
        with parquet.ParquetFile(self._file, read_dictionary=self.texts) as opened:
            yield from opened.iter_batches(batch_size=65536, use_threads=False)

    def table(self) -> Any:
        """All rows, as `batches`."""
        import pyarrow
        from pyarrow import parquet

        if self._file.is_dir():
            return pyarrow.Table.from_batches(self.batches())
        with parquet.ParquetFile(self._file, read_dictionary=self.texts) as opened:
            found = opened.read(use_threads=False)
        self._check(found.num_rows)
        return found


def _columns(content: _File, path: str, reader: RawReader, table: str) -> bool:
    """Read the rows of a `plain` file as columns; False if a text is not UTF-8."""
    import pyarrow
    from pyarrow import types

    from privtab.state.coded import CodedColumn, RawTable

    rows = content.table()
    columns: dict[str, CodedColumn] = {}
    for name in content.names:
        texts = rows[name]
        try:
            for chunk in texts.chunks if types.is_dictionary(texts.type) else ():
                chunk.dictionary.validate(full=True)
        except pyarrow.ArrowInvalid:
            return False  # not UTF-8
        if types.is_timestamp(texts.type):
            columns[name] = CodedColumn.of_texts(cell for chunk in texts.chunks for cell in _moments(chunk))
            continue
        columns[name] = CodedColumn.of(texts if types.is_dictionary(texts.type) else texts.cast(pyarrow.string()))
    columns = {name: column for name, column in columns.items() if name in raw.TABLE_COLUMNS[table].all}
    RawTable.read(reader, path, table, columns)
    return True


def _is_moment(name: str, kind: Any) -> bool:
    """Whether a column holds edges of windows as timestamps that say which moment they mean."""
    from pyarrow import types

    return name in WINDOW_COLUMNS and types.is_timestamp(kind) and kind.tz is not None


def _moments(column: Any) -> list[str | None]:
    """Timestamps as RFC 3339 in UTC. Those outside of the years 1 to 9999 are the first or the last of them."""
    import pyarrow

    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[column.type.unit]
    listed: list[int | None] = column.cast(pyarrow.int64()).to_pylist()
    known = {
        value: moment_text(min(max(value * scale, EARLIEST), LATEST))
        for value in dict.fromkeys(listed)
        if value is not None
    }
    return [None if value is None else known[value] for value in listed]


def _cells(name: str, column: Any) -> list[object]:
    """The cells of a column; repeated values share one object."""
    import pyarrow
    from pyarrow import types

    if isinstance(column, pyarrow.DictionaryArray):
        known = _cells(name, column.dictionary)
        return [None if code is None else known[code] for code in column.indices.to_pylist()]
    if _is_moment(name, column.type):
        return list(_moments(column))
    if name in WINDOW_COLUMNS and (types.is_timestamp(column.type) or types.is_date(column.type)):
        problem = "a time without a time zone" if types.is_timestamp(column.type) else "a date without a time"
        return [None if not valid else NotText(problem) for valid in column.is_valid().to_pylist()]
    kinds = (str, int, NotText)
    return [v if v is None or type(v) in kinds else NotText(f"a {type(v).__name__}") for v in arrow_cells(column)]
