"""An HTTP proxy that records requests and answers them itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@contextmanager
def proxy(answer: Callable[[bytes], bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Run a proxy that answers request heads by a function; yields its address and the list of heads received."""
    listener = socket.create_server(("127.0.0.1", 0))
    heads: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                heads.append(connection.recv(65536))
                connection.sendall(answer(heads[-1]))

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}", heads
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove proxies from the environment."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def use_proxy(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Set a proxy for all protocols in the environment."""
    without_proxies(monkeypatch)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://{where}")
        monkeypatch.setenv(name.upper(), f"http://{where}")
