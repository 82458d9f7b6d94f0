"""How to install extras: privtab is on no package index yet, so from a checkout or a wheel. A release changes this file."""

from __future__ import annotations

SOURCE = "."
"""What pip installs, relative to a checkout."""


def how_to_install(*extras: str) -> str:
    """The command that installs extras, for messages.

    >>> how_to_install("compiler", "serve")
    "pip install '.[compiler,serve]' in a checkout of privtab, or with the path of its wheel for the dot"
    """
    return f"pip install '{SOURCE}[{','.join(extras)}]' in a checkout of privtab, or with the path of its wheel for the dot"
