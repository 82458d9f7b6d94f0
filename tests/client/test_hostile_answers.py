"""Hostile bytes in place of answers, thousands of them: each becomes an error or the answer that it is, and none becomes the next one."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hostile_http import GOOD, NEXT, answers
from hypothesis import HealthCheck, given, settings

from privtab.base.errors import DecisionUnavailable, PolicyError
from privtab.client._http import HttpTransport
from privtab.client._sender import Sender, SendError
from privtab.client.aio import AsyncHttpTransport

LIMITS = (0.5, 0.5)


class Server:
    """Answers the first request with given bytes, and each request after that with what comes next."""

    def __init__(self) -> None:
        self.first = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(5)
            request = b""
            while more := connection.recv(65536):
                # A request may come in pieces, and is answered once.
                request += more
                if not request.endswith(b"{}" if request.startswith(b"POST") else b"\r\n\r\n"):
                    continue
                request = b""
                answer, self.first = self.first, GOOD
                connection.sendall(answer)
                if answer is not GOOD:
                    connection.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@contextmanager
def fetching() -> Iterator[Sender]:
    with Sender(timeout=LIMITS, seconds=1.0, largest=100_000) as fetcher:
        yield fetcher


def check_answer(server: Server, answer: bytes) -> None:
    url = f"http://127.0.0.1:{server.port}"
    transport = HttpTransport(url, max_body=100_000)
    server.first = answer
    with suppress(DecisionUnavailable, PolicyError):
        body = transport.post("/v1/data/x", b"{}", LIMITS)
        assert b"200" in answer
        assert body in answer or b"chunked" in answer
    server.first = GOOD
    try:
        body = transport.post("/v1/data/x", b"{}", LIMITS)
    except DecisionUnavailable:
        # The server closed the connection just as it was used again.
        body = transport.post("/v1/data/x", b"{}", LIMITS)
    assert body == NEXT, "nothing of the answer before is in it"
    transport.close()
    server.first = answer
    with fetching() as fetcher, suppress(SendError):
        fetched = fetcher.get(url)
        assert 100 <= fetched.status <= 999
        assert len(fetched.body) <= 100_000


async def one_in_a_loop(server: Server, answer: bytes) -> None:
    transport = AsyncHttpTransport(HttpTransport(f"http://127.0.0.1:{server.port}", max_body=100_000))
    server.first = answer
    with suppress(DecisionUnavailable, PolicyError):
        body = await transport.post("/v1/data/x", b"{}", LIMITS)
        assert b"200" in answer
        assert body in answer or b"chunked" in answer
    server.first = GOOD
    try:
        body = await transport.post("/v1/data/x", b"{}", LIMITS)
    except DecisionUnavailable:
        body = await transport.post("/v1/data/x", b"{}", LIMITS)
    assert body == NEXT, "nothing of the answer before is in it"
    await transport.close()


quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
thorough = settings(max_examples=4_000, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(answer=answers)
def test_no_answer_is_more_than_it_is(server: Server, answer: bytes) -> None:
    check_answer(server, answer)


@pytest.mark.long
def test_no_answer_of_a_minute_is_more_than_it_is(server: Server) -> None:
    ends = time.monotonic() + 60

    @thorough
    @given(answer=answers)
    def spoilt(answer: bytes) -> None:
        if time.monotonic() < ends:
            check_answer(server, answer)

    spoilt()


@quick
@given(answers)
def test_hostile_answers_in_an_event_loop(server: Server, answer: bytes) -> None:
    asyncio.run(one_in_a_loop(server, answer))
