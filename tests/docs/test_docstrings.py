"""Examples in docstrings give what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
from checkout import ROOT

COMPILER = ROOT / "compiler"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(COMPILER).with_suffix("").parts).removesuffix(".__init__")


# By their text: importing every module to look for examples would slow down whatever collects tests.
MODULES = sorted(module_name(path) for path in COMPILER.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
