"""Row filters and column masks as the template of their module lays them out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from privtab.backends.rego.body import Body, Functions
from privtab.ir.filters import filter_lists
from privtab.ir.nodes import Program, SqlFilter
from privtab.sql_text import FilterKind, Word


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterView:
    """A filter: its name, the operation that decides it, and the parts of its text as expressions."""

    name: str
    operation: str
    parts: tuple[str, ...]


def filter_views(program: Program, functions: Functions) -> Mapping[tuple[str, FilterKind], tuple[FilterView, ...]]:
    """The views of a program's filters, by type and kind."""
    return {
        key: tuple(
            FilterView(name=one.name, operation=one.operation, parts=tuple(_parts(program, functions, one)))
            for one in listed
        )
        for key, listed in filter_lists(program).items()
    }


def _parts(program: Program, functions: Functions, one: SqlFilter) -> Iterator[str]:
    body = Body(functions, program.rules[one.entity, one.operation])
    for part in one.parts:
        if isinstance(part, str):
            yield json.dumps(part, ensure_ascii=False)  # texts have no line separators
        elif isinstance(part, Word):
            yield f"{'identifier' if part.text == 'column' else 'literal'}({part.text})"
        else:
            yield f"literal({body.value(part)})"
