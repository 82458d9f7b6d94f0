"""Whether two rows mean the same, however they are written."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import assert_never

from privtab.model import nodes as m


def same_meaning(row: m.Row, other: m.Row) -> bool:
    """Whether conditions and effects are the same, up to order, repetition, aliases and sets."""
    return _row(row) == _row(other)


def _row(row: m.Row) -> Hashable:
    return (
        tuple(None if c is None else _form(c) for c in (row.gate, row.requires, row.each)),
        row.report,
        row.creates,
        row.decl.destructive,
        row.decl.sensitive,
        row.withs,
        frozenset(flag.name.value for flag in row.decl.flags if flag.required),
        frozenset(
            (o.kind, o.use.members if o.use is not None else o.what, o.slot, o.type, o.of_role) for o in row.outcomes
        ),
    )


def _form(condition: m.Condition) -> Hashable:
    match condition:
        case m.HoldsPrivilege(uses=uses, every=every, places=places):
            terms = [_any(_all(("has", p, _place(place)) for p in use.members) for place in places) for use in uses]
            return _all(terms) if every else _any(terms)
        case m.Related(kind=kind, places=places):
            return _any((kind, _place(place)) for place in places)
        case m.CanDo(operation=operation, places=places):
            return _any(("can", operation, _place(place)) for place in places)
        case m.IsSelf():
            return "self"
        case m.IsServiceAdmin():
            return "service admin"
        case m.Compared(left=left, operator=operator, right=right):
            return ("compare", _use(left), operator, _use(right) if isinstance(right, m.TermUse) else right)
        case m.AllOf(parts=parts):
            return _all(_form(part) for part in parts)
        case m.AnyOf(parts=parts):
            return _any(_form(part) for part in parts)
        case m.Required(body=body, flag=flag):
            return ("when", flag, _form(body))
        case _:
            assert_never(condition)


def _use(use: m.TermUse) -> Hashable:
    return use.kind, use.name, None if use.place is None else _place(use.place)


def _place(place: m.TargetSlot) -> Hashable:
    return (place.slot, place.types, place.below, place.level)


def _all(parts: Iterable[Hashable]) -> Hashable:
    return _joined("all", parts)


def _any(parts: Iterable[Hashable]) -> Hashable:
    return _joined("any", parts)


def _joined(kind: str, parts: Iterable[Hashable]) -> Hashable:
    """Parts as a set, with nested parts of the same kind flattened; a single part is returned as it is."""
    flat: set[Hashable] = set()
    for part in parts:
        if isinstance(part, tuple) and len(part) == 2 and part[0] == kind and isinstance(part[1], frozenset):
            flat |= part[1]
        else:
            flat.add(part)
    return next(iter(flat)) if len(flat) == 1 else (kind, frozenset(flat))
