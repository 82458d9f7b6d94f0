"""Dispatch for engines without an index over rules: functions that lead from a request to its row's own entry function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from privtab.backends.rego.clauses import Clause, RowView
from privtab.backends.rego.view import ENTRY, Emitter


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDispatch:
    """How a request about an entity of a type finds its row."""

    function: str
    rows: Mapping[str, str]
    """The function of each operation's row."""


def dispatched(
    rows: Mapping[str, Sequence[RowView]], emitter: Emitter
) -> tuple[dict[str, list[RowView]], dict[str, TypeDispatch]]:
    """The rows by type, without the comparisons that an index would use, and the functions that replace these."""
    found: dict[str, TypeDispatch] = {}
    direct_rows: dict[str, list[RowView]] = {}
    for type_, type_rows in rows.items():
        function = emitter.names.take(f"of_{type_}")
        names: dict[str, str] = {}
        for row in type_rows:
            names[row.operation] = emitter.names.take(f"asked_{emitter.functions[row.entity, row.operation]}")
            clauses = tuple(_without_comparisons(clause, names[row.operation]) for clause in row.clauses)
            direct_rows.setdefault(type_, []).append(replace(row, clauses=clauses))
        found[type_] = TypeDispatch(function=function, rows=names)
    return direct_rows, found


def _without_comparisons(clause: Clause, function: str) -> Clause:
    """Drop the operation and the type, with which an entry clause begins; both are known where its function is called."""
    return replace(clause, name=function, lines=clause.lines[2:]) if clause.name == ENTRY else clause
