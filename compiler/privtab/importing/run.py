"""Runs an import: carries out the steps of a document and collects the rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

from jmespath.exceptions import JMESPathError

from privtab.errors import FileError, FormatError, UsageError
from privtab.importing.answers import Answers
from privtab.importing.document import Document, Expression, Step
from privtab.importing.template import ITEM, Template
from privtab.ir.nodes import Program
from privtab.request import Entity
from privtab.state.load import from_tables
from privtab.state.nodes import State
from privtab.state.raw import ENTITIES
from privtab.state.validate import validate

PAGES = 100_000
"""Pages of one answer."""
Row = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UntranslatedItem:
    """Something that the system says and the state cannot. `denies`: without it callers may be allowed more."""

    what: str
    why: str
    denies: bool = False

    def __str__(self) -> str:
        """What it is, and why it is not taken."""
        return f"{self.what}: {self.why}" if self.why else self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What came of an import."""

    state: State
    taken: Mapping[str, int]
    """Rows by table, each once."""
    translated: tuple[str, ...]
    """What stands otherwise in the state than in the system."""
    not_taken: tuple[UntranslatedItem, ...]

    def refused(self, *, strict: bool, allow_partial: bool) -> tuple[UntranslatedItem, ...]:
        """What keeps the state from being used: anything not taken if `strict`, otherwise what may deny unless `allow_partial`."""
        if strict:
            return self.not_taken
        return () if allow_partial else tuple(not_taken for not_taken in self.not_taken if not_taken.denies)


@dataclass(slots=True)
class _CollectedRows:
    rows: dict[str, dict[tuple[tuple[str, str], ...], None]] = field(default_factory=dict)
    translated: dict[str, None] = field(default_factory=dict)
    not_taken: dict[UntranslatedItem, None] = field(default_factory=dict)

    def row(self, table: str, cells: Row) -> None:
        self.rows.setdefault(table, {})[tuple(cells.items())] = None


def run(
    document: Document,
    answers: Answers,
    program: Program,
    *,
    values: Mapping[str, str] | None = None,
    entities: Sequence[Entity] = (),
) -> ImportResult:
    """Ask a system what a document asks, and check the rows against a policy.

    `values`: those for the document's `needs`, by name. `entities`: those that wildcards may stand for. Raises UsageError where a value is
    missing or strange, FileError where the system does not answer: then nothing is taken.
    """
    values = dict(values or {})
    missing, strange = set(document.needs) - set(values), set(values) - set(document.needs)
    if missing:
        raise UsageError(
            f"`{document.title}` needs {', '.join(f'`{name}`' for name in sorted(missing))}: --set NAME=VALUE"
        )
    if strange:
        raise UsageError(f"`{document.title}` does not use {', '.join(f'`{name}`' for name in sorted(strange))}")
    collector = _Collector(document, answers, entities)
    known = {"hierarchy": list(program.semantics.hierarchy), "inheritance": program.semantics.inheritance}
    for step in document.steps:
        collector.step(step, {**known, **values, **collector.lookups})
    return _checked(program, document, collector.found)


class _Collector:
    """Carries out the steps of a document."""

    def __init__(self, document: Document, answers: Answers, entities: Sequence[Entity]) -> None:
        self.document = document
        self.answers = answers
        self.found = _CollectedRows()
        self.lookups: dict[str, dict[str, str]] = {name: {} for step in document.steps for name in _lookup_names(step)}
        self._entities: dict[str, list[Entity]] = {}
        for entity in entities:
            self._entities.setdefault(entity.type, []).append(entity)

    def step(self, step: Step, context: Mapping[str, Any]) -> None:
        """One step for one item of the step above."""
        for data in self._data(step, context):
            for item in self._items(step.each, data, context):
                values = {**context, **_fields(item)}
                if step.when is not None and not _holds(self._value(step.when, values)):
                    continue
                self._item(step, values)

    def _item(self, step: Step, values: Mapping[str, Any]) -> None:
        for rule in step.not_taken:
            found = self._value(rule.each, values)
            for item in found if isinstance(found, list) else [found] if _holds(found) else []:
                self._note_not_taken(rule.why, {**values, **_fields(item)})
        for name, (key, value) in step.keep.items():
            self.lookups[name][key.plain(values)] = value.plain(values)
        for table, cells in step.rows:
            self._row(table, cells, values)
        for inner in step.steps:
            self.step(inner, values)

    def _note_not_taken(self, template: Template, values: Mapping[str, Any]) -> None:
        try:
            text = template.plain(values)
        except FormatError:
            text = template.text
        self.found.not_taken[UntranslatedItem(what=text, why="")] = None

    def _data(self, step: Step, context: Mapping[str, Any]) -> Iterator[Any]:
        """The input of a step: the pages of an answer, the rows of a query, or values of the steps above."""
        if step.ask is None:
            yield context
        elif step.kind == "sql":
            yield list(self.answers.query(step.ask.text, context))
        else:
            try:
                address = step.ask.address(context)
            except FormatError as error:
                raise FileError(f"{self.document.path}: {error}") from error
            yield from self._pages(step, address)

    def _pages(self, step: Step, address: str) -> Iterator[Any]:
        page, answer = step.page, self.answers.get(address)
        if answer is None and not step.optional:
            raise FileError(f"there is no answer to `{address}`")
        yield answer
        if page is None or answer is None:
            return
        separator, marks, count = "&" if "?" in address else "?", set[str](), 0
        for _ in range(PAGES):
            if page.next is not None:
                mark = self._value(page.next, answer)
            else:
                assert page.items is not None
                items = self._value(page.items, answer) or []
                count += len(items)
                total = None if page.total is None else self._value(page.total, answer)
                if page.total is not None and (not isinstance(total, int) or isinstance(total, bool)):
                    raise FileError(f"an answer to `{address}` has no number at `{page.total.text}`")
                if total is not None and count < total and not items:
                    raise FileError(f"`{address}` ends after {count:,} of {total:,} items")
                mark = count + 1 if total is not None and count < total else None
            if mark is None or mark == "":
                return
            if str(mark) in marks:
                raise FileError(f"`{address}` gives the same page twice")
            marks.add(str(mark))
            further = f"{address}{separator}{page.parameter}={quote(str(mark), safe='')}"
            answer = self.answers.get(further)
            if answer is None:
                raise FileError(f"there is no answer to `{further}`, a further page")
            yield answer
        raise FileError(f"`{address}` has more than {PAGES:,} pages")

    def _items(self, expressions: Sequence[Expression], data: Any, context: Mapping[str, Any]) -> Iterator[Any]:
        """The items of a step; each of several expressions is applied to the items of the one before."""
        if not expressions:
            yield from data if isinstance(data, list) else [data]
            return
        found = self._value(expressions[0], data)
        for item in found if isinstance(found, list) else [] if found is None else [found]:
            if len(expressions) == 1:
                yield item
                continue
            values = {**context, **_fields(item)}
            for inner in self._items(expressions[1:], values, values):
                yield {**values, **_fields(inner)}

    def _value(self, expression: Expression, data: object) -> Any:
        try:
            return expression.of(data)
        except JMESPathError as error:
            reason = str(error).splitlines()[0]
            raise FileError(f"{self.document.path}: `{expression.text}` does not fit an answer: {reason}") from error

    def _row(self, table: str, cells: Mapping[str, Template], values: Mapping[str, Any]) -> None:
        try:
            row = {
                name: cell.path(values, self.document.wildcards) if name in ENTITIES else cell.plain(values)
                for name, cell in cells.items()
            }
        except FormatError as error:
            denies = _denies(table, cells["effect"].text if table == "grants" else "")
            self.found.not_taken[UntranslatedItem(what=f"a row of {table}", why=str(error), denies=denies)] = None
            return
        column = next((name for name in ENTITIES if name in row), None)
        if column is None or not self._is_pattern(row[column]):
            self.found.row(table, row)
            return
        matched = self._matched(row[column])
        if not matched:
            reason = (
                "no entity of the list matches it" if self._entities else "no list of entities was given to expand it"
            )
            denies = _denies(table, row.get("effect", ""))
            self.found.not_taken[UntranslatedItem(what=_row_text(table, row), why=reason, denies=denies)] = None
            return
        self.found.translated[f"`{row[column]}` stands for {len(matched):,} entities of the list"] = None
        for entity in matched:
            self.found.row(table, {**row, column: str(entity)})

    def _is_pattern(self, entity: str) -> bool:
        return any(sign in entity for sign in self.document.wildcards)

    def _matched(self, pattern: str) -> list[Entity]:
        type_, _, path = pattern.partition(":")
        pattern_ = _pattern(path, self.document.wildcards)
        return [entity for entity in self._entities.get(type_, ()) if pattern_.fullmatch(entity.id)]


def _checked(program: Program, document: Document, found: _CollectedRows) -> ImportResult:
    """The rows that are valid for the policy; the others are reported as not taken."""
    tables = {table: [dict(cells) for cells in rows] for table, rows in found.rows.items()}
    state, findings = validate(program, from_tables(tables, document.path))
    not_taken = dict(found.not_taken)
    messages_by_row: dict[tuple[str, int], list[str]] = {}
    for finding in findings:
        if finding.severity == "error":
            messages_by_row.setdefault((finding.place.table, finding.place.row), []).append(finding.message)
    for (table, number), messages in messages_by_row.items():
        row = tables[table][number - 1] if number else {}
        denies = _denies(table, row.get("effect", "allow"))
        not_taken[UntranslatedItem(what=_row_text(table, row), why="; ".join(messages), denies=denies)] = None
    deny = program.semantics.deny != "none"
    return ImportResult(
        state=state,
        taken={table: len(getattr(state, table)) for table in tables},
        translated=tuple(found.translated),
        not_taken=tuple(
            item if deny or not item.denies else UntranslatedItem(what=item.what, why=item.why) for item in not_taken
        ),
    )


def _fields(item: Any) -> dict[str, Any]:
    """What placeholders stand for within an item."""
    return item if isinstance(item, dict) else {ITEM: item}


def _row_text(table: str, row: Row) -> str:
    return f"{table}: {', '.join(f'{name} {cell}' for name, cell in row.items())}"


def _lookup_names(step: Step) -> Iterator[str]:
    """The names of the look-ups of a step and of those in it."""
    yield from step.keep
    for inner in step.steps:
        yield from _lookup_names(inner)


def _denies(table: str, effect: str) -> bool:
    """Whether a row may carry a denial; `effect`: that of a row of `grants`."""
    return effect != "allow" if table == "grants" else table in {"assignments", "memberships"}


@cache
def _pattern(path: str, wildcards: str) -> re.Pattern[str]:
    """A path with wildcards: `*` any signs of one name, `?` any one."""
    signs = {"*": "[^/]*", "?": "[^/]", "%": "[^/]*"}
    return re.compile("".join(signs[sign] if sign in wildcards else re.escape(sign) for sign in path))


def _holds(value: object) -> bool:
    """Whether JMESPath takes a value for true."""
    return value is not None and value is not False and value not in ("", [], {})
