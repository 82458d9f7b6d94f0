"""In a conjunction the condition on the narrowest object is asked first.

Most callers hold something on a container and little inside it, so that is where most denials are found soonest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from privtab.ir.formula import leaves
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


def narrowest_first(program: Program) -> Program:
    """Order the parts of every conjunction by the deepest type that they look at, deepest first."""
    ordering = Ordering(program)
    return replace(
        program,
        rules={
            key: replace(
                rule,
                requires=ordering.ordered(rule.requires),
                each=None if rule.each is None else ordering.ordered(rule.each),
            )
            for key, rule in program.rules.items()
        },
    )


class Ordering:
    """Knows how deep each type lies."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.depths = {name: len(program.chain(name)) for name in program.entities}

    def ordered(self, formula: Formula) -> Formula:
        """The formula with its conjunctions in order."""
        match formula:
            case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin() | Can():
                return formula
            case And():
                parts = [self.ordered(p) for p in formula.parts]
                return And(parts=tuple(sorted(parts, key=self.depth, reverse=True)))
            case Or():
                return Or(parts=tuple(self.ordered(p) for p in formula.parts))
            case When():
                return replace(formula, body=self.ordered(formula.body))
            case ByType():
                return replace(formula, cases=tuple((t, self.ordered(f)) for t, f in formula.cases))
            case _:
                assert_never(formula)

    def depth(self, formula: Formula) -> int:
        """The depth of the deepest type that the formula looks at."""
        atoms = leaves(self.program, formula)
        return max((0 if isinstance(a, ServiceAdmin) else self.depths[a.target.type] for a in atoms), default=0)
