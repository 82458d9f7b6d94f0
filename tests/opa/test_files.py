"""The bundle service on the loopback address."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from privtab.engines.opa.server import FileService


def test_a_disconnecting_client_is_not_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "big.tar.gz"
    file.write_bytes(bytes(30_000_000))
    with FileService({"big": file}) as service:
        address = urlsplit(service.url)
        for _ in range(3):
            with socket.create_connection((address.hostname or "", address.port or 0)) as client:
                client.sendall(b"GET /bundles/big.tar.gz HTTP/1.1\r\nHost: here\r\n\r\n")
                client.recv(1)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.3)
        with urlopen(f"{service.url}/bundles/big.tar.gz", timeout=10) as answer:  # noqa: S310  (our own loopback address)
            assert len(answer.read()) == 30_000_000
    assert capfd.readouterr().err == ""
