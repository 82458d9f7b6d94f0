"""`conflicts`: look up the operations of each declaration."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from privtab.diagnostics import Diagnostic, Located
from privtab.findings import undeclared
from privtab.ir.nodes import Conflict
from privtab.model.names import DeclaredNames
from privtab.model.nodes import PairKey
from privtab.syntax.nodes import ConflictDecl, Word


def resolve_conflicts(
    decls: tuple[ConflictDecl, ...],
    names: DeclaredNames,
    pairs: Collection[PairKey],
    rows_unknown: frozenset[str],
    found: list[Diagnostic],
) -> tuple[Conflict, ...]:
    """The conflicts whose operations all exist; add a finding for each operation that does not."""
    resolved: list[Conflict] = []
    for decl in decls:
        operations: list[PairKey] = []
        for word in decl.operations:
            type_, _, operation = word.value.partition("/")
            if not names.check_type(_part(word, 0, len(type_)), found):
                continue
            if (type_, operation) in pairs:
                operations.append((type_, operation))
            elif not rows_unknown & {type_, ""}:
                known = tuple(op for entity, op in pairs if entity == type_)
                span = _part(word, len(type_) + 1, len(word.value)).span
                found.append(undeclared.unknown_operation(span, operation, (type_,), known))
        if len(operations) == len(decl.operations):
            resolved.append(Conflict(operations=tuple(operations), at_most=decl.at_most, span=decl.span, why=decl.why))
    return tuple(resolved)


def _part(word: Word, start: int, end: int) -> Word:
    """A part of a word; for a quoted word, with the span of the whole word."""
    span = word.span
    plain = span.line == span.end_line and span.end_column - span.column == len(word.value)
    if plain:
        span = replace(span, column=span.column + start, end_column=span.column + end)
    return Located(word.value[start:end], span)
