"""Flatten nested conjunctions and disjunctions, and drop duplicate parts."""

from __future__ import annotations

from dataclasses import replace

from privtab.ir.formula import flat
from privtab.ir.nodes import Program


def flatten(program: Program) -> Program:
    """Flatten every condition of the program."""
    return replace(
        program,
        rules={
            key: replace(
                rule,
                gate=flat(rule.gate),
                requires=flat(rule.requires),
                each=None if rule.each is None else flat(rule.each),
            )
            for key, rule in program.rules.items()
        },
    )
