"""The policy and the state that servers are started with."""

from __future__ import annotations

from pathlib import Path

import pytest
from authzen_server import library_in


@pytest.fixture(scope="session")
def library_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The policy and the state."""
    return library_in(tmp_path_factory.mktemp("library"))
