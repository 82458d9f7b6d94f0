"""Addresses of servers and bearer tokens, as options of commands give the addresses and the tokens."""

from __future__ import annotations

import os

TOKEN_VARIABLE = "PRIVTAB_TOKEN"  # noqa: S105  (the name of a variable)


def is_http(url: str) -> bool:
    """Return whether an address is the URL of a server, not a folder or a database."""
    return url.startswith(("http://", "https://"))


def token_or_variable(token: str | None = None) -> str | None:
    """The token of an option, else that of the environment."""
    return token or os.environ.get(TOKEN_VARIABLE) or None
