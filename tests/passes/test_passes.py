"""Passes leave the meaning alone: each rule's minimal sets are the same before and after."""

from __future__ import annotations

from pathlib import Path

import pytest
import worlds

from privtab import pipeline
from privtab.ir import passes
from privtab.ir.canonical import canonical_form
from privtab.ir.nodes import ALWAYS, And, Program
from privtab.ir.passes import drop_implied_gate, narrowest_first
from privtab.ir.shapes import rule_flags


def meaning(program: Program) -> dict[tuple[str, str], object]:
    found: dict[tuple[str, str], object] = {}
    for key, rule in program.rules.items():
        types = {w.name: w.types[0] for w in rule.withs}
        flags = frozenset(rule_flags(program, rule))
        found[key] = [
            canonical_form(program).minimal_sets(condition, chosen, types)
            for condition in (rule.call_condition, rule.item_condition)
            for chosen in (flags, frozenset())
        ]
    return found


@pytest.mark.parametrize("name", ["cdap/final", "gravitino/1.1.0", "streams/teracloud"])
def test_shipped_policies_keep_their_meaning(name: str) -> None:
    program = pipeline.load_program(name)
    assert meaning(passes.run(program)) == meaning(program)


@pytest.mark.parametrize("seed", range(12))
def test_random_policies_keep_their_meaning(seed: int, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(worlds.policy(seed))
    program = pipeline.load_program(tmp_path / "p.yaml")
    assert meaning(passes.run(program)) == meaning(program)


def test_a_gate_is_dropped_only_where_the_condition_implies_it() -> None:
    program = drop_implied_gate(pipeline.load_program("gravitino/1.1.0"))
    assert program.rules["schema", "load"].gate == ALWAYS  # `can load (catalog)` asks it
    assert program.rules["catalog", "load"].gate != ALWAYS
    assert program.rules["metalake", "create"].gate == ALWAYS  # the row says so itself


def test_the_narrowest_condition_comes_first() -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    before, after = program.rules["table", "drop"].requires, narrowest_first(program).rules["table", "drop"].requires
    assert isinstance(before, And)
    assert isinstance(after, And)
    assert after.parts == before.parts[::-1]
