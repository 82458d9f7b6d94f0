"""Pages that `privtab docs` made: the policy that they carry, and what somebody edited."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import zip_longest

from privtab.base import Diagnostic, FindingKind, Severity, SourceFile
from privtab_pages.shapes import heading
from privtab_pages.tables import Cell, Table

EDITED = FindingKind("T103", "edited-page", Severity.ERROR)
COMPARED = 4
"""The number of columns of a page's rows that say what the policy does: the operation, its condition, the smallest sets, effects."""
_OWN_MARKDOWN = re.compile(r"^(?P<fence>`{3,})yaml privtab\n(?P<policy>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_OWN_HTML = re.compile(r'<pre id="policy">(?P<policy>.*?)</pre>', re.DOTALL)
_EDIT = "pages are made from policies: change the policy that the page carries, or the one it was made from"


def own_policy(source: SourceFile) -> str | None:
    """The policy that a page of `privtab docs` carries; None for other pages and for pages made from bundles."""
    pattern = _OWN_HTML if source.path.endswith((".html", ".htm")) else _OWN_MARKDOWN
    found = pattern.search(source.text)
    return None if found is None else unescape(found["policy"]) if pattern is _OWN_HTML else found["policy"]


def edited(given: Sequence[Table], made: Sequence[Table]) -> Iterator[Diagnostic]:
    """The cells of a page that are not as its policy makes them; `made`: the tables of the page made again."""
    rows = {row.anchor: row for table in made for row in table.rows if row.anchor}
    seen = set()
    shown = [table for table in given if not table.lost and any(row.anchor for row in table.rows)]
    for row in (row for table in shown for row in table.rows):
        expected = rows.get(row.anchor)
        if expected is None or row.anchor in seen:
            name = row.anchor or row.cells[0].line
            message = f"the policy of this page has no {'other ' * (row.anchor in seen)}row `{name}`"
            yield EDITED.at(row.cells[0].span, message, _EDIT)
            continue
        seen.add(row.anchor)
        empty = Cell("", row.cells[0].span)
        for cell, other in zip_longest(row.cells[:COMPARED], expected.cells[:COMPARED], fillvalue=empty):
            if cell.text != other.text:
                message = f"the page says `{cell.line}`, its policy `{other.line}`"
                yield EDITED.at(cell.span, message, _EDIT)
    for table in given:
        if table not in shown and {"operation", "requires"} <= {*map(heading, table.header.cells)}:
            yield EDITED.at(table.first.span, "the policy of this page has no such table", _EDIT)
    for anchor in (anchor for anchor in rows if anchor not in seen):
        top = (given or made)[0].first.span
        yield EDITED.at(top, f"the row `{anchor}` of the policy is not on the page", _EDIT)
