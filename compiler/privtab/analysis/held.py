"""By which minimal set a caller is allowed, where a condition has too many of them to list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from privtab.ir.canonical import Leaf, Listing, canonical
from privtab.ir.few import weakest
from privtab.ir.formula import resolve
from privtab.ir.nodes import And, ByType, Can, Formula, Has, Holds, Member, Or, Owner, Rule, Self, ServiceAdmin, When
from privtab.reference.evaluate import Asked


def listing(asked: Asked, rule: Rule, condition: Formula) -> Listing:
    """The minimal sets of a condition of a rule, for the flags and types of a request.

    Where not all are listed, one that the caller holds comes first if there is any.
    """
    form = canonical(asked.program)
    types = {slot.name: asked.types[slot.name] for slot in rule.withs}
    found = form.listing(condition, asked.flags, types)
    if found.complete or any(all(map(asked.holds, map(_atom, atoms))) for atoms in found.sets):
        return found
    if not asked.holds(condition):
        return found
    held = frozenset(_held(asked, condition, set()))
    (first,) = form.ordered([weakest(form, condition, asked.flags, types, held)])
    return Listing((first, *found.sets), complete=False)


def _held(asked: Asked, formula: Formula, seen: set[Can]) -> Iterator[Leaf]:
    """Atoms that the caller holds and that suffice for a condition, which the caller fulfils."""
    match formula:
        case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin():
            yield formula
        case And():
            for part in formula.parts:
                yield from _held(asked, part, seen)
        case Or():
            yield from _held(asked, next(part for part in formula.parts if asked.holds(part)), seen)
        case When():
            if formula.flag in asked.flags:
                yield from _held(asked, formula.body, seen)
        case Can():
            if formula not in seen:
                seen.add(formula)
                yield from _held(asked, resolve(asked.program, formula), seen)
        case ByType():
            yield from _held(asked, dict(formula.cases)[asked.types[formula.slot]], seen)
        case _:
            assert_never(formula)


def _atom(atom: Leaf) -> Formula:
    assert not isinstance(atom, ByType), "the types of all objects are given"
    return atom
