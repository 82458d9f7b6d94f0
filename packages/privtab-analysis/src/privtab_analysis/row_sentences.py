"""Rows of a state as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from privtab.base import WINDOW_COLUMNS

_EFFECTS = {"allow": "granted", "deny": "denied"}


def _done(effect: str) -> str:
    """Name what a grant does; an effect that nobody checked stands as it is written."""
    return _EFFECTS.get(effect, f"`{effect}`")


_SENTENCES: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "members": lambda row: f"{row['user']} is a member of {row['of']}",
    "memberships": lambda row: f"{row['user']} is in group:{row['group']}",
    "assignments": lambda row: (
        f"{row['principal'].removeprefix('user:')} holds role:{row['role']}"
        + (f" within {row['scope']}" if "scope" in row else "")
    ),
    "grants": lambda row: f"{row['privilege']} {_done(row['effect'])} to {row['grantee']} at {row['entity']}",
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
