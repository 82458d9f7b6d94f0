"""Where minimal sets are too many to list, those that are listed are minimal sets, and the list says that it is cut."""

from __future__ import annotations

import generated_programs
import hostile
import pytest
from counterexamples import request_settings
from seeds import seeds

from privtab.base.errors import Undecided
from privtab.ir.canonical import canonical_form
from privtab.ir.some_minimal_sets import LISTED, minimal_listing, some_minimal_sets


@pytest.mark.parametrize("seed", seeds(range(30), quick=12))
def test_the_few_are_minimal_sets(seed: int) -> None:
    program = generated_programs.program(seed)
    form = canonical_form(program)
    for rule in program.rules.values():
        for flags, types in request_settings(program, rule):
            every = form.minimal_sets(rule.item_condition, flags, types)
            some = some_minimal_sets(form, rule.item_condition, flags, types)
            assert some <= set(map(frozenset, every))
            assert len(some) >= min(len(every), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["12 disjunctions of 4", "20 clauses of 20", "8,000 alternatives", "12 tangled clauses"]
)
def test_a_listing_that_is_cut_says_so(name: str) -> None:
    program, _ = generated_programs.lowered(hostile.POLICIES[name]())
    rule = next(iter(program.rules.values()))
    form = canonical_form(program)
    with pytest.raises(Undecided):
        form.minimal_sets(rule.item_condition)
    found = minimal_listing(form, rule.item_condition)
    assert not found.complete
    assert 0 < len(found.sets) <= LISTED
