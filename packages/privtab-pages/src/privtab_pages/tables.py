"""Read the tables of a page as people see them: Markdown, HTML, CSV, or the sheets of a workbook."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from privtab.base import FileError, SourceFile, Span
from privtab_pages.workbooks import workbook_html

STRUCK, HIDDEN = "struck", "hidden"
"""The reasons why text of a page is left out: the page strikes it out, or shows it to nobody."""
_CODE = "code"
_BAR = re.compile(r"(?<!\\)\|")
_QUOTED = re.compile(r"[\s>]*(?:(?:[*+-]|\d+[.)])\s+)*")
_LINE = re.compile(r"\r\n|\n|\r")
_DASHES = re.compile(r"^[ >]*(?=[^\n]*\|)(?=[^\n]*-)[|: -]+$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"---[ \t]*\n.*?^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_BLANKS = re.compile("[ \t\r\n\f\v\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
"""Blanks, including blanks at which no line breaks: in the text of a cell they are one blank."""
_COMMENT = re.compile(
    r"(<[a-z/](?:\"[^\"]*\"|'[^']*'|[^'\">])*>)|<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL | re.IGNORECASE
)
"""A tag, or a comment as browsers end it: older versions of html.parser do otherwise."""
_SHEETS = re.compile(r"<style\b[^>]*>(.*?)</style", re.DOTALL | re.IGNORECASE)
_ONLY_SOMETIMES = re.compile(r"/\*.*?\*/|@[^{;]*(?:;|\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})", re.DOTALL)
"""Comments of style sheets, and rules that hold on paper or small screens."""
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_SELECTED = re.compile(r"[\w-]*(?:[.#][\w-]+)?")
_HIDES = re.compile(
    r"display:none|visibility:(?:hidden|collapse)|(?:opacity|font-size):0(?:\.0+)?(?:;|!|[a-z%]|$)|mso-hide:all"
)
_VOID = re.compile(r"area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr")
_INLINE = re.compile(
    r"a|abbr|b|bdi|bdo|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|q|s|samp|span|strike|strong|time|tt|u|var|wbr|sub|sup"
)
"""Elements that end no line; all others do."""
_PICTURES = re.compile(
    r"audio|button|canvas|embed|iframe|img|input|math|meter|object|progress|select|svg|textarea|video"
)
"""Elements that people see and no text describes: a cell with such an element cannot be read."""
_BLOCK = re.compile(
    "address|article|aside|blockquote|center|details|div|dl|fieldset|figure|footer|form|h[1-6]|header|hr|main|menu|nav|ol|p|pre|section|summary|table|ul"
)
"""Elements that end a paragraph."""
_TITLES = ("h1", "h2", "h3", "h4", "h5", "h6")
_ABOVE = (*_TITLES, "table")
_HEADING = re.compile("h[1-6]|caption|summary")
_CELLS = ("td", "th", "caption")
_ENDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_CELLS, _CELLS),
    "tr": (*_CELLS, "tr"),
    **dict.fromkeys(("thead", "tbody", "tfoot"), (*_CELLS, "tr", "thead", "tbody", "tfoot")),
}
"""The open elements of a table that a start tag ends, as in browsers."""


class Cell(NamedTuple):
    """A cell as plain text; lines within it end in LF."""

    text: str
    span: Span
    lost: tuple[tuple[str, str], ...] = ()
    """The cell's parts beside its text, each after STRUCK or HIDDEN."""


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
    """The text of the heading above it, or of its caption."""
    header: Row
    rows: tuple[Row, ...]
    lost: str = ""
    """STRUCK or HIDDEN for a table that no longer holds, or that nobody sees."""
    sheet: str = ""
    """The sheet of a workbook."""


def page_source(path: Path) -> SourceFile:
    """The text of a page; a workbook as HTML. Raises FileError, and UsageError if the library for workbooks is missing."""
    if path.suffix.lower() == ".xlsx":
        return SourceFile.of(str(path), workbook_html(path))
    source = SourceFile.load(path)
    if source.undecodable is not None:
        line, column = source.position(source.undecodable)
        raise FileError(f"{path}:{line}:{column}: not UTF-8: save the page in this encoding")
    return source


def tables(source: SourceFile) -> list[Table]:
    """The tables of a page, read by the name of its file."""
    match Path(source.path).suffix.lower():
        case ".csv":
            try:
                rows = list(_csv_rows(source))
            except csv.Error as error:
                raise FileError(f"cannot read {source.path} as CSV: {error}") from error
            return [Table(heading="", header=rows[0], rows=tuple(rows[1:]))] if rows else []
        case ".html" | ".htm" | ".xlsx":
            return _Page(source.path, source.text).tables
        case _:
            return _Page(source.path, *_markdown_html(source.text)).tables


def _csv_rows(source: SourceFile) -> Iterator[Row]:
    reader = csv.reader(StringIO(source.text, newline=""))
    line = 1
    for texts in reader:
        written, at, cells = source.text[source.starts[line - 1] :].partition("\n")[0], 0, []
        for text in texts:
            at = max(at, written.find(text.partition("\n")[0], at))
            span = Span(path=source.path, line=line, column=at + 1, end_line=line, end_column=at + 2)
            cells.append(Cell(_lines(text), span))
            at += len(text)
        line = reader.line_num + 1
        if any(cell.text for cell in cells):
            yield Row(cells=tuple(cells))


def _markdown_html(text: str) -> tuple[str, dict[int, tuple[int, int]]]:
    """A page in Markdown as HTML, and the line and column of the page (0: unknown) for each line of it."""
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import table

    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": 100}).enable("strikethrough")
    # After the other blocks, as on GitHub: a comment or a heading with bars begins no table.
    parser.block.ruler.before("lheading", "rows", table, {"alt": ["paragraph", "reference"]})
    text = re.sub(_LINE, "\n", text)
    front = _FRONT_MATTER.match(text)
    text = "\n" * front[0].count("\n") + text[front.end() :] if front else text
    lines, written, places = text.split("\n"), [], {}
    row = width = 0
    end = -1
    begins: list[int] = []
    at = iter(begins)
    for token in parser.parse(text):
        row = token.map[0] if token.map else row
        html = parser.renderer.render([token], parser.options, {})
        column = 0
        match token.type:
            case "table_open" if token.map:
                width, end = 0, token.map[1]
            case "tr_open":
                begins = _begins(lines[row])
                at = iter([*begins, *[len(lines[row])] * 1_000])
            case "th_open" | "td_open":
                width += token.type == "th_open"
                column = next(at, 0) + 1
            case "tr_close":
                more = "".join(f"<td>{escape(lines[row][begin:].strip(' |'))}</td>" for begin in begins[width:])
                html = more + html
        mine = "\n".join(lines[slice(*token.map)]) if token.map and token.type not in ("fence", "table_open") else ""
        cut_off = bool(mine) and row == end and "|" in lines[row] and not html.startswith("<!--")
        if cut_off or (token.type == "paragraph_open" and _DASHES.search(mine)):
            html = f"<table><tr><td>{escape(lines[row])}</td></tr></table>{html}"  # rows that people see as text
            end = -1
        for number, line in enumerate(html.split("\n")):
            written.append(line)
            places[len(written)] = (row + 1 + number, column)
    return "\n".join(written), places


def _begins(line: str) -> list[int]:
    """The beginnings of the cells of a row in its line."""
    bars = [bar.start() for bar in _BAR.finditer(line)]
    begins = [bar + 1 for bar in bars]
    if not bars or not _QUOTED.fullmatch(line[: bars[0]]):
        begins.insert(0, 0)
    if bars and len(begins) > 1 and not line[bars[-1] + 1 :].strip():
        begins.pop()
    return [begin + len(line[begin:]) - len(line[begin:].lstrip()) for begin in begins]


def _lines(text: str) -> str:
    lines = (_BLANKS.sub(" ", line).strip() for line in text.split("\n"))
    return "\n".join(filter(None, lines))


class _Page(HTMLParser):
    """The tables of HTML, however its end tags are left out."""

    def __init__(self, path: str, text: str, places: Mapping[int, tuple[int, int]] | None = None) -> None:
        super().__init__()
        self.tables: list[Table] = []
        self._path = path
        self._places = places
        self._styles = _styles("\n".join(_SHEETS.findall(text)))
        self._open: list[tuple[str, str]] = []
        self._heading = ""
        self._title: list[str] | None = None
        self._bold: list[str] | None = None
        self._table: Table | None = None
        self._rows: list[Row] = []
        self._cells: list[Cell] = []
        self._anchor = ""
        self._text: list[str] | None = None
        self._lost: list[tuple[str, str]] = []
        self._span = self._place({})
        self._spans = (1, 1)
        self._above: dict[int, tuple[int, Cell]] = {}
        self._below: dict[int, tuple[int, Cell]] = {}
        self.feed(_COMMENT.sub(lambda found: found[1] or "\n" * found[0].count("\n"), text))
        self.close()
        self._close(0)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in reversed(attrs)}
        self._end_implied(tag)
        state = self._state(tag, given)
        depth = self._depth()
        if not _VOID.fullmatch(tag):
            self._open.append((tag, state))
        shown = self._title if self._text is None else self._text
        if shown is not None and not state:
            shown.append("^" if tag in ("sup", "sub") else f"[{tag}]" if _PICTURES.fullmatch(tag) else "")
        if self._text is not None and not _INLINE.fullmatch(tag):
            self._text.append("\n")
        if depth and not self._anchor and self._table is not None and tag in ("tr", "a"):
            self._anchor = given.get("id", "")
        if tag == "table" and not depth:
            heading = "" if "data-sheet" in given else self._heading
            header = Row(cells=(Cell("", self._place(given)),))
            self._table = Table(heading=heading, header=header, rows=(), lost=state, sheet=given.get("data-sheet", ""))
        elif tag in ("td", "th") and depth == 1:
            self._text, self._lost, self._span = [], [], self._place(given)
            self._spans = _number(given.get("rowspan", "")), _number(given.get("colspan", ""))
        elif _HEADING.fullmatch(tag) and depth == (tag == "caption") and state != HIDDEN:
            self._title = []
        elif tag == "p" and not depth:
            self._bold = []

    handle_startendtag = handle_starttag
    """As in browsers, a slash ends no element."""

    def handle_endtag(self, tag: str) -> None:
        tags = [tag for tag, _ in self._open]
        bound = 0 if tag == "table" or "table" not in tags else len(tags) - 1 - tags[::-1].index("table")
        if tag in tags[bound:]:
            self._close(len(tags) - 1 - tags[::-1].index(tag))

    def handle_data(self, data: str) -> None:
        state = self._open[-1][1] if self._open else ""
        data = _BLANKS.sub(" ", data)
        if state == _CODE or not data:
            return
        if self._text is not None:
            if not state:
                self._text.append(data)
            elif data.strip():
                self._lost.append((state, data))
                self._text.append(" " if state == STRUCK else "")
        elif state != HIDDEN and self._title is not None:
            self._title.append("~~" if state else data)
        elif state != HIDDEN and self._bold is not None and data.strip():
            self._bold.append(data if any(tag in ("b", "strong") for tag, _ in self._open) else "\0")

    def _depth(self) -> int:
        return sum(tag == "table" for tag, _ in self._open)

    def _end_implied(self, tag: str) -> None:
        """Close the elements that a start tag ends; a table within a table that is in no cell ends the first."""
        tags = [tag for tag, _ in self._open]
        in_table = len(tags) - tags[::-1].index("table") if "table" in tags else 0
        if tag == "table" and in_table and not {*_CELLS} & {*tags[in_table:]}:
            self._close(in_table - 1)
            return
        ends = (*_ENDS.get(tag, ()), *(("p",) if _BLOCK.fullmatch(tag) else ()), *(_TITLES if tag in _ABOVE else ()))
        if ended := [at for at in range(in_table, len(tags)) if tags[at] in ends]:
            self._close(ended[0])
        if len(_ENDS.get(tag, ())) > len(_CELLS) and self._depth() == 1 and self._cells:
            self._end_row()

    def _state(self, tag: str, given: Mapping[str, str]) -> str:
        """The reason why the text of an element is no text of the page; empty if it is."""
        around = self._open[-1][1] if self._open else ""
        if tag == "summary" and self._open and self._open[-1][0] == "details":
            around = self._open[-2][1] if len(self._open) > 1 else ""
        if around:
            return around
        names = (tag, f"#{given.get('id')}", *(f".{name}" for name in given.get("class", "").split()))
        selected = {
            self._styles[name] for name in (*names, *(f"{tag}{name}" for name in names[1:])) if name in self._styles
        }
        state = _style(given.get("style", ""))
        if tag in ("script", "style"):
            return _CODE
        closed = tag in ("details", "dialog") and "open" not in given
        if closed or tag in ("template", "noscript", "datalist") or "hidden" in given or HIDDEN in (state, *selected):
            return HIDDEN
        return STRUCK if tag in ("s", "del", "strike") or STRUCK in (state, *selected) else ""

    def _place(self, given: Mapping[str, str]) -> Span:
        line, column = self.getpos()
        path = self._path
        if self._places:
            line, known = self._places.get(line, (line, 0))
            column = known - 1 if known else column
        elif self._table and self._table.sheet and re.fullmatch(r"\d{1,9},\d{1,9}", given.get("data-cell", "")):
            path = f"{path} [{self._table.sheet}]"
            line, column = (int(number) for number in given["data-cell"].split(","))
            column -= 1
        return Span(path=path, line=line, column=column + 1, end_line=line, end_column=column + 4)

    def _close(self, at: int) -> None:
        """End all elements from a place of the stack on, the innermost first."""
        again = [element for element in self._open[at + 1 :] if element[0] in ("s", "strike")]
        again = [] if self._open[at : at + 1] and self._open[at][0] in (*_ENDS, "table") else again  # as in browsers
        while len(self._open) > at:
            tag, _ = self._open.pop()
            depth = self._depth()
            if self._text is not None and not _INLINE.fullmatch(tag):
                self._text.append("\n")
            if tag == "table" and not depth:
                self._end_table()
            elif tag == "tr" and depth == 1:
                self._end_row()
            elif tag in ("td", "th") and depth == 1:
                self._end_cell()
            elif _HEADING.fullmatch(tag) and self._title is not None and depth == (tag == "caption"):
                self._end_heading(tag, _lines("".join(self._title)))
            elif tag == "p" and not depth and self._bold is not None:
                text = _lines("".join(self._bold))
                self._bold = None
                self._heading += "" if "\0" in text or not text else f" / {text}"
        self._open += again

    def _end_heading(self, tag: str, text: str) -> None:
        """Take a heading; a possible heading, or a remark, is added to the heading above, which then names no type."""
        self._title = None
        if tag == "caption" and self._table is not None:
            self._table = replace(self._table, heading=text or self._table.heading)
        elif tag == "summary":
            self._heading += "" if self._open and self._open[-1][1] else f" / {text}"
        else:
            self._heading = text

    def _end_cell(self) -> None:
        cell = Cell(_lines("".join(self._text or ())), self._span, tuple(self._lost))
        rows, columns = self._spans
        self._text = None
        for _ in range(columns):
            self._fill()
            if rows > 1:
                self._below[len(self._cells)] = (rows - 1, cell)
            self._cells.append(cell)

    def _fill(self) -> None:
        """Add the cells that begin in a row above."""
        while len(self._cells) in self._above:
            left, cell = self._above.pop(len(self._cells))
            if left > 1:
                self._below[len(self._cells)] = (left - 1, cell)
            self._cells.append(cell)

    def _end_row(self) -> None:
        if self._cells or self._above:
            self._fill()
            while self._above:
                self._cells.append(Cell("", self._span))
                self._fill()
            self._rows.append(Row(cells=tuple(self._cells), anchor=self._anchor))
        self._above, self._below = self._below, {}
        self._cells, self._anchor = [], ""

    def _end_table(self) -> None:
        if self._cells:
            self._end_row()
        if self._table is not None and self._rows:
            header, *rows = self._rows
            self.tables.append(replace(self._table, header=header, rows=tuple(rows)))
        self._table, self._rows, self._above, self._below = None, [], {}, {}


def _styles(sheet: str) -> dict[str, str]:
    """The classes, ids and elements that a style sheet hides or strikes out."""
    rules = _RULE.findall(_ONLY_SOMETIMES.sub("", sheet))
    names = ((selector.strip().split()[-1:], _style(rule)) for many, rule in rules for selector in many.split(","))
    return {name: state for last, state in names if state for name in last if _SELECTED.fullmatch(name)}


def _style(rule: str) -> str:
    rule = "".join(rule.lower().split())
    return HIDDEN if _HIDES.search(rule) else STRUCK if "line-through" in rule else ""


def _number(text: str) -> int:
    return 1 if not text.isdecimal() else min(int(text.lstrip("0")[:4] or 1_000), 1_000)
