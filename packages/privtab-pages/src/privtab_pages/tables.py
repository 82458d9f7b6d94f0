"""The tables of a page as people see them: rows of cells, each with its place and what is left out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from privtab.base import Span

STRUCK, HIDDEN = "struck", "hidden"
"""The reasons why text of a page is left out: the page strikes it out, or shows it to nobody."""
PICTURE = "⟦{}⟧"
"""A picture in the text of a cell, around its alternative text."""
_BLANKS = re.compile("[ \t\r\f\v\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
"""Blanks, including blanks at which no line breaks: in the text of a cell they are one blank."""
_METHOD = re.compile(r"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|ANY)(?:[/,|]\s*[A-Z]+)*")
_STARS = re.compile(r"\*\*([^*\n]+)\*\*")


class Cell(NamedTuple):
    """A cell as plain text; lines within it end in LF."""

    text: str
    span: Span
    lost: tuple[tuple[str, str], ...] = ()
    """The cell's parts beside its text, each after STRUCK or HIDDEN."""
    notes: tuple[str, ...] = ()
    """The texts of its footnote marks that are raised, as in `open<sup>1</sup>`."""
    bold: bool = False
    """True if its text is bold, or if it is the cell of a heading."""
    said: bool = True
    """False for a cell that allows and denies nothing: what it says is reported elsewhere."""

    @property
    def line(self) -> str:
        """The text on one line."""
        return joined(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row; a cell that spans several is in each of them."""

    cells: tuple[Cell, ...]
    anchor: str = ""
    """The name by which links lead to it."""

    @property
    def spans(self) -> bool:
        """True if one cell is in all its columns."""
        return len(self.cells) > 1 and len({*map(id, self.cells)}) == 1

    def cell(self, at: int) -> Cell:
        """The cell of a column; an empty one where the row is shorter than the header."""
        return self.cells[at] if at < len(self.cells) else Cell("", self.cells[0].span)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with the names of its columns."""

    headings: tuple[str, ...]
    """The texts above it from the outermost heading on: headings, a bold line or a summary, its caption."""
    header: Row
    rows: tuple[Row, ...]
    lost: str = ""
    """STRUCK or HIDDEN for a table that no longer holds, or that nobody sees."""
    sheet: str = ""
    """The sheet of a workbook."""

    @property
    def heading(self) -> str:
        """The nearest text above it."""
        return self.headings[-1] if self.headings else ""

    @property
    def first(self) -> Cell:
        """Its first cell."""
        return self.header.cells[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The tables of a page, and the lines of text beside them."""

    tables: tuple[Table, ...]
    lines: tuple[str, ...] = ()


def joined(text: str) -> str:
    """A text on one line, with single blanks."""
    return " ".join(text.split())


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def plain_lines(text: str) -> str:
    """A text without empty lines, with single blanks in each, and without Markdown's stars around its words."""
    lines = (_STARS.sub(r"\1", _BLANKS.sub(" ", line).strip()) for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def table_of(rows: Sequence[Row], heads: int, headings: tuple[str, ...], *, lost: str, sheet: str) -> Table | None:
    """A table of rows, of which the first `heads` name the columns; None without rows.

    Rows of one text above the others are titles. Names that several rows give to several columns begin with the row above.
    """
    rows, title = [*rows], []
    while len(rows) > 1 and _texts(rows[0]) == 1 and heads <= 1 and any(_texts(row) > 1 for row in rows[1:]):
        title.append(next(cell.line for cell in rows.pop(0).cells if cell.text))
    if not rows:
        return None
    heads = max(1, min(heads, len(rows)))
    header = rows[heads - 1]
    names = [cell.line.lower() for cell in header.cells]
    for above in reversed(rows[: heads - 1]):
        pairs = zip(header.cells, above.cells, strict=False)
        cells = [
            cell._replace(text=f"{group.text} {cell.text}") if group is not cell and names.count(name) > 1 else cell
            for (cell, group), name in zip(pairs, names, strict=False)
        ]
        header = replace(header, cells=(*cells, *header.cells[len(cells) :]))
    return Table(headings=(*headings, *title), header=header, rows=tuple(rows[heads:]), lost=lost, sheet=sheet)


def parts(table: Table) -> Iterator[Table]:
    """The tables that are written as one: each begins with a row that has the first heading again, or is bold."""
    found: list[tuple[Row, list[Row]]] = [(table.header, [])]
    first = table.first.line.lower()
    for row in table.rows:
        again = first and row.cells[0].line.lower() == first
        if not again and (_texts(row) < 2 or not all(cell.bold for cell in row.cells)):
            found[-1][1].append(row)
        elif [(cell.text, cell.lost) for cell in row.cells] != [(cell.text, ()) for cell in found[-1][0].cells]:
            found.append((row, []))
    yield from (replace(table, header=header, rows=tuple(rows)) for header, rows in found)


def with_routes(table: Table) -> Table:
    """A table whose methods and paths stand in two columns as one with routes, `GET /tables`, in the column of paths."""
    rows = [row for row in table.rows if not row.spans]
    columns = range(len(table.header.cells) if rows else 0)
    methods = [at for at in columns if all(_METHOD.fullmatch(row.cell(at).line.upper()) for row in rows)]
    paths = [at for at in columns if all(row.cell(at).text.startswith("/") for row in rows)]
    if not len(methods) == len(paths) == 1:
        return table
    (method,), (path,) = methods, paths

    def joined_row(row: Row) -> Row:
        first, second = row.cell(method), row.cell(path)
        route = second._replace(
            text=f"{first.line} {second.line}", lost=first.lost + second.lost, notes=first.notes + second.notes
        )
        return replace(row, cells=tuple(route if at == path else row.cell(at) for at in columns if at != method))

    written = (row if row.spans else joined_row(row) for row in table.rows)
    return replace(table, header=joined_row(table.header), rows=tuple(written))


def _texts(row: Row) -> int:
    """The number of different cells with text."""
    return len({id(cell) for cell in row.cells if cell.text or cell.lost})
