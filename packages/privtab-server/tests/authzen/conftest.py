"""`privtab serve`, really started: processes of their own, asked over sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from authzen_server import Server, library_in, start


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers, and ends them."""
    started: list[Server] = []

    def serve(*arguments: str | Path) -> Server:
        server = start(arguments, tmp_path)
        started.append(server)
        return server

    yield serve
    for server in started:
        if server.process.poll() is None:
            server.stop()
        if server.process.stdout:
            server.process.stdout.close()


@pytest.fixture(scope="session")
def library_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The policy and the state."""
    return library_in(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def library(library_files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the library that all tests share, since none changes anything."""
    policy, state = library_files
    server = start(["-p", policy, "-s", state], tmp_path_factory.mktemp("served"))
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()
