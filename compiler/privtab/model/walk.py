"""Walk through rows and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from privtab.model import nodes as m

Term: TypeAlias = m.HoldsPrivilege | m.Related | m.IsSelf | m.IsServiceAdmin | m.CanDo | m.Compared


def terms(condition: m.Condition | None) -> Iterator[Term]:
    """Every term of a condition, from left to right."""
    match condition:
        case None:
            return
        case m.AllOf(parts=parts) | m.AnyOf(parts=parts):
            for part in parts:
                yield from terms(part)
        case m.Required(body=body):
            yield from terms(body)
        case term:
            yield term


def alternatives(condition: m.Condition | None) -> Iterator[m.AnyOf]:
    """Every `or` of a condition, outer before inner; an `or` directly inside another is merged with it."""
    match condition:
        case m.AnyOf():
            parts = tuple(flat(condition, m.AnyOf))
            yield m.AnyOf(parts=parts)
            for part in parts:
                yield from alternatives(part)
        case m.AllOf(parts=parts):
            for part in parts:
                yield from alternatives(part)
        case m.Required(body=body):
            yield from alternatives(body)
        case _:
            return


def conjunctions(condition: m.Condition | None) -> Iterator[m.AllOf]:
    """Every `and` of a condition, outer before inner; an `and` directly inside another is merged with it."""
    match condition:
        case m.AllOf():
            parts = tuple(flat(condition, m.AllOf))
            yield m.AllOf(parts=parts)
            for part in parts:
                yield from conjunctions(part)
        case m.AnyOf(parts=parts):
            for part in parts:
                yield from conjunctions(part)
        case m.Required(body=body):
            yield from conjunctions(body)
        case _:
            return


def flat(condition: m.Condition, kind: type[m.AnyOf | m.AllOf]) -> Iterator[m.Condition]:
    """The parts of an `or` or of an `and`, with those of the same kind directly inside it flattened."""
    if isinstance(condition, kind):
        for part in condition.parts:
            yield from flat(part, kind)
    else:
        yield condition


def flags(condition: m.Condition) -> Iterator[m.Required]:
    """Every `when` of a condition."""
    match condition:
        case m.AllOf(parts=parts) | m.AnyOf(parts=parts):
            for part in parts:
                yield from flags(part)
        case m.Required(body=body):
            yield condition
            yield from flags(body)
        case _:
            return


def flags_read(rows: Mapping[m.PairKey, m.Row], pair: m.PairKey) -> frozenset[str] | None:
    """The flags that a row reads: in its gate, its own conditions, and the rows that it reaches through `can`.

    None if one of those rows is invalid.
    """
    found: set[str] = set()
    visited, waiting = {pair}, [pair]
    while waiting:
        row = rows.get(waiting.pop())
        if row is None:
            return None
        for condition in (*conditions(row), *(() if row.gate is None else (row.gate,))):
            found |= {when.flag for when in flags(condition)}
            for term in terms(condition):
                if isinstance(term, m.CanDo):
                    reached = {(type_, term.operation) for place in term.places for type_ in place.types}
                    waiting += sorted(reached - visited)
                    visited |= reached
    return frozenset(found)


def conditions(row: m.Row) -> Iterator[m.Condition]:
    """The row's own conditions: `requires` and `each`."""
    for condition in (row.requires, row.each):
        if condition is not None:
            yield condition


def row_terms(row: m.Row) -> Iterator[Term]:
    """Every term of `requires` and `each`."""
    for condition in conditions(row):
        yield from terms(condition)


def first_spot(condition: m.Condition) -> m.CellPart | None:
    """The position of a condition's first term, or None."""
    for term in terms(condition):
        match term:
            case m.HoldsPrivilege(uses=uses):
                return uses[0].spot
            case m.CanDo(spot=spot) | m.Compared(spot=spot) | m.IsSelf(spot=spot) | m.IsServiceAdmin(spot=spot):
                return spot
            case m.Related(places=places):
                return places[0].spot
    return next((flag.spot for flag in flags(condition)), None)
