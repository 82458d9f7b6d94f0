"""What the templates print: the rows of a policy, and the clauses of each row's functions."""

from __future__ import annotations

from privtab._nodes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One clause of a function; without lines, it always holds."""

    name: str
    args: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """One row: its annotations, its functions, and its entry clauses."""

    id: str
    title: str
    entity: str
    operation: str
    requires: str | None
    each: str | None
    note: str | None
    source: str | None
    origin: str
    clauses: tuple[Clause, ...]
