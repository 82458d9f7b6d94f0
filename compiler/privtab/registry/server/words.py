"""Texts of others, as they are kept and shown: short, whole characters, and nothing that a terminal would obey."""

from __future__ import annotations

import re
from typing import Any

LONGEST = 100
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def fit(text: str, longest: int = LONGEST) -> str:
    r"""A text without control characters and halves of characters, cut to a length.

    >>> fit("\x1b[31mred\ud800")
    '\ufffd[31mred\ufffd'
    """
    return _UNFIT.sub("\ufffd", text[:longest])


def texts(value: Any) -> dict[str, str]:
    """Labels, as far as they are some."""
    if not isinstance(value, dict):
        return {}
    return {fit(str(name)): fit(text) for name, text in list(value.items())[:50] if isinstance(text, str)}
