"""Texts of others, as they are kept and shown: short, whole characters, and nothing that a terminal would obey."""

from __future__ import annotations

from typing import Any

from privtab.printable import printable

LONGEST = 100


def sanitize(text: str, longest: int = LONGEST, *, one_line: bool = True) -> str:
    r"""A printable text of at most so many characters.

    >>> print(sanitize("\x1b[31mred\ud800"))
    \x1b[31mred\ud800
    """
    return printable(text[:longest], one_line=one_line)[:longest]


def texts(value: Any) -> dict[str, str]:
    """Labels, as far as they are some."""
    if not isinstance(value, dict):
        return {}
    return {sanitize(str(name)): sanitize(text) for name, text in list(value.items())[:50] if isinstance(text, str)}
