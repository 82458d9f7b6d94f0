"""Policies that cost exact tools the most: a comparison tells what changed, or that it does not know."""

from __future__ import annotations

from collections.abc import Callable

import generated_programs
import hostile
import pytest

from privtab.ir import Program, solver
from privtab_analysis.diff import Verdict, diff
from privtab_analysis.diff.waivers import failing


def program(text: str) -> Program:
    return generated_programs.lowered(text)[0]


@pytest.mark.parametrize("make", [lambda: hostile.cnf(12, 4), lambda: hostile.flags(30)], ids=["cnf", "flags"])
def test_a_copy_with_fewer_requirements_is_wider(make: Callable[[], str]) -> None:
    text = make()
    asks = text.partition("load: ")[2].rstrip()
    less = program(text.replace(asks, f"P0 (shop) or {asks}" if "when" not in asks else asks.rpartition(" and ")[0]))
    found = diff(program(text), less)
    assert [row.verdict for row in found.changes] == [Verdict.WIDER]
    witness = found.changes[0].witnesses[0]
    assert (witness.before, witness.after) == ("deny", "allow")


@pytest.mark.parametrize("name", ["30 flags", "20 clauses of 20", "chain of 20 can, 20 alternatives each"])
def test_a_copy_in_another_order_is_equal(name: str) -> None:
    text = hostile.POLICIES[name]()
    head, _, asks = text.rstrip("\n").rpartition("load: " if "load: " in text else "op19: ")
    word = "load: " if "load: " in text else "op19: "
    turned = head + word + " and ".join(reversed(asks.split(" and "))) + "\n"
    assert turned != text
    assert not diff(program(text), program(turned)).changes


def test_undecided_rows_are_unknown_and_fail_every_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    before = program(hostile.tangled_cnf(12, 5, 20))
    after = program(hostile.tangled_cnf(12, 6, 20))
    monkeypatch.setattr(solver, "CONFLICTS", 0)
    found = diff(before, after)
    assert [row.verdict for row in found.changes] == [Verdict.UNKNOWN]
    for verdict in Verdict:
        assert failing(found, {verdict})
    assert not failing(found, ())
