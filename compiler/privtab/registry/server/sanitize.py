"""Sanitize untrusted text for storage and display: short, valid characters, no terminal control sequences."""

from __future__ import annotations

from typing import Any

from privtab.printable import printable

LONGEST = 100


def sanitize(text: str, longest: int = LONGEST, *, one_line: bool = True) -> str:
    r"""Printable text of at most `longest` characters.

    >>> print(sanitize("\x1b[31mred\ud800"))
    \x1b[31mred\ud800
    """
    return printable(text[:longest], one_line=one_line)[:longest]


def valid_labels(value: Any) -> dict[str, str]:
    """The valid labels in a value."""
    if not isinstance(value, dict):
        return {}
    return {sanitize(str(name)): sanitize(text) for name, text in list(value.items())[:50] if isinstance(text, str)}
