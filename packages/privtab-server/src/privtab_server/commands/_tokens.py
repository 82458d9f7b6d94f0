"""Addresses of servers and bearer tokens, as options of commands give the addresses and the tokens."""

from __future__ import annotations

import os
from pathlib import Path

from privtab.command import read_token

TOKEN_VARIABLE = "PRIVTAB_TOKEN"  # noqa: S105  (the name of a variable)


def is_http(url: str) -> bool:
    """Return whether an address is the URL of a server, not a folder or a database."""
    return url.startswith(("http://", "https://"))


def token_of(path: Path | None) -> str | None:
    """The token in a file, else in the environment."""
    return read_token(path) or os.environ.get(TOKEN_VARIABLE) or None
