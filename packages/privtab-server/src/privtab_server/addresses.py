"""Addresses of servers and stores, and bearer tokens, as options of commands give the addresses and the tokens."""

from __future__ import annotations

import os
import re

TOKEN_VARIABLE = "PRIVTAB_TOKEN"  # noqa: S105  (the name of a variable)


STORE = "store:"
"""The beginning of the address of a store."""


def is_http(url: str) -> bool:
    """Return whether an address is the URL of a server, not a folder or a database."""
    return url.startswith(("http://", "https://"))


def with_slashes(text: str) -> str:
    """An address with the slash of `://` that a Path has lost.

    >>> with_slashes("postgresql:/db/sales")
    'postgresql://db/sales'
    """
    return re.sub(r"^([a-z0-9+]{2,}):/(?=[^/])", r"\1://", text)


def token_or_variable(token: str | None = None) -> str | None:
    """The token of an option, else that of the environment."""
    return token or os.environ.get(TOKEN_VARIABLE) or None
