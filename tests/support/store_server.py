"""A real `privtab serve` process over a store, with a token for each user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests
from authzen_server import Server, start

from privtab_server.store.server.openapi import PREFIX

EVERYTHING = "read write evaluate search"
"""The scopes of a token that is good for questions about everybody, too."""


def token(user: str) -> str:
    return f"token-of-{user}-0123456789"


def write_tokens(path: Path, users: Sequence[str], scopes: str = "") -> Path:
    path.write_text("".join(f"{user} {token(user)} {scopes}\n" for user in users), encoding="utf-8")
    return path


def serve_store(folder: Path, arguments: Sequence[str | Path]) -> Server:
    """Serve the store that comes first."""
    return start([f"store:{arguments[0]}", "--quiet", *arguments[1:]], folder)


def ask(
    server: Server, method: str, path: str, user: str | None, body: Any = None, **headers: str
) -> requests.Response:
    """Send a request as a user to a path below the store's prefix, or to one that begins with `//`."""
    if user is not None:
        headers["Authorization"] = f"Bearer {token(user)}"
    url = server.url + (path[1:] if path.startswith("//") else PREFIX + path)
    more: dict[str, Any] = {} if body is None else {"json": body}
    return server.session.request(method, url, headers=headers, timeout=20, **more)
