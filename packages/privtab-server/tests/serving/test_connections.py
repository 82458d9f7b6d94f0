"""Connections of nobody: half-open requests, answers that nobody takes, heads that say two things. Both servers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import requests
import uvicorn
from authzen_server import Server, start
from certificates import make
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from privtab_server.registry import Registry
from privtab_server.serving.server import BoundedProtocol, Bounds, listen

Started = Callable[..., Server]


@pytest.fixture(params=["authzen", "registry"])
def started(request: pytest.FixtureRequest, library_files: tuple[Path, Path], tmp_path: Path) -> Iterator[Started]:
    """Starts a server of each kind."""
    running: list[Server] = []

    def serve(*options: str) -> Server:
        if request.param == "authzen":
            what: list[str | Path] = ["--policy", library_files[0], "--state", library_files[1]]
            running.append(start([*what, *options], tmp_path))
        else:
            registry = Registry.open(str(tmp_path / "registry"))
            registry.init()
            running.append(start([f"registry:{registry.url}", *options], tmp_path))
        return running[-1]

    yield serve
    for server in running:
        server.stop()
        assert "Traceback" not in server.log.read_text(), server.log.read_text()


def to(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def all_of(connection: socket.socket) -> bytes:
    """What comes until the server ends the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            found += piece
    return found


@pytest.mark.slow
def test_the_head_of_a_request_has_an_end(started: Started) -> None:
    server = started("--limit", "head=0.5")
    for begins in (b"", b"GET /health HTTP/1.1\r\n", b"G"):
        with to(server) as connection:
            connection.sendall(begins)
            assert all_of(connection).startswith(b"HTTP/1.1 408 ")
    with to(server) as connection:
        # One byte now and then does not help, nor does a whole request before it.
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        begun = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - begun < 15:
                connection.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() - begun < 15


@pytest.mark.slow
def test_a_request_that_takes_its_time_behind_its_head_is_answered(started: Started) -> None:
    server = started("--limit", "head=0.5")
    with to(server) as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n")
        time.sleep(1)
        connection.sendall(b"{}")
        assert connection.recv(65536).startswith(b"HTTP/1.1 4")
    with requests.Session() as session:
        for _ in range(3):
            assert session.get(f"{server.url}/health", timeout=10).ok
            time.sleep(0.7)  # Longer than a head may take: between two requests nobody is in a hurry.


@pytest.mark.slow
def test_half_open_requests_of_one_address_leave_room_for_others(started: Started) -> None:
    """1,020 of them held both servers at 503."""
    server = started("--limit", "connections=20", "--limit", "head=5")
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(to(server)) for _ in range(40)]
        for connection in connections[:20]:
            connection.sendall(b"GET /health HTTP/1.1\r\n")
        for connection in connections[20:]:
            assert b"503" in all_of(connection)
        other = stack.enter_context(socket.socket())
        other.settimeout(10)
        other.bind(("127.0.0.2", 0))
        other.connect(connections[0].getpeername())
        other.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert all_of(other).startswith(b"HTTP/1.1 200 ")
        for connection in connections[:20]:
            assert all_of(connection).startswith(b"HTTP/1.1 408 ")
    assert requests.get(f"{server.url}/health", timeout=10).ok, "who is gone is counted no more"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["/health", "/nothing", "/access/v1/evaluation"])
def test_a_head_says_once_where_its_body_ends(started: Started, target: str) -> None:
    server = started()
    smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    for method in (b"POST", b"GET"):
        with to(server) as connection:
            head = b"%s %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % (method, target.encode(), len(smuggled)) + smuggled)
            answer = all_of(connection)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1") == 1, "what followed is no request"
    assert "/smuggled" not in server.log.read_text()


@pytest.mark.slow
def test_a_handshake_has_an_end(library_files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    files = make(tmp_path / "tls")
    what: list[str | Path] = ["--policy", library_files[0], "--state", library_files[1]]
    server = start([*what, "--tls", f"cert={files.certificate}", "--tls", f"key={files.key}"], tmp_path)
    try:
        with to(server) as connection:
            begun = time.monotonic()
            assert all_of(connection) == b""
            assert time.monotonic() - begun < 19
        context = ssl.create_default_context(cafile=str(files.authority))
        with context.wrap_socket(to(server), server_hostname="localhost") as spoken:
            spoken.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert all_of(spoken).startswith(b"HTTP/1.1 200 ")
    finally:
        server.stop()


@contextlib.contextmanager
def large_answers(bounds: Bounds, size: int) -> Iterator[tuple[str, int]]:
    """A server in this process whose every answer is large."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"x" * size)(scope, receive, send)

    config = uvicorn.Config(app, lifespan="off", log_config=None, http=cast(Any, partial(BoundedProtocol, bounds)))
    server = uvicorn.Server(config)
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.mark.slow
def test_an_unread_answer_is_abandoned_and_a_slow_reader_is_served() -> None:
    size = 20 << 20
    bounds = Bounds(stalled_seconds=0.5)
    with large_answers(bounds, size) as where:
        with socket.create_connection(where, timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            ends = time.monotonic() + 20
            time.sleep(0.2)
            while bounds.open:
                assert time.monotonic() < ends
                time.sleep(0.05)
        with socket.create_connection(where, timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            taken = 0
            while piece := connection.recv(1 << 20):
                taken += len(piece)
                time.sleep(0.1)
        assert taken > size
    assert not bounds.open


def test_a_body_beyond_the_limit_is_refused_with_a_reason(started: Started) -> None:
    server = started()
    path = "/logs" if requests.get(f"{server.url}/fleet", timeout=20).ok else "/access/v1/evaluation"
    for size in (5 << 20, 40 << 20):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        with to(server) as connection:
            connection.sendall(head.encode())
            if size < 8 << 20:
                connection.sendall(b" " * size)
            answer = all_of(connection)
        assert b" 413 " in answer.splitlines()[0]
        assert b"bytes at most" in answer
