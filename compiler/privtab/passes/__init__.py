"""Program → Program, meaning unchanged: each pass in its file, PASSES says the order."""

from __future__ import annotations

from collections.abc import Callable

from privtab.ir.nodes import Program
from privtab.passes.drop_implied_gate import drop_implied_gate
from privtab.passes.flatten import flatten
from privtab.passes.narrowest_first import narrowest_first

PASSES: tuple[Callable[[Program], Program], ...] = (
    flatten,  # first: the others look at the parts of one level
    drop_implied_gate,  # then: what `can` already asks is not asked again
    narrowest_first,  # last: it orders what is left
)


def run(program: Program) -> Program:
    """Every pass, in order."""
    for pass_ in PASSES:
        program = pass_(program)
    return program
