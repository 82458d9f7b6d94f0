"""A gate that the row's own condition implies is not asked a second time.

`can load (schema)` already holds the gate of `schema/load`; where that is the row's gate too, the row need not repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from privtab.errors import Undecided
from privtab.ir.exact import ImplicationChecker
from privtab.ir.formula import anchor, flat, rule_flags, without_name
from privtab.ir.nodes import ALWAYS, RESOURCE, Formula, Program, Rule, Target

NONE: frozenset[str] = frozenset()


def drop_implied_gate(program: Program) -> Program:
    """Drop each gate that `requires` implies whatever the flags are, and whether or not the request says the last name."""
    exact = ImplicationChecker(program)
    rules = {}
    for key, rule in program.rules.items():
        kept = rule
        # Without flags a condition asks for least, so what it implies then it implies always; a gate with flags stays.
        if rule.gate != ALWAYS and not rule_flags(program, replace(rule, requires=ALWAYS, each=None)):
            try:
                if all(exact.always_implies(rule, *pair, NONE) for pair in _pairs(program, rule)):
                    kept = replace(rule, gate=ALWAYS)
            except Undecided:
                pass  # the gate is asked, needed or not
        rules[key] = kept
    return replace(program, rules=rules)


def _pairs(program: Program, rule: Rule) -> Iterator[tuple[Formula, Formula]]:
    """What a rule requires and its gate, which must follow: as written, and for requests that leave off the last name.

    Nothing holds on what has no name: a privilege on an object above then implies none on the object itself.
    """
    yield rule.requires, rule.gate
    index, _ = anchor(program, Target(slot=RESOURCE, type=rule.entity))
    for type_ in program.chain(rule.entity)[index:]:
        gate = without_name(program, rule.gate, type_)
        if gate != flat(rule.gate):  # else it follows from less, since `requires` only asks for more
            yield without_name(program, rule.requires, type_), gate
