"""One table from CSV text: the first line names the columns."""

from __future__ import annotations

import csv
import io

from privtab.state.nodes import RowLocation
from privtab.state.raw import RawReader, RawRow


def read_csv(text: str, path: str, reading: RawReader, table: str) -> None:
    """Read the rows of `table`. Blank lines are no rows; a row's line is the one that it begins on."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] | None = None
    number, line = 0, 1
    try:
        for cells in rows:
            start, line = line, rows.line_num + 1
            if not cells:
                continue
            if names is None:
                names = cells
                if not reading.header(table, names, RowLocation(path=path, table=table, row=0, line=start)):
                    return
                continue
            number += 1
            if len(cells) == len(names) and "" not in cells:
                # The header has all columns that there must be, and no others: such a row needs no second look.
                reading.take(RawRow(path, table, number, start, dict(zip(names, cells, strict=True))))
            elif len(cells) == len(names):
                reading.row(path, table, number, start, dict(zip(names, cells, strict=True)))
            else:
                place = RowLocation(path=path, table=table, row=number, line=start)
                message = f"the row has {len(cells)} cell(s), the header {len(names)}"
                advice = "put cells that hold commas in double quotes" if len(cells) > len(names) else None
                reading.report("S107", message, place, help=advice, row=dict(zip(names, cells, strict=False)))
    except csv.Error as error:
        place = RowLocation(path=path, table=table, row=number + 1 if names else 0, line=line)
        message = f"not CSV: {error}; nothing after this place was read"
        reading.report("S002", message, place, help="a double quote inside quotes is written twice")
