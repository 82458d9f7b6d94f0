"""Engines are found by one list: adding one means a module, its name in the list, and its test."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

import privtab
from privtab import Embedded
from privtab.cli._engines import ENGINES as OF_DECIDE
from privtab.engines import ENGINES, opener
from privtab.errors import UsageError

PACKAGE = Path(privtab.__file__).parent


def test_every_engine_has_a_module_that_opens_it() -> None:
    for name in ENGINES:
        restored = pickle.loads(pickle.dumps(opener(name)))  # noqa: S301  (our own, as processes exchange it)
        assert type(restored).__module__ == f"privtab.engines.{name}"
        assert isinstance(restored.takes_wasm, bool)


def test_commands_and_clients_take_the_engines_of_the_list(tmp_path: Path) -> None:
    assert ("reference", "opa", *ENGINES) == OF_DECIDE
    with pytest.raises(UsageError, match=f"there are: {', '.join(ENGINES)}"):
        Embedded(tmp_path, engine="other")


@pytest.mark.parametrize("path", ["client/_bundled.py", "cli/_engines.py", "cli/decide.py"])
def test_no_other_list_names_engines(path: str) -> None:
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    named = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in ENGINES]
    assert not named
