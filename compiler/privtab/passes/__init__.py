"""Program → Program, with the same meaning: one file for each pass; PASSES defines the order."""

from __future__ import annotations

from collections.abc import Callable

from privtab.ir.nodes import Program
from privtab.passes.drop_implied_gate import drop_implied_gate
from privtab.passes.flatten import flatten
from privtab.passes.narrowest_first import narrowest_first

PASSES: tuple[Callable[[Program], Program], ...] = (
    flatten,  # first: the others expect one level of parts
    drop_implied_gate,  # then: drop what a `can` already checks
    narrowest_first,  # last: order what is left
)


def run(program: Program) -> Program:
    """Run every pass, in order."""
    for pass_ in PASSES:
        program = pass_(program)
    return program
