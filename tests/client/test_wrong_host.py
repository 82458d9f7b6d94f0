"""A server with a good certificate of another host gets no question and no token."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import certificates
import pytest

from privtab import Client, DecisionUnavailable, Embedded
from privtab.base.errors import PolicyError, PrivtabError
from privtab.client import AsyncClient
from privtab.command._app import run
from privtab_server.registry import Registry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is this machine on Linux")
TOKEN = "s3cret-token"  # noqa: S105


class Impostor:
    """A TLS server whose certificate is for 127.0.0.1 and localhost alone; it notes what it is told."""

    def __init__(self, files: certificates.CertificateFiles) -> None:
        self.files = files
        self.heard: list[bytes] = []
        self.calls = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._socket = socket.create_server(("0.0.0.0", 0))  # noqa: S104  (for 127.0.0.1 and 127.0.0.2)
        self._socket.settimeout(0.1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def url(self, host: str) -> str:
        return f"https://{host}:{self._socket.getsockname()[1]}"

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                plain, _ = self._socket.accept()
            except TimeoutError:
                continue
            self.calls += 1
            plain.settimeout(5)
            try:
                with self._context.wrap_socket(plain, server_side=True) as channel:
                    self.heard.append(channel.recv(65536))
                    channel.sendall(
                        b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\nConnection: close\r\n\r\n{"result": true}'
                    )
            except OSError:
                plain.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[Impostor]:
    impostor = Impostor(certificates.make(tmp_path))
    yield impostor
    impostor.close()


def sync(url: str, ca: str) -> bool:
    with Client(url, system="demo", token=TOKEN, verify=ca, retries=0) as client:
        return client.check("ann", "read", "doc:s/d")


def coroutine(url: str, ca: str) -> bool:
    async def ask() -> bool:
        async with AsyncClient(url, system="demo", token=TOKEN, verify=ca, retries=0) as client:
            return await client.check("ann", "read", "doc:s/d")

    return asyncio.run(ask())


@pytest.mark.parametrize("ask", [sync, coroutine])
def test_clients_follow_no_redirect_to_another_host(ask: Callable[[str, str], bool], impostor: Impostor) -> None:
    ca = str(impostor.files.authority)
    with pytest.raises(DecisionUnavailable):
        ask(impostor.url("127.0.0.2"), ca)
    assert impostor.calls
    assert not any(impostor.heard)
    with pytest.raises(PolicyError):  # It is believed to be the host, and what it says makes no sense.
        ask(impostor.url("127.0.0.1"), ca)
    assert TOKEN.encode() in impostor.heard[-1]


def test_no_bundle_and_no_registry_is_read_from_another_host(
    impostor: Impostor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = str(impostor.files.authority)
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, ca)
    url = impostor.url("127.0.0.2")
    with pytest.raises(PrivtabError):
        Embedded(f"{url}/policy.tar.gz", f"{url}/state.tar.gz", token=TOKEN, verify=ca)
    with pytest.raises(PrivtabError):
        Registry.open(url).settings()
    (tmp_path / "token").write_text(TOKEN)
    assert run(["registry", "status", "--server", url, "--token-file", str(tmp_path / "token"), "--ca", ca]) == 3
    assert impostor.calls > 2
    assert not any(impostor.heard)
