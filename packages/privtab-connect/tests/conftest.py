"""A MariaDB server for the tests that ask one."""

from __future__ import annotations

from collections.abc import Iterator

import mariadb_world
import pytest
from mariadb_server import mariadb


@pytest.fixture(scope="module")
def mariadb_address() -> Iterator[str]:
    """The address of a server."""
    with mariadb() as url:
        yield url


@pytest.fixture
def mariadb_url(mariadb_address: str) -> Iterator[str]:
    """The address of the server with the databases and accounts of `mariadb_world`, which are dropped afterwards."""
    with mariadb_world.world(mariadb_address):
        yield mariadb_address
