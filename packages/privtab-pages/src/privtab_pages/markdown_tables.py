"""A page in Markdown as HTML, whose tables and cells tell their places on the page."""

from __future__ import annotations

import re
from html import escape

from privtab.base import SourceFile
from privtab_pages.html_tables import placed

_BAR = re.compile(r"(?<!\\)\|")
_QUOTED = re.compile(r"[\s>]*(?:(?:[*+-]|\d+[.)])\s+)*")
_LINE = re.compile(r"\r\n|\n|\r")
_DASHES = re.compile(r"^[ >]*(?=[^\n]*\|)(?=[^\n]*-)[|: -]+$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"---[ \t]*\n.*?^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_TABS = re.compile(r"^(?:===|!!!|\?\?\?\+)[^\n]*\n(?:(?: {4}[^\n]*)?\n)+", re.MULTILINE)
"""The indented text of tabs and boxes, which is no code."""
_CUT_OFF = "<table data-place={},1><tr><td data-place={},1>{}</table>"


def markdown_html(source: SourceFile) -> str:
    """A page in GitHub's Markdown as HTML. What looks like a table and is none becomes a table of one cell, so that it is named."""
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import table
    from markdown_it.token import Token

    parser = MarkdownIt("commonmark", {"html": True, "maxNesting": 100}).enable("strikethrough")
    # After the other blocks, as on GitHub: a comment or a heading with bars begins no table.
    parser.block.ruler.before("lheading", "rows", table, {"alt": ["paragraph", "reference"]})
    text = re.sub(_LINE, "\n", source.text)
    front = _FRONT_MATTER.match(text)
    text = "\n" * front[0].count("\n") + text[front.end() :] if front else text
    lines, shown = text.split("\n"), []
    text = re.sub(_TABS, lambda found: re.sub(r"^    ", "", found[0], flags=re.MULTILINE), text)
    row = width = column = 0
    end = -1
    begins: list[int] = []
    for token in parser.parse(text):
        row = token.map[0] if token.map else row
        written = "\n".join(lines[slice(*token.map)]) if token.map and token.type not in ("fence", "table_open") else ""
        cut_off = bool(written) and row == end and "|" in lines[row] and not lines[row].lstrip().startswith("<!--")
        if cut_off or (token.type == "paragraph_open" and _DASHES.search(written)):
            rows = _CUT_OFF.format(row + 1, row + 1, escape(lines[row]))  # rows that people see as text
            shown.append(Token("html_block", "", 0, content=rows))
            end = -1
        match token.type:
            case "table_open" if token.map:
                width, end = 0, token.map[1]
                token.attrSet("data-place", f"{row + 1},1")
            case "tr_open":
                begins, column = _begins(lines[row]), 0
            case "th_open" | "td_open":
                width += token.type == "th_open"
                begin = begins[column] if column < len(begins) else len(lines[row])
                token.attrSet("data-place", f"{row + 1},{begin + 1}")
                column += 1
            case "tr_close":
                more = (
                    f"<td data-place={row + 1},{at + 1}>{escape(lines[row][at:].strip(' |'))}" for at in begins[width:]
                )
                shown.append(Token("html_block", "", 0, content="".join(more)))
            case "html_block":
                token.content = placed(SourceFile.of(source.path, token.content), row)
        shown.append(token)
    return str(parser.renderer.render(shown, parser.options, {}))


def _begins(line: str) -> list[int]:
    """The beginnings of the cells of a row in its line."""
    bars = [bar.start() for bar in _BAR.finditer(line)]
    begins = [bar + 1 for bar in bars]
    if not bars or not _QUOTED.fullmatch(line[: bars[0]]):
        begins.insert(0, 0)
    if bars and len(begins) > 1 and not line[bars[-1] + 1 :].strip():
        begins.pop()
    return [begin + len(line[begin:]) - len(line[begin:].lstrip()) for begin in begins]
