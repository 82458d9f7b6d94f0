"""What the tests on Spark may ask for."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def connected(request: pytest.FixtureRequest) -> bool:
    """Whether the session is of Spark Connect."""
    return bool(request.config.getoption("--spark") == "connect")
