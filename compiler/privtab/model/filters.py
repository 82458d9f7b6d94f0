"""The texts of row filters and column masks: placeholders → values that requests or the state give."""

from __future__ import annotations

from collections.abc import Iterator

from privtab import sql_text
from privtab.diagnostics import Diagnostic
from privtab.findings import unsound_rows
from privtab.hints import did_you_mean, listed
from privtab.model import nodes as m
from privtab.model.conditions import Scope, term
from privtab.model.rows import Rows
from privtab.paths import SEVERAL
from privtab.sql_text import FILTER_KINDS, WORDS, Placeholder, TextError
from privtab.syntax.expression import Name
from privtab.syntax.nodes import Cell, RowDecl


def resolve_filters(rows: Rows, found: list[Diagnostic]) -> tuple[m.Filter, ...]:
    """The filters of all types, in the order of the file; a text that is refused leaves a finding."""
    dialect = rows.tables.dialect
    filters: list[m.Filter] = []
    for type_ in rows.tables.types:
        for decl in type_.filters:
            if dialect is None:
                found.append(unsound_rows.wrong_sql_dialect(decl.span))
                return ()
            if decl.sql is not None and type_.name.value in rows.names.entities:
                one = _filter(decl, decl.sql, rows.scope(type_.name.value), dialect)
                found.extend(one) if isinstance(one, list) else filters.append(one)
    return tuple(filters)


def _filter(decl: RowDecl, cell: Cell, scope: Scope, dialect: str) -> m.Filter | list[Diagnostic]:
    read = sql_text.read(cell.text, dialect)
    if isinstance(read, TextError):
        return [unsound_rows.wrong_sql(cell.part(read.start, read.end), read.message, read.advice)]
    word, _, name = decl.operation.value.partition(".")
    kind = next(kind for kind in FILTER_KINDS if kind == word)
    parts = [part if isinstance(part, str) else _placeholder(part, kind, cell, scope) for part in read]
    listed = tuple(part for part in parts if part is not None)
    if scope.found or len(listed) < len(parts):
        return scope.found
    return m.Filter(kind=kind, entity=scope.entity, name=name, parts=listed)


def _placeholder(
    part: Placeholder, kind: sql_text.FilterKind, cell: Cell, scope: Scope
) -> Placeholder | m.TermUse | None:
    selector, _, word = part.words.rpartition(" ")
    if part.words in WORDS:
        if part.words == "column" and kind == "row_filter":
            advice = "write the names of columns as SQL does"
            scope.fail(_wrong(part, cell, "a row filter has no `{column}`", advice))
        return part
    if "." not in word:
        known = [f"{{{name}}}" for name in _known(scope)]
        advice = did_you_mean(f"{{{part.words}}}", known) or f"there are {listed(known)}"
        scope.fail(_wrong(part, cell, f"unknown placeholder `{{{part.words}}}`", advice))
        return None
    start = part.start + 1 + cell.text[part.start + 1 : part.end].index(word)
    of = Name(selector, part.start + 1, part.start + 1 + len(selector)) if selector else None
    use = term(scope, Name(word, start, start + len(word), selector=of), cell)
    if use is not None and use.place is not None and use.place.level in SEVERAL:
        advice = "name one: `entity`, the type alone for the nearest, or `first TYPE`"
        scope.fail(_wrong(part, cell, f"`{{{part.words}}}` means several entities", advice))
    return use


def _known(scope: Scope) -> Iterator[str]:
    yield from WORDS
    declared = scope.names.attributes
    yield from (f"user.{name}" for name in declared.user)
    yield from (f"entity.{name}" for name in declared.declared_on(scope.entity))
    yield from (f"request.{name}" for name in declared.request)


def _wrong(part: Placeholder, cell: Cell, message: str, advice: str) -> Diagnostic:
    return unsound_rows.wrong_sql(cell.part(part.start, part.end), message, advice)
