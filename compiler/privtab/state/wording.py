"""A row of a state as a sentence, as `explain` and `state diff` print it: `SELECT granted to role:analyst at schema:hive/sales`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from privtab.moments import WINDOW

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


def row_text(table: str, row: Mapping[str, str]) -> str:
    """The sentence for a row; an optional column without a text has no key."""
    window = " ".join(f"{name} {row[name]}" for name in WINDOW if name in row)
    return _SENTENCES[table](row) + (f", {window}" if window else "")
