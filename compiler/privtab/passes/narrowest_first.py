"""Evaluate the condition on the narrowest object of a conjunction first.

Most callers hold something on a container and little inside it, so this finds most denials soonest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from privtab.ir.algebra import Rebuilt
from privtab.ir.formula import leaves, targets_of
from privtab.ir.nodes import And, Formula, Program


def narrowest_first(program: Program) -> Program:
    """Order the parts of every conjunction by the deepest type that they refer to, deepest first."""
    ordering = _Ordered(program)
    return replace(
        program,
        rules={
            key: replace(
                rule,
                requires=ordering.fold(rule.requires),
                each=None if rule.each is None else ordering.fold(rule.each),
            )
            for key, rule in program.rules.items()
        },
    )


class _Ordered(Rebuilt):
    def __init__(self, program: Program) -> None:
        self._program = program
        self._depths = {name: len(program.chain(name)) for name in program.entities}

    def all_of(self, values: Iterable[Formula]) -> Formula:
        return And(parts=tuple(sorted(values, key=self._depth, reverse=True)))

    def _depth(self, formula: Formula) -> int:
        """The depth of the deepest type that the formula refers to."""
        atoms = leaves(self._program, formula)
        return max((self._depths[target.type] for a in atoms for target in targets_of(a)), default=0)
