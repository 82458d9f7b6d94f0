"""The row as it stands in the policy file, and the alternative reading chosen for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from privtab import source, syntax
from privtab.diagnostics import Span
from privtab.ir.nodes import Rule
from privtab.scenarios.nodes import Subject
from privtab.syntax.nodes import RowDecl, Tables, VariantDecl

MAX_LINES = 8
"""How many lines of a row are shown."""


def row_lines(span: Span, limit: int = MAX_LINES) -> list[str]:
    """The line of a row's key and what is indented below it; empty if the file is gone."""
    lines = _lines(span.path)[span.line - 1 :]
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    continuation = takewhile(lambda line: line.startswith(" " * (indent + 1)), lines[1:limit])
    return [line[indent:].rstrip() for line in [*lines[:1], *continuation]]


@lru_cache(maxsize=16)
def _lines(path: str) -> tuple[str, ...]:
    try:
        return tuple(Path(path).read_text(encoding="utf-8").splitlines())
    except OSError:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenReading:
    """An alternative reading chosen for a row."""

    name: str
    text: str
    span: Span


def chosen_reading(subject: Subject, rule: Rule) -> ChosenReading | None:
    """The reading that was chosen for a rule; None if the row's own text decides."""
    chosen_names = dict(subject.readings)
    rows = (f"{rule.entity}/{rule.operation}", f"{rule.origin}/{rule.operation}")
    alternatives = dict(rule.ambiguous.readings) if rule.ambiguous is not None else {}
    for name in (chosen_names[row] for row in rows if row in chosen_names):
        if name in alternatives:
            span = _readings(subject.policy).get((rule.span, name), rule.span)
            return ChosenReading(name=name, text=alternatives[name], span=span)
    return None


@lru_cache(maxsize=16)
def _readings(policy: Path) -> dict[tuple[Span, str], Span]:
    """The spans of the readings, by the span of their row and their name."""
    tables, _ = syntax.read(source.load(policy))
    return {
        (decl.span, reading.name.value): reading.name.span
        for decl in (_rows(tables) if tables is not None else ())
        for reading in (decl.ambiguous.readings if decl.ambiguous is not None else ())
    }


def _rows(tables: Tables) -> Iterator[RowDecl]:
    layers: tuple[Tables | VariantDecl, ...] = (tables, *tables.variants)
    for layer in layers:
        yield from (*layer.core, *layer.any, *(row for table in layer.tables for row in table.rows))
