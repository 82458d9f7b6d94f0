"""P310: an alternative that adds nothing, another one being enough already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

CODE = "P310"
NAME = "shadowed-alternative"
SEVERITY = Severity.WARNING
_MANY = 60
"""Longer lists of alternatives are not compared pair by pair."""


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Parts of an `or` that ask for all that another part asks for, and perhaps for more."""
    from privtab.model.walk import alternatives, conditions

    seen: set[tuple[int, int]] = set()
    for row in policy.rows.values():
        for condition in conditions(row):
            for any_of in alternatives(condition):
                for finding, key in _shadowed(any_of):
                    if key not in seen:
                        seen.add(key)
                        yield finding


def _shadowed(any_of: m.AnyOf) -> Iterator[tuple[Diagnostic, tuple[int, int]]]:
    from privtab.model.same import asked
    from privtab.model.walk import first_spot

    parts = any_of.parts[:_MANY]
    sets = [asked(part) for part in parts]
    for i, part in enumerate(parts):
        by = [j for j, other in enumerate(sets) if j != i and other <= sets[i] and (other < sets[i] or j < i)]
        spot = first_spot(part)
        if by and spot is not None:
            same = sets[by[0]] == sets[i]
            said = "stands twice" if same else "is never needed: another alternative asks for less"
            finding = Diagnostic(
                code=CODE,
                name=NAME,
                severity=SEVERITY,
                message=f"this alternative {said}",
                span=spot.span,
                help="drop it, or check what it was meant to say",
            )
            yield finding, (id(spot.cell), spot.start)
