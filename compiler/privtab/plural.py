"""Numbers with their nouns."""

from __future__ import annotations

from collections.abc import Mapping


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 policy`, `2 policies`, `1,000 grants`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def row_counts(rows: Mapping[str, int]) -> str:
    """The number of rows in each table of a state.

    >>> row_counts({"service_admins": 3, "entities": 1})
    '3 service admins, 1 entity'
    """
    words = ((table.replace("_", " "), number) for table, number in rows.items())
    return ", ".join(count(number, "entity" if word == "entities" else word[:-1], word) for word, number in words)
