"""Read the tables of a page: Markdown, HTML, CSV, or a sheet of a workbook."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

from privtab.base import files
from privtab.base.diagnostics import Span
from privtab.base.errors import FileError, UsageError
from privtab.base.resources import how_to_install
from privtab.base.source import SourceFile, load

_BAR = re.compile(r"(?<!\\)\|")
_LINE = re.compile(r"[\s|:-]*")
_HIDDEN = re.compile(r" {0,3}(?:(?P<fence>`{3,}|~{3,})|<!--)")
"""What begins code or a comment, whose tables are none of the page."""
_OTHER_BLOCK = re.compile(rf"\s*$| {{0,3}}(?:#|>|[*+-] )|{_HIDDEN.pattern}")
_LINK = re.compile(r"\[((?:[^\[\]\\]|\\.)*)\]\([^()]*\)")
_CODE = re.compile(r"(`+) ?(.*?) ?\1")
_EMPHASIS = re.compile(r"(\*{1,2})(?=\S)(.+?)(?<=\S)\1")
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_ANCHOR = re.compile(r'<a id="([^"]*)"></a>')
_STRUCK = "~~"
"""What struck text begins with, as in Markdown: no condition has it, so nobody reads what no longer holds."""
_ESCAPED = re.compile(r"\\([\\`*_|<>\[\]{}()#+.!-])")


class Cell(NamedTuple):
    """A cell as plain text; lines within it end in LF."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row; a cell that spans several is in each of them."""

    cells: tuple[Cell, ...]
    anchor: str = ""
    """The name by which links lead to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with the names of its columns."""

    heading: str
    """The text of the heading above it."""
    header: Row
    rows: tuple[Row, ...]


def page_source(path: Path) -> SourceFile:
    """The text of a page; a workbook's first sheet as CSV. Raises FileError, and UsageError if the library for workbooks is missing."""
    return SourceFile.of(str(path), _sheet(path)) if path.suffix == ".xlsx" else load(path)


def tables(source: SourceFile) -> list[Table]:
    """The tables of a page, read by the name of its file."""
    suffix = Path(source.path).suffix.lower()
    if suffix in (".csv", ".xlsx"):
        rows = list(_csv_rows(source))
        return [Table(heading="", header=rows[0], rows=tuple(rows[1:]))] if rows else []
    if suffix in (".html", ".htm"):
        return _Html(source).tables
    return list(_markdown_tables(source))


def _csv_rows(source: SourceFile) -> Iterator[Row]:
    reader = csv.reader(StringIO(source.text, newline=""))
    line = 1
    for texts in reader:
        spans = [Span(path=source.path, line=line, column=1, end_line=line, end_column=2)] * len(texts)
        line = reader.line_num + 1
        if any(text.strip() for text in texts):
            yield Row(cells=tuple(Cell(text.strip(), span) for text, span in zip(texts, spans, strict=True)))


def _sheet(path: Path) -> str:
    """The first sheet of a workbook as CSV: the values of cells as text."""
    try:
        from openpyxl import load_workbook  # type: ignore[import-untyped]
    except ImportError:
        raise UsageError(f"workbooks need openpyxl: {how_to_install('excel')}; or save the sheet as CSV") from None
    try:
        sheet = load_workbook(files.archive(path), read_only=True, data_only=True).worksheets[0]
    except (OSError, KeyError, ValueError, IndexError, BadZipFile) as error:
        raise FileError(f"cannot read {path} as a workbook: {error}") from error
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(sheet.iter_rows(values_only=True))
    return text.getvalue()


def _markdown_tables(source: SourceFile) -> Iterator[Table]:
    """Tables as GitHub Flavored Markdown has them: rows go on to a blank line or another block, with bars or without."""
    heading, above, closing = "", "", None
    header: Row | None = None
    rows: list[Row] = []
    for number, text in enumerate([*source.text.splitlines(), ""], 1):
        if closing is not None:
            closing = None if closing.search(text) else closing
            continue
        if header is not None and not _OTHER_BLOCK.match(text):
            rows.append(_markdown_row(source, number, text))
            continue
        if header is not None:
            yield Table(heading=heading, header=header, rows=tuple(rows))
            header, rows, above = None, [], ""
        if opening := _HIDDEN.match(text):
            fence = opening["fence"]
            closing = re.compile(rf" {{0,3}}{fence}{fence[0]}*\s*$" if fence else "-->")
            closing = None if not fence and closing.search(text, opening.end()) else closing
        elif "|" in above and "|" in text and "-" in text and _LINE.fullmatch(text) and not above.startswith("    "):
            header = _markdown_row(source, number - 1, above)
        elif text.startswith("#"):
            heading = _plain(text.lstrip("#").strip())
        above = text


def _markdown_row(source: SourceFile, number: int, text: str) -> Row:
    bars = [bar.start() for bar in _BAR.finditer(text)]
    first = text.lstrip().startswith("|")
    starts = [bar + 1 for bar in bars] if first else [0, *(bar + 1 for bar in bars)]
    ends = [*(bars[1:] if first else bars), len(text)]
    cells = []
    for start, end in zip(starts, ends, strict=True):
        raw = text[start:end]
        begin = start + len(raw) - len(raw.lstrip())
        last = max(begin + 2, end + 1)
        span = Span(path=source.path, line=number, column=begin + 1, end_line=number, end_column=last)
        cells.append(Cell(_plain(raw.strip()), span))
    if text.rstrip().endswith("|"):
        cells.pop()
    anchor = _ANCHOR.search(text)
    return Row(cells=tuple(cells), anchor=anchor[1] if anchor else "")


def _plain(text: str) -> str:
    """The text of Markdown, without what only lays it out."""
    text = _BREAK.sub("\n", _ANCHOR.sub("", text))
    text = _LINK.sub(r"\1", text)
    parts, start = [], 0
    for code in _CODE.finditer(text):
        parts += [_unescaped(text[start : code.start()]), code[2].replace("\\|", "|")]
        start = code.end()
    return "".join((*parts, _unescaped(text[start:]))).strip()


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", _EMPHASIS.sub(r"\2", text))


class _Html(HTMLParser):
    """The tables of HTML, however its end tags are left out."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__()
        self.tables: list[Table] = []
        self._source = source
        self._heading = ""
        self._in_heading = False
        self._rows: list[Row] | None = None
        self._cells: list[Cell] = []
        self._anchor = ""
        self._text: list[str] | None = None
        self._place = (1, 0)
        self._spans = (1, 1)
        self._nested = 0
        self._above: dict[int, tuple[int, Cell]] = {}
        self.feed(source.text)
        self.close()
        self._end_table()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        match tag:
            case "table" if self._text is not None:
                self._nested += 1
            case "tr" | "td" | "th" if self._nested:
                self.handle_data("\n")
            case "table":
                self._end_table()
                self._rows = []
            case "tr" if self._rows is not None:
                self._end_row()
                self._anchor = given.get("id") or ""
            case "td" | "th" if self._rows is not None:
                self._end_cell()
                self._text, self._place = [], self.getpos()
                self._spans = _number(given.get("rowspan")), _number(given.get("colspan"))
            case "br" | "li" | "p" | "div" | "small" if self._text is not None:
                self._text.append("\n")
            case "s" | "del" | "strike" if self._text is not None:
                self._text.append(_STRUCK)
            case "h1" | "h2" | "h3" | "h4":
                self._in_heading, self._heading = True, ""

    def handle_endtag(self, tag: str) -> None:
        match tag:
            case "table" if self._nested:
                self._nested -= 1
            case "tr" | "td" | "th" if self._nested:
                pass
            case "table":
                self._end_table()
            case "tr":
                self._end_row()
            case "td" | "th":
                self._end_cell()
            case "h1" | "h2" | "h3" | "h4":
                self._in_heading = False

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)
        elif self._in_heading:
            self._heading += data

    def _end_cell(self) -> None:
        if self._text is None:
            return
        lines = (" ".join(line.split()) for line in "".join(self._text).split("\n"))
        line, column = self._place
        end = Span(path=self._source.path, line=line, column=column + 1, end_line=line, end_column=column + 4)
        cell = Cell("\n".join(filter(None, lines)), end)
        rows, columns = self._spans
        self._text = None
        for _ in range(columns):
            self._fill()
            if rows > 1:
                self._above[len(self._cells)] = (rows - 1, cell)
            self._cells.append(cell)

    def _fill(self) -> None:
        """Add the cells that begin in a row above."""
        while (at := len(self._cells)) in self._above and self._above[at][1] not in self._cells:
            left, cell = self._above.pop(at)
            if left > 1:
                self._above[at] = (left - 1, cell)
            self._cells.append(cell)

    def _end_row(self) -> None:
        self._end_cell()
        if self._cells and self._rows is not None:
            self._fill()
            self._rows.append(Row(cells=tuple(self._cells), anchor=self._anchor))
        self._cells, self._anchor = [], ""

    def _end_table(self) -> None:
        self._end_row()
        if self._rows:
            header, *rows = self._rows
            self.tables.append(Table(heading=self._heading.strip(), header=header, rows=tuple(rows)))
        self._rows, self._above, self._nested = None, {}, 0


def _number(text: str | None) -> int:
    return min(int(text), 1_000) if text and text.isdecimal() and int(text) else 1
