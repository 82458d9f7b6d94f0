"""P313: a row that repeats the core row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._compare import compare
from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.model import nodes as m
    from privtab.syntax.nodes import RowDecl

KIND = FindingKind("P313", "repeats-core", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows without which the core row would decide the same, with the same effects: compared exactly.

    A row with a note, title, source or readings of its own records a cell, which would be lost with it; these are
    reported in one finding.
    """
    view = view_of(policy)
    recorded: list[m.Row] = []
    for row in policy.rows.values():
        core = view.alternative_rows.core(row)
        if core is None or not compare(view, view.rule(row), view.lowering.rule(core)).equal:
            continue
        if _records(row.decl, core.decl):
            recorded.append(row)
        else:
            yield _finding(row.decl.span, f"the row `{row.operation}` repeats the core row", "drop it")
    if recorded:
        names = listed(f"{row.entity}/{row.operation}" for row in recorded)
        many = len(recorded) > 1
        message = f"{len(recorded)} row{'s' if many else ''} that record{'' if many else 's'} a cell repeat{'' if many else 's'} core rows"
        yield _finding(recorded[0].decl.span, message, f"keep them for what they record, or drop them: {names}")


def _records(row: RowDecl, core: RowDecl) -> bool:
    record, of_core = (
        (decl.title, decl.note, decl.source, decl.ambiguous, decl.deprecated, decl.destructive, decl.sensitive)
        for decl in (row, core)
    )
    return any(record) and record != of_core


def _finding(span: Span, message: str, advice: str) -> Diagnostic:
    return KIND.at(span, message, advice)
