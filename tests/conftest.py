"""What every test may ask for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from privtab.opa import binary


@pytest.fixture(scope="session")
def opa_binary() -> Path:
    """The pinned OPA."""
    return binary.find()


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written again."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[Path, str], None]:
    """Compares a text with a golden file, or writes it."""

    def compare(path: Path, text: str) -> None:
        if update_golden:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {path.name}: run pytest --update-golden, then read it"
        assert text == path.read_text(encoding="utf-8")

    return compare


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files again; then read the diff")
