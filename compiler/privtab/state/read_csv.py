"""Read one table from CSV text; the first line names the columns."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from privtab.state import raw
from privtab.state.findings import RowLocation
from privtab.state.raw import TABLE_COLUMNS, RawReader, RawRow


def read(file: Path, reader: RawReader, table: str) -> None:
    """Read a file with the rows of `table`."""
    text = reader.text(file, table)
    if text is not None:
        read_csv(text, str(file), reader, table)


def read_csv(text: str, path: str, reader: RawReader, table: str) -> None:
    """Read the rows of `table`. Blank lines are skipped; the line of a row is the one on which it begins."""
    if text.count("\n") >= raw.LARGE and _columns(text, path, reader, table):
        return
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] | None = None
    number, line, known = 0, 1, True
    try:
        for cells in rows:
            start, line = line, rows.line_num + 1
            if not cells:
                continue
            if names is None:
                names = cells
                if not reader.header(table, names, RowLocation(path=path, table=table, row=0, line=start)):
                    return
                known = set(names) <= set(TABLE_COLUMNS[table].all)
                continue
            number += 1
            if len(cells) == len(names) and known and "" not in cells:
                # The header has all required columns and no unknown ones: such a row needs no further check.
                reader.take(RawRow(path, table, number, start, dict(zip(names, cells, strict=True))))
            elif len(cells) == len(names):
                reader.row(path, table, number, start, dict(zip(names, cells, strict=True)))
            else:
                place = RowLocation(path=path, table=table, row=number, line=start)
                message = f"the row has {len(cells)} cell(s), the header {len(names)}"
                advice = "put cells that hold commas in double quotes" if len(cells) > len(names) else None
                reader.report("S107", message, place, help=advice, row=dict(zip(names, cells, strict=False)))
    except csv.Error as error:
        place = RowLocation(path=path, table=table, row=number + 1 if names else 0, line=line)
        message = f"not CSV: {error}; nothing after this place was read"
        reader.report("S002", message, place, help="a double quote inside quotes is written twice")


def _columns(text: str, path: str, reader: RawReader, table: str) -> bool:
    """Read the rows as columns; False if any line may not be a plain row: quotes, blank lines, another number of cells."""
    if '"' in text or "\0" in text or text.count("\r") != text.count("\r\n"):
        return False
    header, _, body = text.partition("\n")
    names = header.removesuffix("\r").split(",")
    if names == [""]:
        return False
    if not reader.header(table, names, RowLocation(path=path, table=table, row=0, line=1)):
        return True
    import pyarrow
    from pyarrow import compute
    from pyarrow import csv as arrow_csv

    from privtab.state.coded import CodedColumn, RawTable

    content = body.encode()
    try:
        found = arrow_csv.read_csv(
            pyarrow.BufferReader(content),
            read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(content), 1)),
            parse_options=arrow_csv.ParseOptions(quote_char=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=False
            ),
        )
    except pyarrow.ArrowException:
        return False
    lines = body.count("\n") + (not body.endswith("\n"))
    longest = max((compute.max(compute.binary_length(column)).as_py() or 0) for column in found.columns)
    if found.num_rows != lines or longest > csv.field_size_limit():
        return False
    RawTable.read(
        reader,
        path,
        table,
        {name: CodedColumn.of(found[name]) for name in names if name in TABLE_COLUMNS[table].all},
        line=2,
    )
    return True
