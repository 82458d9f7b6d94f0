"""Bundles of a small shop to keep, and storages to keep them in."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from buckets import bucket
from example_bundles import ExampleBundles, bundles

from privtab_server.registry import Registry


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> ExampleBundles:
    """Two policies and three states."""
    return bundles(tmp_path_factory.mktemp("shelf"))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """An empty one in a folder."""
    return Registry.open(str(tmp_path / "registry"))


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a server that speaks S3."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["file", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def any_registry(request: pytest.FixtureRequest, tmp_path: Path) -> Registry:
    """An empty registry on each kind of storage."""
    place = uuid.uuid4().hex
    match request.param:
        case "file":
            return Registry.open((tmp_path / "registry").as_uri())
        case "memory":
            return Registry.open(f"memory://{place}/registry")
        case _:
            return Registry.open(f"s3://{place}/some/registry", **bucket(request.getfixturevalue("s3"), place))
