"""P310: an alternative that adds nothing, the others being enough already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from privtab.checks._view import everywhere, view
from privtab.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.model import nodes as m

CODE = "P310"
NAME = "shadowed-alternative"
SEVERITY = Severity.WARNING
_MANY = 60
"""Longer lists of alternatives are not compared."""


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Parts of an `or` that imply the rest of it, under the file's semantics and through `can`: compared exactly.

    So are the objects of one term: with inheritance `READ (shop, shelf)` asks for no more than `READ (shelf)`. What always
    holds is another question, and so is a set beside its members in one term.
    """
    yield from everywhere(policy, _found(policy))


def _found(policy: m.Policy) -> Iterator[tuple[m.Row, Diagnostic]]:
    from privtab.model.walk import alternatives, conditions, terms

    seen = view(policy)
    for row in policy.rows.values():
        for condition in conditions(row):
            shadowed = [found for any_of in alternatives(condition) for found in _parts(seen, row, any_of)]
            shadowed += [found for term in terms(condition) for found in _places(seen, row, term)]
            told: set[tuple[int, int]] = set()
            for spot, said in shadowed:
                key = (id(spot.cell), spot.start)
                if key not in told:
                    told.add(key)
                    yield row, _finding(spot, said)


def _finding(spot: m.Spot, said: str) -> Diagnostic:
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"this {said}",
        span=spot.span,
        help="drop it, or check what it was meant to say",
    )


def _parts(seen: View, row: m.Row, any_of: m.AnyOf) -> Iterator[tuple[m.Spot, str]]:
    from privtab.model.walk import first_spot

    rule = seen.rule(row)
    if seen.implies(rule, rule.gate, seen.lowering.formula(any_of)):
        return
    parts = any_of.parts[:_MANY]
    for i, by in _shadows(seen, row, parts):
        spot = first_spot(parts[i])
        if spot is not None:
            yield spot, f"alternative {by}"


def _places(seen: View, row: m.Row, term: m.Condition) -> Iterator[tuple[m.Spot, str]]:
    from dataclasses import replace

    from privtab.model.nodes import Held

    if not isinstance(term, Held) or len(term.places) < 2 or (term.every and len(term.uses) > 1):
        return
    single = [replace(term, places=(place,)) for place in term.places]
    for i, by in _shadows(seen, row, single):
        said = "stands twice" if by == "stands twice" else "is never needed: what is held here is held on the other too"
        yield term.places[i].spot, f"object {said}"


def _shadows(seen: View, row: m.Row, parts: Sequence[m.Condition]) -> Iterator[tuple[int, str]]:
    """Which parts imply the rest, the last first, and how it is put; what was told of one is no reason to tell of another."""
    from privtab.ir.formula import conjunction, disjunction

    rule = seen.rule(row)
    formulas = [seen.lowering.formula(part) for part in parts]
    kept = list(range(len(formulas)))
    for i in reversed(range(len(formulas))):
        rest = [j for j in kept if j != i]
        asks = conjunction(rule.gate, formulas[i])
        if not rest or not seen.implies(rule, asks, disjunction(*(formulas[j] for j in rest))):
            continue
        kept = rest
        by = [j for j in rest if seen.implies(rule, asks, formulas[j])]
        if any(seen.implies(rule, conjunction(rule.gate, formulas[j]), formulas[i]) for j in by):
            same = any(formulas[j] == formulas[i] for j in by)
            yield i, "stands twice" if same else "is never needed: another alternative says the same"
        elif by:
            yield i, "is never needed: another alternative asks for less"
        else:
            yield i, "is never needed: the others are enough wherever it is"
