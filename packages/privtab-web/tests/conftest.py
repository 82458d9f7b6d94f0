"""Clients of the studio: in process, and over the wire to a real OPA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import studio_policy

from privtab import Client
from privtab.client import Embedded
from privtab.engines import OpaServer


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return studio_policy.write(tmp_path_factory.mktemp("studio"))


@pytest.fixture
def client(bundles: tuple[Path, Path]) -> Iterator[Embedded]:
    with Embedded(*bundles) as embedded:
        yield embedded


@pytest.fixture(scope="session")
def opa(bundles: tuple[Path, Path]) -> Iterator[OpaServer]:
    with OpaServer(bundles) as server:
        yield server


@pytest.fixture
def nobody_there() -> Iterator[Client]:
    """A client whose OPA does not answer."""
    with Client("http://127.0.0.1:9", system="studio", timeout=0.2, retries=0) as client:
        yield client
