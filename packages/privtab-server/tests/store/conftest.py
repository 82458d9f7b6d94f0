"""The policy of a lake, and a store for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake_policy import POLICY

from privtab.ir import Program
from privtab.pipeline import load_program
from privtab_server.store.store import Store


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("policy") / "lake.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return load_program(path)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "grants.db")


@pytest.fixture
def store(url: str, program: Program) -> Store:
    return Store.create(url, program, administrators=["root"], actor="setup")
