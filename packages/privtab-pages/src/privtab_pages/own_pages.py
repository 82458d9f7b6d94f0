"""Pages that `privtab docs` made: the policy that they carry, and what somebody edited."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import zip_longest

from privtab.base import Diagnostic, FindingKind, Severity, SourceFile
from privtab_pages.shapes import heading
from privtab_pages.tables import Cell, Table

EDITED = FindingKind("T103", "edited-page", Severity.ERROR)
BESIDE = frozenset(("source", "proved"))
"""The columns of a page's rows that do not say what the policy does."""
MATRIX = "Roles"
"""The heading above the matrix of the roles that the policy declares."""
_OWN_MARKDOWN = re.compile(r"^(?P<fence>`{3,})yaml privtab\n(?P<policy>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_OWN_HTML = re.compile(r'<pre id="policy">(?P<policy>.*?)</pre>', re.DOTALL)
_EDIT = "pages are made from policies: change the policy, and make the page again using `privtab docs`"


def own_policy(source: SourceFile) -> str | None:
    """The policy that a page of `privtab docs` carries; None for other pages and for pages made from bundles."""
    pattern = _OWN_HTML if source.path.endswith((".html", ".htm")) else _OWN_MARKDOWN
    found = pattern.search(source.text)
    return None if found is None else unescape(found["policy"]) if pattern is _OWN_HTML else found["policy"]


def edited(given: Sequence[Table], made: Sequence[Table]) -> Iterator[Diagnostic]:
    """The cells of a page that are not as a policy makes them; `made`: the tables of the page that the policy makes."""
    rows = {name: cells for table in made for name, cells in _rows(table)}
    seen = set()
    shown = [table for table in given if not table.lost and any(True for _ in _rows(table))]
    for name, cells in (row for table in shown for row in _rows(table)):
        expected = rows.get(name)
        if expected is None or name in seen:
            message = f"the policy of this page has no {'other ' * (name in seen)}row `{name}`"
            yield EDITED.at(cells[0].span, message, _EDIT)
            continue
        seen.add(name)
        for cell, other in zip_longest(cells, expected, fillvalue=Cell("", cells[0].span)):
            if cell.text != other.text:
                message = f"the page says `{cell.line}`, the policy `{other.line}`"
                yield EDITED.at(cell.span, message, _EDIT)
    for table in given:
        if table not in shown and {"operation", "requires"} <= {*map(heading, table.header.cells)}:
            yield EDITED.at(table.first.span, "the policy of this page has no such table", _EDIT)
    for name in (name for name in rows if name not in seen):
        top = (given or made)[0].first.span
        yield EDITED.at(top, f"the row `{name}` of the policy is not on the page", _EDIT)


def _rows(table: Table) -> Iterator[tuple[str, list[Cell]]]:
    """The cells that say what the policy does, by the names of rows: of a table of operations, or of the matrix of roles with its header."""
    times = Counter[str]()
    if table.headings[-2:-1] == (MATRIX,):
        for row in (table.header, *table.rows):
            title = row.cells[0].line
            times[title] += 1
            yield f"{table.heading}/{title}{f' {times[title]}' if times[title] > 1 else ''}", [*row.cells]
    elif any(row.anchor for row in table.rows):
        columns = [at for at, cell in enumerate(table.header.cells) if heading(cell) not in BESIDE]
        for row in table.rows:
            yield row.anchor or row.cells[0].line, [row.cell(at) for at in columns]
