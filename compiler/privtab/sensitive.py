"""Which operations are sensitive, by the words of their names."""

from __future__ import annotations

from collections.abc import Collection

DESTRUCTIVE = ("delete", "destroy", "drop", "erase", "purge", "remove", "revoke", "truncate")
"""Words that mark the name of an operation as destructive."""
SENSITIVE = (*DESTRUCTIVE, "grant", "owner", "permissions")
"""The same for operations that destroy something or change who may do what."""


def has_word(operation: str, words: Collection[str]) -> bool:
    """Whether one of the words is in the name of an operation, as `drop` is in `drop_all`."""
    return not set(words).isdisjoint(operation.lower().split("_"))
