"""Examples in docstrings give what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest
from checkout import modules

# By their text: importing every module to look for examples would slow down whatever collects tests.
MODULES = sorted(name for name, path in modules() if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
