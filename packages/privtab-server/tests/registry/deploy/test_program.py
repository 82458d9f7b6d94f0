"""A program survives the road through its bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from shipped_policies import FEW, by_release

from privtab.base import FileError
from privtab.bundle import program_in
from privtab.bundle.archive import packed_archive
from privtab.ir import program_from_json, program_json
from privtab.pipeline import find_policies, load_program, optimised, policy_artifacts
from privtab_analysis.diff import comparable, diff
from privtab_analysis.diff.nodes import Verdict

POLICIES = find_policies([ROOT / "policy_src"])


def without_numbers(content: dict[str, Any]) -> dict[str, Any]:
    for rules in content["rules"].values():
        for rule in rules.values():
            del rule["minimal"], rule["atoms"]
    return content


@pytest.mark.parametrize("path", by_release(quick=FEW))
def test_the_program_of_a_bundle_is_the_program_that_was_packed(path: Path) -> None:
    program = load_program(path)
    assert program_json(program_from_json(program_json(program), "json")) == program_json(program)
    # In a bundle keys are sorted, so that the atoms of minimal sets have other numbers.
    # Engines run the conditions after the passes, so these are in it.
    in_bundle = program_json(program_in(policy_artifacts(program).bundle(), "bundle")[0])
    assert without_numbers(in_bundle) == without_numbers(program_json(program, optimised(program)))


@pytest.mark.parametrize("path", POLICIES[:4], ids=lambda p: p.stem)
def test_a_policy_compared_with_its_own_bundle_has_not_changed(path: Path) -> None:
    program = load_program(path)
    found = diff(program_in(policy_artifacts(program).bundle(), "running")[0], comparable(program))
    assert found.same
    assert not found.rewritten
    assert not found.declared


def test_verdicts_are_those_of_the_tables() -> None:
    draft, final = load_program(ROOT / "policy_src/cdap/draft.yaml"), load_program(ROOT / "policy_src/cdap/final.yaml")
    meant = {row.name: row.verdict for row in diff(draft, final).rows}
    found = diff(program_in(policy_artifacts(draft).bundle(), "running")[0], comparable(final))
    assert {row.name: row.verdict for row in found.rows} == meant
    assert len(set(meant.values()) - {Verdict.EQUAL}) >= 2


def test_conditions_are_shown_in_the_words_of_the_tables() -> None:
    program = load_program(ROOT / "policy_src/cdap/final.yaml")
    restored = program_from_json(program_json(program), "running")
    assert restored.rules["namespace", "create"].requires_text == "WRITE (instance)"
    assert replace(restored.rules["namespace", "create"]).span.path == "running"


@pytest.mark.parametrize(
    ("bundle", "message"),
    [
        (b"no archive", "cannot be read"),
        (packed_archive({".manifest": b"{}"}), "no program of format"),
        (packed_archive({"privtab_program/x/data.json": b'{"format": 99}'}), "not a program of format"),
        (packed_archive({"privtab_program/x/data.json": b'{"format": 1}'}), "cannot be read"),
        (packed_archive({"privtab_program/x/data.json": b"["}), "cannot be read"),
    ],
)
def test_an_invalid_program_is_reported(bundle: bytes, message: str) -> None:
    with pytest.raises(FileError, match=message):
        program_in(bundle, "policy 1234")
