"""Rows that refer to rows by `can`: cycles, and chains that are too long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from privtab.diagnostics import Diagnostic, Span
from privtab.findings import unsound_rows, unsound_types
from privtab.model import nodes as m


def find_cycles(rows: Mapping[m.PairKey, m.Row]) -> list[Diagnostic]:
    """One finding for each cycle of rows; a row for many types makes only one. Depth first, without recursion."""
    found: list[Diagnostic] = []
    done: set[m.PairKey] = set()
    reported: set[Span] = set()
    for start in rows:
        if start in done:
            continue
        path: list[m.PairKey] = [start]
        spots: list[m.CellPart] = []
        todo = [_edges(rows, start)]
        on_path = {start: 0}
        while todo:
            edge = next(todo[-1], None)
            if edge is None:
                todo.pop()
                finished = path.pop()
                del on_path[finished]
                done.add(finished)
                if spots:
                    spots.pop()
                continue
            pair, spot = edge
            if pair in on_path:
                cycle = _cycle_finding(path[on_path[pair] :], [*spots[on_path[pair] :], spot])
                if cycle.span not in reported:
                    reported.add(cycle.span)
                    found.append(cycle)
            elif pair not in done and pair in rows:
                on_path[pair] = len(path)
                path.append(pair)
                spots.append(spot)
                todo.append(_edges(rows, pair))
    return found


DEEPEST = 150
"""Limit on the levels of a condition, including those it reaches through `can`, since conditions are walked recursively."""


def find_deep(rows: Mapping[m.PairKey, m.Row]) -> list[Diagnostic]:
    """One finding for the first row of each chain that is too deep. The rows must have no cycle."""
    found: list[Diagnostic] = []
    levels: dict[m.PairKey, int] = {}
    for start in rows:
        todo = [start]
        while todo:
            pair = todo[-1]
            below = [
                (reference, level) for reference, level in _levels(rows[pair]) if reference is None or reference in rows
            ]
            waiting = [reference for reference, _ in below if reference is not None and reference not in levels]
            if pair not in levels and waiting:
                todo += waiting
                continue
            todo.pop()
            if pair not in levels:
                deepest = max(
                    (level + (0 if reference is None else levels[reference]) for reference, level in below), default=0
                )
                if deepest > DEEPEST:
                    found.append(unsound_types.too_deep(rows[pair].decl.span, "/".join(pair), DEEPEST))
                    deepest = 0  # report this row only, not each row that refers to it
                levels[pair] = deepest
    return found


def _levels(row: m.Row) -> Iterator[tuple[m.PairKey | None, int]]:
    """The level of each `can` of a row, with its row, and of each other term, with None."""
    waiting = [(part, 1) for part in (row.gate, row.requires, row.each) if part is not None]
    while waiting:
        condition, level = waiting.pop()
        match condition:
            case m.AllOf(parts=parts) | m.AnyOf(parts=parts):
                waiting += ((part, level + 1) for part in parts)
            case m.Required(body=body):
                waiting.append((body, level + 1))
            case m.CanDo(operation=operation, places=places):
                yield from (((type_, operation), level + 1) for place in places for type_ in place.types)
            case _:
                yield None, level


def _cycle_finding(path: list[m.PairKey], spots: list[m.CellPart]) -> Diagnostic:
    spans = [spot.span for spot in spots]
    first = min(range(len(spans)), key=lambda i: (spans[i].line, spans[i].column))
    names = [f"{type_}/{operation}" for type_, operation in path]
    return unsound_rows.can_cycle([*spans[first:], *spans[:first]], [*names[first:], *names[:first]])


def _edges(rows: Mapping[m.PairKey, m.Row], pair: m.PairKey) -> Iterator[tuple[m.PairKey, m.CellPart]]:
    row = rows[pair]
    for condition in (row.gate, row.requires, row.each):
        if condition is not None:
            yield from _references(condition)


def _references(condition: m.Condition) -> Iterator[tuple[m.PairKey, m.CellPart]]:
    match condition:
        case m.CanDo(operation=operation, places=places, spot=spot):
            for place in places:
                for type_ in place.types:
                    yield (type_, operation), spot
        case m.AllOf(parts=parts) | m.AnyOf(parts=parts):
            for part in parts:
                yield from _references(part)
        case m.Required(body=body):
            yield from _references(body)
        case _:
            return
