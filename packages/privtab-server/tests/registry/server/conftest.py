"""Registry servers that are really started, and OPAs that fetch from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sidecars
from authzen_server import Server, start
from example_bundles import ExampleBundles
from sidecars import Opa

from privtab_server.registry import Registry

Serving = Callable[..., Server]
Sidecars = Callable[..., list[Opa]]


@pytest.fixture
def registry(tmp_path: Path, packed: ExampleBundles) -> Registry:
    """A registry whose channel dev runs the first policy and the first state of the shop."""
    registry_ = Registry.open(str(tmp_path / "registry"))
    registry_.release(
        "dev", "shop", policy=registry_.put(packed.policies[0]).id, state=registry_.put(packed.states[0]).id
    )
    return registry_


@pytest.fixture
def serving(tmp_path: Path, registry: Registry) -> Iterator[Serving]:
    """Starts servers of the registry, and ends them."""
    started: list[Server] = []

    def serve(*arguments: str | Path, url: str = "") -> Server:
        server = start([f"registry:{url or registry.url}", *arguments], tmp_path)
        started.append(server)
        return server

    yield serve
    for server in started:
        if server.process.poll() is None:
            server.stop()
        assert "Traceback" not in server.log.read_text(), server.log.read_text()


@pytest.fixture
def opas(tmp_path: Path) -> Iterator[Sidecars]:
    """Starts OPAs with configurations, and ends them."""
    with ExitStack() as stack:

        def run(*configs: dict[str, Any]) -> list[Opa]:
            return stack.enter_context(sidecars.running(tmp_path, *configs))

        yield run
