"""Connections that are kept: what came beside an answer is never the answer to the next question."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import failing_servers
import pytest
import requests
from failing_servers import Authority, free_port, opa_process, reply, wait_for

from privtab import Client, DecisionUnavailable, PolicyError
from privtab.client import AsyncClient, HttpTransport, _http
from privtab.client.aio import AsyncHttpTransport

LIMITS = (2.0, 2.0)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


def in_one_piece(connection: socket.socket) -> None:
    connection.sendall(reply('{"result": false}') + reply('{"result": true}'))


def in_pieces_with_more(connection: socket.socket) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.sendall(chunked + b'11\r\n{"result": false}\r\n0\r\n\r\n' + reply('{"result": true}'))


def no_content_and_then_some(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    time.sleep(0.03)
    connection.sendall(reply('{"result": true}'))


@pytest.mark.parametrize("answer", [in_one_piece, in_pieces_with_more, no_content_and_then_some])
@pytest.mark.parametrize("kind", ["own", "session", "async"])
def test_bytes_after_an_answer_are_never_the_next_one(
    kind: str, answer: Callable[[socket.socket], None], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"retries": 0, "breaker_failures": 0, "batch_window": "off"}

    async def ask(url: str) -> list[bool]:
        async with AsyncClient(url, **settings) as client:
            return [await outcome(client.check(failing_servers.READ)) for _ in range(4)]

    async def outcome(answer: Any) -> bool:
        try:
            return bool(await answer)
        except PolicyError:
            return False

    def check(client: Client) -> bool:
        try:
            return client.check(failing_servers.READ)
        except PolicyError:
            return False

    with failing_servers.scripted(tmp_path, answer).running() as server:
        if kind == "async":
            assert not any(asyncio.run(ask(server.url)))
            return
        del settings["batch_window"]
        session = requests.Session() if kind == "session" else None
        with Client(server.url, session=session, **settings) as client:
            assert not any(check(client) for _ in range(4))


def test_an_early_hint_is_no_answer_and_what_it_hints_at_not_the_next_one(tmp_path: Path) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.03)
        connection.sendall(reply('{"result": true}'))

    with failing_servers.scripted(tmp_path, answer).running() as server:
        for session in (None, requests.Session()):
            with Client(server.url, session=session) as client:
                for _ in range(4):
                    with pytest.raises(PolicyError, match="answered 103"):
                        client.check(failing_servers.READ)


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 16\r\nContent-Length: 33",
        "Content-Length: 16, 33",
        "Content-Length: 1_6",
        "Content-Length: -16",
        "Content-Length: 16\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "no header\r\nContent-Length: 16",
        "Content-Length : 16",
    ],
)
def test_a_head_that_leaves_open_where_the_answer_ends_is_no_answer(head: str, tmp_path: Path) -> None:
    def answer(connection: socket.socket) -> None:
        content = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{head}\r\n\r\n"
        connection.sendall(content.encode() + b'{"result":true}\n{"result":false}\n')
        connection.shutdown(socket.SHUT_WR)

    with failing_servers.scripted(tmp_path, answer).running() as server, Client(server.url, retries=0) as client:
        with pytest.raises(DecisionUnavailable):
            client.check(failing_servers.READ)
        assert server.settled()


@needs_openssl
def test_bytes_buffered_by_tls_are_seen(tmp_path: Path) -> None:
    """A record that holds an answer and more is off the socket with its first byte."""
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.sign("opa")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    near, far = socket.socketpair()
    with near, far:
        sockets: list[ssl.SSLSocket] = []

        def serve() -> None:
            sockets.append(context.wrap_socket(far, server_side=True))
            sockets[0].sendall(b"one" + b"more")

        server = threading.Thread(target=serve)
        server.start()
        connection = _http._Connection(trusting.wrap_socket(near, server_hostname="127.0.0.1"))
        assert connection._socket.recv(3) == b"one"
        server.join()
        assert not connection.silent()


def two_answers_at_once(context: ssl.SSLContext, connection: socket.socket) -> None:
    """Answer each request with two records of TLS in one segment, a no and a yes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)

    def step(act: Callable[[], Any]) -> Any:
        while True:
            try:
                done = act()
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65536) or b"end")
            else:
                connection.sendall(outgoing.read())
                return done

    with connection, contextlib.suppress(OSError):
        step(tls.do_handshake)
        while step(lambda: tls.read(65536)):
            tls.write(reply('{"result": false}'))
            tls.write(reply('{"result": true}'))
            connection.sendall(outgoing.read())


@needs_openssl
def test_a_record_of_tls_that_follows_is_never_the_next_answer(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("opa"))
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                arguments = (context, listener.accept()[0])
                threading.Thread(target=two_answers_at_once, args=arguments, daemon=True).start()

    async def ask(transport: AsyncHttpTransport) -> list[bytes]:
        found = [await transport.get("/v1/data/x", LIMITS) for _ in range(4)]
        await transport.close()
        return found

    threading.Thread(target=serve, daemon=True).start()
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    with listener:
        own = HttpTransport(url, verify=str(authority.certificate))
        assert [own.get("/v1/data/x", LIMITS) for _ in range(4)] == [b'{"result": false}'] * 4
        own.close()
        assert (
            asyncio.run(ask(AsyncHttpTransport(HttpTransport(url, verify=str(authority.certificate)))))
            == [b'{"result": false}'] * 4
        )
        listener.shutdown(socket.SHUT_RDWR)


@needs_openssl
def test_a_tls_connection_of_the_event_loop_is_kept(tmp_path: Path, opa_binary: Path) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.sign("opa")
    port = free_port()
    arguments = [f"--addr=https://127.0.0.1:{port}", f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"]
    url, verify = f"https://127.0.0.1:{port}", str(authority.certificate)

    async def ask() -> int:
        inner = HttpTransport(url, verify=verify)
        transport = AsyncHttpTransport(inner)
        streams = set()
        for _ in range(5):
            await transport.get("/health", LIMITS)
            streams |= {id(connection) for connection in inner._idle}
        await transport.close()
        return len(streams)

    with opa_process(opa_binary, tmp_path / "opa.log", *arguments), Client(url, verify=verify, retries=0) as client:
        wait_for(client.health)
        assert asyncio.run(ask()) == 1


def test_a_connection_of_the_event_loop_is_kept(tmp_path: Path) -> None:
    async def ask(url: str) -> None:
        async with AsyncClient(url) as client:
            for _ in range(5):
                assert await client.check(failing_servers.READ)
                assert server.open == 1

    with failing_servers.scripted(tmp_path, reply('{"result": true}')).running() as server:
        asyncio.run(ask(server.url))
