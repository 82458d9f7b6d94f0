from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import generated_programs
import pytest

from privtab import checks

PIGEONS, HOLES = 11, 10


def pigeonhole() -> str:
    """A row whose call implies its `each`, since eleven pigeons do not fit ten holes; a solver must try nearly all ways."""
    names = [f"P{pigeon}X{hole}" for pigeon in range(PIGEONS) for hole in range(HOLES)]
    each = [" or ".join(f"P{p}X{h} (shop)" for h in range(HOLES)) for p in range(PIGEONS)]
    twice = [
        f"P{first}X{h} + P{second}X{h} (shop)"
        for h in range(HOLES)
        for first, second in combinations(range(PIGEONS), 2)
    ]
    requires = " and ".join(f"({part})" for part in each)
    return (
        f"privtab: 1\nsystem: birds\nversion: v1\nentities: {{shop:}}\nprivileges: [{', '.join(names)}]\n"
        f"tables: {{shop: {{list: {{requires: {requires}, each: {' or '.join(twice)}}}}}}}\n"
    )


@pytest.mark.slow
def test_a_check_that_costs_too_much_is_reported_as_undecided() -> None:
    _, policy = generated_programs.lowered(pigeonhole())
    found = {finding.code: finding for finding in checks.run(policy)}
    assert "P327" not in found
    assert "`P327`" in found["P341"].message
    assert found["P341"].message.endswith("for `shop/list`")


@pytest.mark.slow
def test_the_same_findings_each_time() -> None:
    runs = [
        [f.message for f in checks.run(generated_programs.lowered(pigeonhole())[1]) if f.code == "P341"]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    assert "P341" not in codes("tables: {shelf: {look: READ (shelf)}}\n")


@pytest.mark.parametrize("cell", [" or ", " and "])
def test_long_lists_at_two_levels_are_decided(cell: str) -> None:
    condition = cell.join(f"P{i // 2} ({('shop', 'shelf')[i % 2]})" for i in range(1_200))
    names = ", ".join(f"P{i}" for i in range(600))
    _, policy = generated_programs.lowered(
        "privtab: 1\nsystem: shop\nversion: v1\nentities: {shop: {shelf:}}\nsemantics: {inheritance: down}\n"
        f"privileges: [{names}]\ntables: {{shelf: {{load: {condition}}}}}\n"
    )
    found = [finding.code for finding in checks.run(policy) if finding.code in ("P302", "P310", "P328", "P341")]
    assert found == [{" or ": "P310", " and ": "P328"}[cell]] * 600
