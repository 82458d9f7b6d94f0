"""A gate that the row's own condition implies is not asked a second time.

`can load (schema)` already holds the gate of `schema/load`; where that is the row's gate too, the row need not repeat it.
"""

from __future__ import annotations

from dataclasses import replace

from privtab.errors import Undecided
from privtab.ir.exact import Exact
from privtab.ir.formula import rule_flags
from privtab.ir.nodes import ALWAYS, Program

NONE: frozenset[str] = frozenset()


def drop_implied_gate(program: Program) -> Program:
    """Drop each gate that `requires` implies whatever the flags are."""
    exact = Exact(program)
    rules = {}
    for key, rule in program.rules.items():
        # Without flags a condition asks for least, so what it implies then it implies always; a gate with flags stays.
        kept = rule
        if rule.gate != ALWAYS and not rule_flags(program, replace(rule, requires=ALWAYS, each=None)):
            try:
                if exact.always_implies(rule, rule.requires, rule.gate, NONE):
                    kept = replace(rule, gate=ALWAYS)
            except Undecided:
                pass  # the gate is asked, needed or not
        rules[key] = kept
    return replace(program, rules=rules)
