"""The policy of a lake, and its mapping to a database."""

from __future__ import annotations

from pathlib import Path

import pytest
from pushed_lake import LAKE, MAPPING

from privtab.ir import Program
from privtab.pipeline import load_program
from privtab_connect.pushdown.document import MappingDocument, load


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake") / "lake.yaml"
    path.write_text(LAKE, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def program(lake: Path) -> Program:
    return load_program(lake)


@pytest.fixture(scope="session")
def mapping(lake: Path) -> Path:
    path = lake.parent / "mapping.yaml"
    path.write_text(MAPPING, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def document(mapping: Path, program: Program) -> MappingDocument:
    return load(str(mapping), program, {"catalog": "hive"})
