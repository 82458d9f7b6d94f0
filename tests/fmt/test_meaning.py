"""The layout changes no meaning, however the file was laid out before, and laying out twice changes nothing more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from reformatted_yaml import reformatted
from shipped_policies import FEW, by_release

from privtab.backends.describe import described_policy
from privtab.base import resources
from privtab.base.source import SourceFile
from privtab.ir.serialise import program_json
from privtab.language.fmt import format_source
from privtab.language.syntax.yaml_tree import comments
from privtab.pipeline import find_policies, load_program

POLICIES = find_policies([resources.policies()])
SCENARIOS = sorted(resources.policies().glob("*/*.scenarios.yaml"), key=lambda path: path.stat().st_size)[:3]
STATES = sorted(resources.policies().glob("*/state.yaml"))
LARGE = 20_000
"""Bytes of a file whose layouts take seconds."""


def laid_out(text: str) -> str:
    result, found = format_source(SourceFile.of("a.yaml", text))
    assert result is not None, found
    return result


def notes(text: str) -> Counter[str]:
    return Counter(text[start:end].rstrip() for start, end in comments(text))


def meaning(text: str, folder: Path) -> tuple[object, object]:
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    program = load_program(path)
    return program_json(program), without_places(described_policy(program, revision="r"))


def without_places(value: Any) -> Any:
    """The description of a policy, without the positions of its rows."""
    match value:
        case dict():
            return {key: without_places(inner) for key, inner in value.items() if key != "defined"}
        case list():
            return [without_places(inner) for inner in value]
        case _:
            return value


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id="/".join(path.parts[-2:]), marks=pytest.mark.long if path.stat().st_size > LARGE else ())
        for path in (*POLICIES, *SCENARIOS, *STATES)
    ],
)
def test_a_mess_of_a_shipped_file_gives_one_layout_with_all_comments(path: Path) -> None:
    text = SourceFile.load(path).text
    once = laid_out(text)
    assert laid_out(once) == once
    assert notes(once) == notes(text)
    for seed in range(2):
        other = reformatted(text, seed)
        again = laid_out(other)
        assert laid_out(again) == again
        assert notes(again) == notes(other)


@pytest.mark.slow
@pytest.mark.parametrize("path", by_release(full=FEW))
def test_shipped_policies_mean_the_same(path: Path, tmp_path: Path) -> None:
    text = SourceFile.load(path).text
    before = meaning(text, tmp_path)
    assert meaning(laid_out(text), tmp_path) == before
    other = reformatted(text, 7)
    assert meaning(other, tmp_path) == before, "the mess itself"
    assert meaning(laid_out(other), tmp_path) == before


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), mess=st.integers(0, 10_000))
def test_random_policies_mean_the_same(seed: int, mess: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    other = reformatted(worlds.policy(seed), mess)
    once = laid_out(other)
    assert laid_out(once) == once
    assert notes(once) == notes(other)
    assert meaning(once, folder) == meaning(other, folder)
