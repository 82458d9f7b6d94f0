"""Evaluate the condition on the narrowest object of a conjunction first.

Most callers hold something on a container and little inside it, so this finds most denials soonest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from privtab.ir.algebra import Rebuilder
from privtab.ir.formula import ATOMS, resolve, targets_of, walk
from privtab.ir.nodes import And, Can, Formula, Program


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


class _Ordered(Rebuilder):
    def __init__(self, program: Program) -> None:
        self._program = program
        self._depths = {name: len(program.chain(name)) for name in program.entities}
        self._depths_of_cans: dict[Can, int] = {}

    def all_of(self, values: Iterable[Formula]) -> Formula:
        return And(parts=tuple(sorted(values, key=self._depth, reverse=True)))

    def _depth(self, formula: Formula) -> int:
        """The depth of the deepest type that the formula refers to."""
        return max(map(self._depth_of, walk(formula)), default=0)

    def _depth_of(self, node: Formula) -> int:
        if isinstance(node, Can):
            if node not in self._depths_of_cans:
                self._depths_of_cans[node] = self._depth(resolve(self._program, node))
            return self._depths_of_cans[node]
        if isinstance(node, ATOMS):
            return max((self._depths[target.type] for target in targets_of(node)), default=0)
        return 0
