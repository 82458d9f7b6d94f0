"""Addresses of servers, bearer tokens and bundles, as options of commands give them."""

from __future__ import annotations

import os
from pathlib import Path

from privtab.base import files
from privtab.base.errors import FileError, UsageError

TOKEN_VARIABLE = "PRIVTAB_TOKEN"  # noqa: S105  (the name of a variable)


def is_http(url: str) -> bool:
    """Whether an address is that of a server, not of a folder or a database."""
    return url.startswith(("http://", "https://"))


def token_in(path: Path | None, option: str = "--token-file") -> str | None:
    """The token in a file. Raises FileError, and UsageError for a file with anything else."""
    if path is None:
        return None
    text = files.secret(path).strip()
    if not text or len(text.split()) != 1:
        raise UsageError(f"`{option} {path}`: it holds one token and nothing else")
    return text


def token_of(path: Path | None) -> str | None:
    """The token in a file, else in the environment."""
    return token_in(path) or os.environ.get(TOKEN_VARIABLE) or None


def read_file(path: Path) -> bytes:
    """Read a file; raises FileError."""
    from privtab.bundle.archive import LARGEST

    if not path.is_dir() and files.problem(path, pipes=False) is not None:
        raise FileError(f"{path}: a bundle is a file, not a pipe or a device")
    try:
        return files.read_content(path, LARGEST)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
