"""The default transport: connections are kept and never mixed up, sockets and proxies of every kind, tokens that change."""

from __future__ import annotations

import asyncio
import pickle
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import failing_servers
import pytest
import requests
from failing_servers import Authority, free_port, opa_process, reply, wait_for, write_bundles
from proxies import proxy, without_proxies

from privtab import Client, DecisionUnavailable, PolicyError, UsageError, connect
from privtab.client import AsyncClient, HttpTransport, _http
from privtab.client._address import Token, parse
from privtab.engines.opa.server import OpaServer

LIMITS = (2.0, 2.0)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


async def check_async(url: str, **settings: Any) -> bool:
    async with AsyncClient(url, **settings) as client:
        return await client.check(failing_servers.READ)


def check_both(url: str, **settings: Any) -> tuple[bool, bool]:
    """One check by each client."""
    with Client(url, **settings) as client:
        return client.check(failing_servers.READ), asyncio.run(check_async(url, **settings))


# --- unix sockets ---


@pytest.fixture
def opa_socket(tmp_path_factory: pytest.TempPathFactory, opa_binary: Path) -> Iterator[Path]:
    # A socket's path may have some 100 characters.
    folder = tmp_path_factory.mktemp("s")
    path = folder / "o.sock"
    with opa_process(opa_binary, folder / "log", f"--addr=unix://{path}", "--bundle", *write_bundles(folder)):
        with Client(f"unix:{path}", retries=0) as probe:
            wait_for(lambda: path.exists() and probe.health())
        yield path


def test_a_unix_socket_is_used_as_any_other_address(opa_socket: Path) -> None:
    encoded = str(opa_socket).replace("/", "%2F")
    for url in (f"unix:{opa_socket}", f"unix://{opa_socket}", f"http+unix://{encoded}"):
        assert check_both(url) == (True, True)
    with connect(f"unix:{opa_socket}") as client:
        assert client.check_many([failing_servers.READ, failing_servers.OTHER]) == [True, False]
        assert client.visible("ann", "list", "dataset", failing_servers.ITEMS) == failing_servers.ITEMS
        assert str(opa_socket) in repr(client)


# --- connections ---


def test_an_answer_to_no_question_is_never_taken_for_one(tmp_path: Path) -> None:
    yes, no = reply('{"result": true}'), reply('{"result": false}')
    for later in (0.0, 0.02):
        rest = [no]

        def answer(connection: socket.socket, rest: list[bytes] = rest, later: float = later) -> None:
            if not rest:
                connection.sendall(no)
                return
            rest.pop()
            if later:
                connection.sendall(no)
                time.sleep(later)
                connection.sendall(yes)
            else:
                connection.sendall(no + yes)

        with failing_servers.scripted(tmp_path, answer).running() as server, Client(server.url) as client:
            assert not client.check(failing_servers.READ)
            time.sleep(0.1)
            for _ in range(3):
                assert not client.check(failing_servers.READ)


def test_idle_connections_are_bounded(tmp_path: Path) -> None:
    gate = threading.Barrier(6)

    def answer(connection: socket.socket) -> None:
        gate.wait(5)
        connection.sendall(reply('{"result": true}'))

    with failing_servers.scripted(tmp_path, answer).running() as server, Client(server.url, pool_size=2) as client:
        threads = [threading.Thread(target=client.check, args=(failing_servers.READ,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until = time.monotonic() + 3
        while server.open > 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert server.open == 2
        client.close()
        assert server.settled()


@needs_openssl
def test_a_tls_connection_is_kept(tmp_path: Path, opa_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.sign("opa")
    client_certificate, client_key = authority.sign("driver")
    port = free_port()
    arguments = [f"--addr=https://127.0.0.1:{port}", f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"]
    arguments += [f"--tls-ca-cert-file={authority.certificate}", "--authentication=tls"]
    arguments += ["--bundle", *map(str, write_bundles(tmp_path))]
    url = f"https://127.0.0.1:{port}"
    settings: dict[str, Any] = {
        "verify": str(authority.certificate),
        "cert": (str(client_certificate), str(client_key)),
    }
    opened: list[object] = []

    class Counted(_http._Connection):
        def __init__(self, opening: socket.socket) -> None:
            opened.append(opening)
            super().__init__(opening)

    with opa_process(opa_binary, tmp_path / "opa.log", *arguments):
        with Client(url, **settings) as client:
            wait_for(client.health)
            client.close()
            monkeypatch.setattr(_http, "_Connection", Counted)
            assert all(client.check(failing_servers.READ) for _ in range(5))
            assert len(opened) == 1
        monkeypatch.undo()
        assert check_both(url, **settings) == (True, True)
        with (
            Client(url, verify=str(authority.certificate), retries=0) as nobody,
            pytest.raises(DecisionUnavailable),
        ):
            nobody.check(failing_servers.READ)


def test_missing_certificates_are_reported_at_once(tmp_path: Path) -> None:
    for settings in ({"verify": str(tmp_path / "none.pem")}, {"cert": str(tmp_path / "none.pem")}):
        for kind in (Client, AsyncClient):
            with pytest.raises(UsageError, match="could be read"):
                kind("https://127.0.0.1:1", **settings)  # type: ignore[arg-type]


def test_a_transport_can_be_pickled(tmp_path: Path) -> None:
    with failing_servers.scripted(tmp_path, reply('{"result": true}')).running() as server:
        transport = HttpTransport(server.url, pool_size=3)
        copy = pickle.loads(pickle.dumps(transport))  # noqa: S301  (our own bytes)
        assert copy.post("/x", b"{}", LIMITS) == transport.post("/x", b"{}", LIMITS) == b'{"result": true}'
        copy.close()
        transport.close()


# --- addresses ---


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://opa", "opa"),
        ("http://opa:80/", "opa"),
        ("https://opa:8443", "opa:8443"),
        ("https://opa", "opa"),
        ("http://[::1]:8181", "[::1]:8181"),
        ("unix:/run/opa.sock", "localhost"),
    ],
)
def test_addresses(url: str, authority: str) -> None:
    assert parse(url).authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "opa:8181",
        "http://opa:port",
        "http://opa/a b",
        "http://opa\r\nX: y",
        "unix:",
        "http+unix://",
        "http://u:p4ss@opa",
    ],
)
def test_invalid_addresses(url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(UsageError) as caught:
            kind(url)
        assert "p4ss" not in str(caught.value)


def test_a_path_before_the_api_is_kept(tmp_path: Path) -> None:
    seen: list[str] = []

    @contextmanager
    def recording() -> Iterator[str]:
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            for _ in range(2):
                connection, _address = listener.accept()
                with connection:
                    seen.append(connection.recv(65536).split(b"\r\n")[0].decode())
                    connection.sendall(reply("{}", "200 OK", "Connection: close"))

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/opa/"
        listener.close()

    with recording() as url:
        HttpTransport(url).post("/v1/data/x", b"{}", LIMITS)
        HttpTransport(url).get("/health", LIMITS)
    assert seen == ["POST /opa/v1/data/x HTTP/1.1", "GET /opa/health HTTP/1.1"]


# --- proxies ---


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    without_proxies(monkeypatch)
    return monkeypatch


def test_a_proxy_of_the_environment_gets_its_own_credentials(no_proxies: pytest.MonkeyPatch) -> None:
    with proxy(lambda _: reply("{}", "200 OK", "Connection: close")) as (where, heads):
        no_proxies.setenv("http_proxy", f"http://us%65r:pass@{where}")
        transport = HttpTransport("http://opa.invalid:8181", token="t0ken")  # noqa: S106  (of a test)
        assert transport.post("/v1/data/x", b"{}", LIMITS) == b"{}"
        no_proxies.setenv("no_proxy", "opa.invalid")
        with pytest.raises(DecisionUnavailable):
            HttpTransport("http://opa.invalid:8181").post("/v1/data/x", b"{}", LIMITS)
    (head,) = heads
    assert head.startswith(b"POST http://opa.invalid:8181/v1/data/x HTTP/1.1\r\nHost: opa.invalid:8181\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz\r\n" in head
    assert b"Authorization: Bearer t0ken\r\n" in head


def test_https_goes_through_a_tunnel(no_proxies: pytest.MonkeyPatch) -> None:
    with proxy(lambda _: b"HTTP/1.1 403 Forbidden\r\n\r\n") as (where, heads):
        no_proxies.setenv("https_proxy", f"http://user:pass@{where}")
        with pytest.raises(DecisionUnavailable, match="403"):
            HttpTransport("https://opa.invalid", token="t0ken").get("/health", LIMITS)  # noqa: S106  (of a test)
    (head,) = heads
    assert head.startswith(b"CONNECT opa.invalid:443 HTTP/1.")
    assert b"Basic dXNlcjpwYXNz" in head
    assert b"t0ken" not in head


def test_a_proxy_of_an_unsupported_kind_is_reported(no_proxies: pytest.MonkeyPatch) -> None:
    no_proxies.setenv("all_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(UsageError, match="socks5 proxy"):
        HttpTransport("http://opa.invalid:8181")
    HttpTransport("http://127.0.0.1:8181")


# --- tokens ---


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privtab.client._address._CHECK_SECONDS", 0.0)
    path = tmp_path / "token"
    path.write_text("first\n")
    token = Token(None, str(path))
    assert token.value() == "first"
    path.write_text("the second\n")  # not a token: the last good one stays
    assert token.value() == "first"
    path.write_text("second-one\n")
    assert token.value() == "second-one"
    path.unlink()
    assert token.value() == "second-one"
    assert "second" not in repr(token)
    with pytest.raises(UsageError, match="no token could be read"):
        Token(None, str(tmp_path / "none"))


def test_a_token_that_changes_opens_an_opa(tmp_path: Path, opa_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privtab.client._address._CHECK_SECONDS", 0.0)
    authz = tmp_path / "authz.rego"
    authz.write_text(
        'package system.authz\n\ndefault allow := false\n\nallow if input.identity == "right"\n\n'
        'allow if input.path == ["health"]\n'
    )
    path = tmp_path / "token"
    path.write_text("wrong")
    arguments = ["--authentication=token", "--authorization=basic"]
    with (
        OpaServer(write_bundles(tmp_path), binary=opa_binary, paths=[authz], extra_args=arguments) as opa,
        Client(opa.url, token_file=path) as client,
    ):
        with pytest.raises(PolicyError, match="401"):
            client.check(failing_servers.READ)
        path.write_text("right")
        assert client.check(failing_servers.READ)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ümlaut"])
def test_an_invalid_token_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="holds no token"):
        Token(token, None)


def test_a_password_in_the_address_of_a_session_is_not_shown() -> None:
    with requests.Session() as session, Client("http://user:p4ss@127.0.0.1:1", session=session, retries=0) as client:
        with pytest.raises(DecisionUnavailable) as caught:
            client.check(failing_servers.READ)
        assert "127.0.0.1:1" in repr(client)
        assert "p4ss" not in f"{caught.value}{client!r}"
