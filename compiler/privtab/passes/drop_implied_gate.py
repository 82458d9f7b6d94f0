"""Drop a gate that the row's own condition implies.

`can load (schema)` includes the gate of `schema/load`; if that is the row's gate too, the row need not repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from privtab.errors import Undecided
from privtab.ir.exact import ImplicationChecker
from privtab.ir.formula import anchor, flat, without_name
from privtab.ir.nodes import ALWAYS, RESOURCE, Formula, Program, Rule, Target
from privtab.ir.shapes import condition_flags

NONE: frozenset[str] = frozenset()


def drop_implied_gate(program: Program) -> Program:
    """Drop each gate that `requires` implies for all flags, and for requests with and without the last name."""
    exact = ImplicationChecker(program)
    rules = {}
    for key, rule in program.rules.items():
        simplified = rule
        # A condition is weakest without flags: what it implies then, it always implies. A gate with flags stays.
        if rule.gate != ALWAYS and not condition_flags(program, rule.gate):
            try:
                if all(exact.always_implies(rule, *pair, NONE) for pair in _pairs(program, rule)):
                    simplified = replace(rule, gate=ALWAYS)
            except Undecided:
                pass  # keep the gate, needed or not
        rules[key] = simplified
    return replace(program, rules=rules)


def _pairs(program: Program, rule: Rule) -> Iterator[tuple[Formula, Formula]]:
    """Pairs of a condition that a rule requires and the gate it must imply: as written, and without the last name.

    Nothing holds on an unnamed object, so that a privilege on an ancestor no longer implies one on the object itself.
    """
    yield rule.requires, rule.gate
    index, _ = anchor(program, Target(slot=RESOURCE, type=rule.entity))
    for type_ in program.chain(rule.entity)[index:]:
        gate = without_name(program, rule.gate, type_)
        if gate != flat(rule.gate):  # otherwise it is still implied, since `requires` only becomes stronger
            yield without_name(program, rule.requires, type_), gate
