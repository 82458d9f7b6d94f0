"""Rows that ask for each other through `can`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from privtab.checks import p204_can_cycle
from privtab.diagnostics import Diagnostic, Span
from privtab.model import nodes as m


def find_cycles(rows: Mapping[m.PairKey, m.Row]) -> list[Diagnostic]:
    """One finding for each circle of rows, a row for many types making one circle; depth first, without recursion."""
    found: list[Diagnostic] = []
    done: set[m.PairKey] = set()
    told: set[Span] = set()
    for start in rows:
        if start in done:
            continue
        path: list[m.PairKey] = [start]
        spots: list[m.Spot] = []
        todo = [_edges(rows, start)]
        on_path = {start: 0}
        while todo:
            edge = next(todo[-1], None)
            if edge is None:
                todo.pop()
                left = path.pop()
                del on_path[left]
                done.add(left)
                if spots:
                    spots.pop()
                continue
            pair, spot = edge
            if pair in on_path:
                circle = _circle(path[on_path[pair] :], [*spots[on_path[pair] :], spot])
                if circle.span not in told:
                    told.add(circle.span)
                    found.append(circle)
            elif pair not in done and pair in rows:
                on_path[pair] = len(path)
                path.append(pair)
                spots.append(spot)
                todo.append(_edges(rows, pair))
    return found


def _circle(path: list[m.PairKey], spots: list[m.Spot]) -> Diagnostic:
    spans = [spot.span for spot in spots]
    begin = min(range(len(spans)), key=lambda i: (spans[i].line, spans[i].column))
    names = [f"{type_}/{operation}" for type_, operation in path]
    return p204_can_cycle.finding([*spans[begin:], *spans[:begin]], [*names[begin:], *names[:begin]])


def _edges(rows: Mapping[m.PairKey, m.Row], pair: m.PairKey) -> Iterator[tuple[m.PairKey, m.Spot]]:
    row = rows[pair]
    for condition in (row.gate, row.requires, row.each):
        if condition is not None:
            yield from _cans(condition)


def _cans(condition: m.Condition) -> Iterator[tuple[m.PairKey, m.Spot]]:
    match condition:
        case m.CanDo(operation=operation, places=places, spot=spot):
            for place in places:
                for type_ in place.types:
                    yield (type_, operation), spot
        case m.AllOf(parts=parts) | m.AnyOf(parts=parts):
            for part in parts:
                yield from _cans(part)
        case m.Required(body=body):
            yield from _cans(body)
        case _:
            return
