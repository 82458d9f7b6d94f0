"""Compiled templates are kept beside the templates, and never instead of them."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from jinja2 import Environment, FileSystemLoader

from privtab.backends.rego.compiled_templates import CompiledTemplates


@pytest.fixture(autouse=True)
def writes_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    (tmp_path / "a.j2").write_text("one {{ x }}", encoding="utf-8")
    return tmp_path


def rendered(templates: Path) -> tuple[str, int]:
    """What the template makes, and how many templates were compiled for it, as in a new process."""
    made = Environment(loader=FileSystemLoader(templates), bytecode_cache=CompiledTemplates(templates), autoescape=True)
    with patch.object(made, "compile", wraps=made.compile) as compiled:
        return made.get_template("a.j2").render(x=1), compiled.call_count


def kept(templates: Path) -> list[Path]:
    return sorted((templates / "__pycache__").glob("*.code"))


def test_a_template_is_compiled_once(templates: Path) -> None:
    assert [rendered(templates), rendered(templates)] == [("one 1", 1), ("one 1", 0)]
    assert len(kept(templates)) == 1


def test_a_changed_template_is_compiled_again(templates: Path) -> None:
    rendered(templates)
    (templates / "a.j2").write_text("two {{ x }}", encoding="utf-8")
    assert rendered(templates) == ("two 1", 1)


@pytest.mark.parametrize("size", [0, 5, 20, -1])
def test_a_damaged_file_is_passed_over(templates: Path, size: int) -> None:
    rendered(templates)
    (file,) = kept(templates)
    file.write_bytes(file.read_bytes()[:size])
    assert rendered(templates) == ("one 1", 1)
    assert rendered(templates) == ("one 1", 0)


def test_code_of_another_compiler_is_passed_over(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered(templates)
    monkeypatch.setattr("privtab.backends.rego.compiled_templates.__version__", "0.0.1")
    assert rendered(templates) == ("one 1", 1)
    assert len(kept(templates)) == 2


def test_nothing_is_kept_where_nothing_can_be_written(templates: Path) -> None:
    (templates / "__pycache__").write_text("a file", encoding="utf-8")
    assert [rendered(templates), rendered(templates)] == [("one 1", 1), ("one 1", 1)]


def test_nothing_is_kept_where_python_keeps_no_modules(templates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert [rendered(templates), rendered(templates)] == [("one 1", 1), ("one 1", 1)]
    assert not (templates / "__pycache__").exists()
