"""The tables of HTML as a browser shows them: what is hidden or struck out is told apart from the text.

Lexbor makes the tree of elements, as browsers do; here is what of it people see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from selectolax.lexbor import LexborHTMLParser

from privtab.base import FileError, SourceFile, Span
from privtab_pages.tables import HIDDEN, PICTURE, STRUCK, Cell, Page, Row, Table, joined, plain_lines, table_of

DEEPEST = 400
"""The most elements within each other, of which browsers allow 512."""
_PLACE = "data-place"
_BEGINS = re.compile(r"<(table|td|th)(?=[\s/>])", re.IGNORECASE)
_PLACED = re.compile(r"\d{1,9},\d{1,9}")
_TAG = re.compile(
    r"<(/?)(?!/|(?:area|base|body|br|col|embed|hr|html|head|img|input|li|link|meta|option|p|param|source|t[dhr]|t(?:body|head|foot)|track|wbr)\b)[a-z]",
    re.IGNORECASE,
)
_UNSEEN = re.compile(r"script|style|title|meta|link|-comment|-doctype|colgroup|col|param|source|track|option|rp")
_TEMPLATE = re.compile(r"^<template[^>]*>|</template>$", re.IGNORECASE)
_SHEETS = re.compile(r"<style\b[^>]*>(.*?)</style", re.DOTALL | re.IGNORECASE)
_ONLY_SOMETIMES = re.compile(r"/\*.*?\*/|@[^{;]*(?:;|\{(?:[^{}]*\{[^{}]*\})*[^{}]*\})", re.DOTALL)
"""Comments of style sheets, and rules that hold on paper or small screens."""
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_SELECTED = re.compile(r"[\w-]*(?:[.#][\w-]+)?")
_HIDES = re.compile(
    r"display:none|visibility:(?:hidden|collapse)|(?:opacity|font-size):0(?:\.0+)?(?:;|!|[a-z%]|$)|mso-hide:all"
)
_INLINE = re.compile(
    r"a|abbr|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|nobr|q|ruby|rt|s|samp|small|span|strike|strong|time|tt|u|var|wbr|sub|sup"
)
"""Elements that end no line."""
_PICTURES = re.compile(
    r"audio|button|canvas|embed|iframe|img|input|math|meter|object|progress|select|svg|textarea|video"
)
"""Elements that people see and whose text, if any, is not what they see."""
_BLOCKS = re.compile(
    r"address|article|aside|blockquote|body|br|caption|center|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|form|h[1-6]|header|hgroup|hr|html|legend|li|main|menu|nav|ol|p|pre|search|section|summary|table|tbody|td|tfoot|th|thead|tr|ul"
)
_ICON = re.compile(
    r"(?:^|[\s_-])(?:icon|fa|fas|far|fab|glyphicon|emoji|bi|mdi|octicon|material|check|tick|cross|close|times|yes|no)(?:$|[\s_-])"
)
_NAMED = ("alt", "aria-label", "title", "icon", "name", "emoji", "alias")
"""The attributes that say what a picture shows, the first that there is."""
_BOLD = ("b", "strong", "th")
_TITLES = re.compile(r"h[1-6]|summary|p|dt")
_TITLE = 7
"""The level of bold lines and summaries, below the headings."""
_LONGEST_TITLE = 120


class _Node(NamedTuple):
    """An element, or a text, with what is said of it by the elements around it."""

    node: Any
    state: str
    bold: bool


class _Text:
    """Collects what people see of an element."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.lost: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.plain = False
        """True if a part is not bold."""

    def cell(self, span: Span) -> Cell:
        text = plain_lines("".join(self.parts))
        return Cell(text, span, tuple(self.lost), tuple(self.notes), bool(text) and not self.plain)


def placed(source: SourceFile, above: int = 0) -> str:
    """HTML whose tables and cells tell their line and column; `above`: the lines of the page above it. Raises FileError."""

    def place(found: re.Match[str]) -> str:
        line, column = source.position(found.start())
        return f"{found[0]} {_PLACE}={line + above},{column}"

    # The workbook's own places come later in its tags, and count.
    return source.text if source.path.endswith(".xlsx") else _BEGINS.sub(place, source.text)


def html_page(path: str, html: str, *, own: bool = False) -> Page:
    """The tables of a page, and its other lines. Raises FileError for elements that are nested too deep.

    `own`: a page of `privtab docs`, whose folded parts are read as if somebody opened them, since they are compared.
    """
    depth = deepest = 0
    for tag in _TAG.finditer(html):
        depth = max(0, depth + (-1 if tag[1] else 1))
        deepest = max(deepest, depth)
    if deepest > 10 * DEEPEST:  # more than a page has, even if it leaves out end tags; the parser would take long
        raise FileError(f"cannot read {path}: more than {10 * DEEPEST} elements are not closed")
    root = LexborHTMLParser(html).root
    reader = _Reader(path, _styles("\n".join(_SHEETS.findall(html))), "fold" if own else None)
    if root is not None:
        reader.read(_Node(root, "", bold=False))
    return Page(tables=tuple(reader.tables), lines=tuple(plain_lines("".join(reader.around)).split("\n")))


class _Reader:
    """Walks the elements of a page."""

    def __init__(self, path: str, styles: Mapping[str, str], opened: str | None) -> None:
        """`opened`: the class of closed details that are read."""
        self.tables: list[Table] = []
        self.around: list[str] = []
        self._path = path
        self._styles = styles
        self._opened = opened
        self._headings: dict[int, str] = {}
        self._sheet = ""

    def read(self, at: _Node, depth: int = 0) -> None:
        """Read what is outside of tables."""
        if depth > DEEPEST:
            raise FileError(f"cannot read {self._path}: more than {DEEPEST} elements are within each other")
        tag = at.node.tag
        if tag == "table" and not self._lays_out(at):
            self._table(at)
            return
        if tag == "-text":
            self.around += [] if at.state == HIDDEN else [_text_of(at.node)]
            return
        outside = self._headings
        self._title(at, depth)
        block = _BLOCKS.fullmatch(tag)
        self.around += ["\n"] if block else []
        for child in self._children(at):
            self.read(child, depth + 1)
        self.around += ["\n"] if block else []
        if tag == "details":
            self._headings = outside

    def _lays_out(self, at: _Node) -> bool:
        """Return whether a table only places other tables: it has one column, and tables in it."""
        rows = [row for part in self._children(at) for row in self._children(part) if row.node.tag == "tr"]
        widths = [sum(cell.node.tag in ("td", "th") for cell in self._children(row)) for row in rows]
        return max(widths, default=0) == 1 and any(row.node.css_first("table") is not None for row in rows)

    def _title(self, at: _Node, depth: int) -> None:
        """Take an element as a heading, if it is one: a bold line and the summary of open details are below all others."""
        tag = at.node.tag
        if at.state == HIDDEN or not _TITLES.fullmatch(tag):
            return
        text = _Text()
        self._collect(at, text, depth, heading=True)
        cell = text.cell(self._span(at.node))
        level = int(tag[1]) if tag[0] == "h" else _TITLE
        opened = tag == "summary" and "open" in (at.node.parent.attributes or {})
        if tag[0] == "h" or opened or (tag in ("p", "dt") and cell.bold and len(cell.line) <= _LONGEST_TITLE):
            above = {other: title for other, title in self._headings.items() if other < level}
            self._headings = above | {level: cell.line}

    def _children(self, at: _Node) -> Iterator[_Node]:
        child = at.node.child
        if at.node.tag == "template":
            child = LexborHTMLParser(_TEMPLATE.sub("", at.node.html or "")).body
        while child is not None:
            if not _UNSEEN.fullmatch(child.tag):
                yield _Node(child, self._state(child, at), at.bold or child.tag in _BOLD)
            child = child.next

    def _state(self, node: Any, around: _Node) -> str:
        """The reason why the text of an element is no text of the page; empty if it is."""
        tag, given = node.tag, node.attributes or {}
        outside = around.node
        closed = outside.tag in ("details", "dialog") and "open" not in outside.attributes and tag != "summary"
        closed = closed and (self._opened is None or outside.attributes.get("class") != self._opened)
        if closed or around.state == HIDDEN:
            return HIDDEN
        if tag == "-text":
            return around.state
        names = (tag, f"#{given.get('id')}", *(f".{name}" for name in (given.get("class") or "").split()))
        selected = {self._styles.get(name) for name in (*names, *(f"{tag}{name}" for name in names[1:]))}
        state = _style(given.get("style") or "")
        unseen = tag in ("template", "noscript", "datalist") or (tag == "dialog" and "open" not in given)
        if unseen or "hidden" in given or HIDDEN in (state, *selected):
            return HIDDEN
        if tag in ("s", "del", "strike") or STRUCK in (state, *selected):
            return STRUCK
        return around.state

    def _collect(self, at: _Node, text: _Text, depth: int, *, heading: bool = False) -> None:
        """Add what people see of an element, in a cell or a heading."""
        if depth > DEEPEST:
            raise FileError(f"cannot read {self._path}: more than {DEEPEST} elements are within each other")
        for child in self._children(at):
            tag = child.node.tag
            if heading and tag == "table":
                continue
            if tag == "-text":
                self._add(child, _text_of(child.node), text, heading=heading)
            elif tag in ("sup", "sub") and not child.state:
                raised = _Text()
                self._collect(child, raised, depth + 1)
                text.lost += raised.lost
                if heading or tag == "sub":
                    text.parts.append("^" + "".join(raised.parts))
                else:
                    text.notes.append(joined("".join(raised.parts)))
            else:
                if shown := _picture(child.node):
                    self._add(child, PICTURE.format(shown), text, heading=heading)
                if shown and _PICTURES.fullmatch(tag):
                    continue
                edge = "\n" if _BLOCKS.fullmatch(tag) else ""
                text.parts.append(edge)
                self._collect(child, text, depth + 1, heading=heading)
                text.parts.append(edge)

    def _add(self, at: _Node, text: str, to: _Text, *, heading: bool) -> None:
        if not at.state:
            to.parts.append(text)
            to.plain |= bool(text.strip()) and not at.bold
        elif heading:
            to.parts.append("~~" if at.state == STRUCK else "")
        elif text.strip():
            to.lost.append((at.state, text))
            to.parts.append(" " if at.state == STRUCK else "")

    def _table(self, at: _Node) -> None:
        given = at.node.attributes or {}
        sheet = given.get("data-sheet") or ""
        headings = [] if sheet else [title for _, title in sorted(self._headings.items())]
        rows: list[Row] = []
        heads = 0
        self._sheet = sheet
        for part in self._children(at):
            below: dict[int, tuple[int, Cell]] = {}
            if part.node.tag == "caption":
                text = _Text()
                self._collect(part, text, 0, heading=True)
                headings.append(text.cell(self._span(part.node)).line)
            for line in self._children(part):
                if line.node.tag == "tr" and (row := self._row(line, below)):
                    heads += part.node.tag == "thead" and len(rows) == heads
                    rows.append(row)
        if table := table_of(rows, heads, tuple(filter(None, headings)), lost=at.state, sheet=sheet):
            self.tables.append(table)

    def _row(self, at: _Node, below: dict[int, tuple[int, Cell]]) -> Row | None:
        """A row with the cells that begin in a row above, which `below` holds with the number of rows they still span."""
        above = dict(below)
        below.clear()
        cells: list[Cell] = []

        def fill(until: Callable[[], bool]) -> None:
            while until():
                left, cell = above.pop(len(cells), (0, Cell("", self._span(at.node))))
                if left > 1:
                    below[len(cells)] = (left - 1, cell)
                cells.append(cell)

        anchor = (at.node.attributes or {}).get("id") or ""
        for child in self._children(at):
            if child.node.tag not in ("td", "th"):
                continue
            text, given = _Text(), child.node.attributes or {}
            self._collect(child, text, 0)
            cell = text.cell(self._span(child.node))
            for link in child.node.css("a[id]") if not anchor else ():
                anchor = anchor or link.attributes.get("id") or ""
            for _ in range(_number(given.get("colspan"))):
                fill(lambda: len(cells) in above)
                if (rows := _number(given.get("rowspan"))) > 1:
                    below[len(cells)] = (rows - 1, cell)
                cells.append(cell)
        fill(lambda: bool(above) and len(cells) <= max(above))
        return Row(cells=tuple(cells), anchor=anchor) if cells else None

    def _span(self, node: Any) -> Span:
        place = (node.attributes or {}).get(_PLACE) or ""
        line, column = map(int, place.split(",")) if _PLACED.fullmatch(place) else (1, 1)
        path = f"{self._path} [{self._sheet}]" if self._sheet else self._path
        return Span(path=path, line=line, column=column, end_line=line, end_column=column + 4)


def _text_of(node: Any) -> str:
    return (node.text_content or "").replace("\n", " ")


def _picture(node: Any) -> str:
    """The meaning of a picture, or its element; empty for an element that is none."""
    tag, given = node.tag, node.attributes or {}
    if tag == "input" and given.get("type") == "checkbox":
        return "checked" if "checked" in given else "unchecked"
    if tag == "svg" and (title := node.css_first("title")) is not None:
        return str(title.text(strip=True) or tag)
    named = next((given[name] for name in _NAMED if given.get(name)), "")
    if _PICTURES.fullmatch(tag):
        return str(named or tag)
    if _INLINE.fullmatch(tag) or _BLOCKS.fullmatch(tag):
        icon = tag in ("i", "span") and not node.text(strip=True) and _ICON.search(given.get("class") or "")
        return str(named or given["class"]) if icon else ""
    filled = node.text(strip=True) or node.css_first("img, svg, input")
    shown: str = (given.get("icon") or given.get("name") or "") if filled else named or tag
    return shown  # an element of the page's own


def _styles(sheet: str) -> dict[str, str]:
    """The classes, ids and elements that a style sheet hides or strikes out."""
    rules = _RULE.findall(_ONLY_SOMETIMES.sub("", sheet))
    names = ((selector.strip().split()[-1:], _style(rule)) for many, rule in rules for selector in many.split(","))
    return {name: state for last, state in names if state for name in last if _SELECTED.fullmatch(name)}


def _style(rule: str) -> str:
    rule = "".join(rule.lower().split())
    return HIDDEN if _HIDES.search(rule) else STRUCK if "line-through" in rule else ""


def _number(text: str | None) -> int:
    return 1 if not text or not text.isdecimal() else min(int(text.lstrip("0")[:4] or 1_000), 1_000)
