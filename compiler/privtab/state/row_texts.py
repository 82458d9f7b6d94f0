"""Rows of a state as texts: as a sentence, and as YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from privtab.base.moments import WINDOW_COLUMNS
from privtab.state.raw import TABLE_COLUMNS

_PLAIN = re.compile(r"[A-Za-z][\w/.:%+-]*[\w]", re.ASCII)

_SENTENCES: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "members": lambda row: f"{row['user']} is a member of {row['of']}",
    "memberships": lambda row: f"{row['user']} is in group:{row['group']}",
    "assignments": lambda row: (
        f"{row['principal'].removeprefix('user:')} holds role:{row['role']}"
        + (f" within {row['scope']}" if "scope" in row else "")
    ),
    "grants": lambda row: (
        f"{row['privilege']} {'denied' if row['effect'] == 'deny' else 'granted'} to {row['grantee']} at {row['entity']}"
    ),
    "owners": lambda row: f"{row['entity']} is owned by {row['owner']}",
    "service_admins": lambda row: f"{row['user']} is a service admin",
    "attributes": lambda row: f"{row['attribute']} of {row.get('entity') or row['user']} is {row['value']}",
    "entities": lambda row: (
        f"{row['entity']} lies in {row['parent']}" + (f" as {row['name']}" if "name" in row else "")
    ),
}


def row_sentence(table: str, row: Mapping[str, str]) -> str:
    """A row as a sentence, `SELECT granted to role:analyst at schema:hive/sales`; an optional column without a text has no key.

    >>> row_sentence("memberships", {"user": "ann", "group": "hr"})
    'ann is in group:hr'
    """
    window = " ".join(f"{name} {row[name]}" for name in WINDOW_COLUMNS if name in row)
    return _SENTENCES[table](row) + (f", {window}" if window else "")


def row_text(table: str, cells: Mapping[str, str | None]) -> str:
    """A row with its columns in order, as YAML reads it.

    >>> row_text("owners", {"owner": "user:a b", "entity": "lake:l"})
    'owners:{entity: lake:l, owner: "user:a b"}'
    """
    order = {name: number for number, name in enumerate(TABLE_COLUMNS[table].all)}
    named = sorted(cells.items(), key=lambda cell: order.get(cell[0], len(order)))
    written = ", ".join(f"{name}: {_cell(text or '')}" for name, text in named)
    return f"{table}:{{{written}}}"


def _cell(text: str) -> str:
    """A cell as YAML reads it: in quotes where it is not plain."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
