"""Tables in CSV: columns apart by `,`, `;`, a tab or `|`, as a first line `sep=;` or the file itself says."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from io import StringIO
from itertools import islice
from pathlib import Path

from privtab.base import FileError, SourceFile, Span
from privtab_pages.tables import Cell, Page, Row, plain_lines, table_of

_SEPARATOR = re.compile(r"\"?sep=(.)\"?\r?\n?", re.IGNORECASE)
_CANDIDATES = (",", ";", "\t", "|")


def csv_page(source: SourceFile) -> Page:
    """The one table of a file; lines of one text above it are its title. Raises FileError."""
    said = _SEPARATOR.match(source.text)
    try:
        delimiter = said[1] if said else _delimiter(source)
        rows = [*_rows(source, delimiter, 1 if said else 0)]
    except csv.Error as error:
        raise FileError(f"cannot read {source.path} as CSV: {error}") from error
    table = table_of(rows, 1, (), lost="", sheet="")
    return Page(tables=(table,) if table else ())


def _delimiter(source: SourceFile) -> str:
    """The separator of columns: the candidate that gives most rows the width of the widest. Raises FileError if two do."""
    widths = {}
    for candidate in _CANDIDATES:
        rows = islice(csv.reader(StringIO(source.text, newline=""), delimiter=candidate), 1_000)
        found = [len(row) for row in rows if any(row)]
        widest = max(found, default=0)
        widths[candidate] = (found.count(widest), widest) if widest > 1 else (0, 0)
    if Path(source.path).suffix.lower() == ".tsv":
        return "\t"
    best = max(_CANDIDATES, key=lambda candidate: widths[candidate])
    others = [one for one in _CANDIDATES if one != best and widths[one][0] > 1 and widths[one][1] >= widths[best][1]]
    if others:
        message = f"cannot read {source.path} as CSV: columns may be apart by `{best}` or `{others[0]}`"
        raise FileError(f"{message}: say so in a first line `sep={best}`")
    return best


def _rows(source: SourceFile, delimiter: str, skipped: int) -> Iterator[Row]:
    reader = csv.reader(StringIO(source.text, newline=""), delimiter=delimiter)
    line = 1
    for number, texts in enumerate(reader):
        written, at, cells = source.text[source.starts[line - 1] :].partition("\n")[0], 0, []
        for text in texts:
            at = max(at, written.find(text.partition("\n")[0], at))
            span = Span(path=source.path, line=line, column=at + 1, end_line=line, end_column=at + 2)
            cells.append(Cell(plain_lines(text), span))
            at += len(text)
        line = reader.line_num + 1
        if any(cell.text for cell in cells) and number >= skipped:
            yield Row(cells=tuple(cells))
