"""Nested conjunctions and alternatives become flat ones, each part once."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from privtab.ir.formula import conjunction, disjunction
from privtab.ir.nodes import (
    And,
    ByType,
    Can,
    Formula,
    Has,
    Holds,
    Member,
    Or,
    Owner,
    Program,
    Self,
    ServiceAdmin,
    When,
)


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


def flat(formula: Formula) -> Formula:
    """One formula, flattened."""
    match formula:
        case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin() | Can():
            return formula
        case And():
            return conjunction(*(flat(p) for p in formula.parts))
        case Or():
            return disjunction(*(flat(p) for p in formula.parts))
        case When():
            return replace(formula, body=flat(formula.body))
        case ByType():
            return replace(formula, cases=tuple((t, flat(f)) for t, f in formula.cases))
        case _:
            assert_never(formula)
