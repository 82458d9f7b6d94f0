"""A row of a state on one line, as commands print and read it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from privtab.state.raw import COLUMNS

_PLAIN = re.compile(r"[A-Za-z][\w/.:%+-]*[\w]", re.ASCII)


def row_text(table: str, cells: Mapping[str, str | None]) -> str:
    """A row with its columns in order, as YAML reads it.

    >>> row_text("owners", {"owner": "user:a b", "entity": "lake:l"})
    'owners:{entity: lake:l, owner: "user:a b"}'
    """
    order = {name: number for number, name in enumerate(COLUMNS[table].all)}
    named = sorted(cells.items(), key=lambda cell: order.get(cell[0], len(order)))
    written = ", ".join(f"{name}: {_cell(text or '')}" for name, text in named)
    return f"{table}:{{{written}}}"


def _cell(text: str) -> str:
    """A cell as YAML reads it: in quotes where it is not plain."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
