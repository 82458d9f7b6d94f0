"""Runs an import: carries out the steps of a document and collects the rows."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

from jmespath.exceptions import JMESPathError

from privtab.base import Entity, FileError, UsageError, no_collection
from privtab.ir import Program
from privtab.state import ENTITY_COLUMNS, State, StateFinding, from_tables, validate
from privtab_connect.errors import TemplateError
from privtab_connect.importing.answers import Answers
from privtab_connect.importing.document import Excluded, ImportDocument, ImportStep, Page
from privtab_connect.importing.expression import Expression, holds
from privtab_connect.importing.fields import Fields, FieldSearch, Many, short
from privtab_connect.importing.template import ITEM, Template
from privtab_connect.names import CHANGES

PAGES = 100_000
"""Pages of one answer."""
NO_ROWS, NO_STEP, UNREAD = "no-rows", "no-step", "unread-file"
"""Names of what an import finds by itself: it took nothing, an item that no step takes, a kept answer that no step asks for."""
Row = dict[str, str]
_canonical = json.JSONEncoder(sort_keys=True, check_circular=False).encode
"""Equal values alike, in whatever order an answer has their keys."""

_PRINCIPAL_COLUMNS = ("principal", "grantee", "owner", "user", "group", "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class UntranslatedItem:
    """Something that the system says and the state cannot. `denies`: without it callers may be allowed more.

    `name`: what the caller accepts it by, with all others of that name. `count`: how many things it stands for; `what` is an example.
    """

    what: str
    why: str
    denies: bool = False
    name: str
    count: int = 1

    def __str__(self) -> str:
        """The name of the item, its description, and why it is not taken."""
        return ": ".join(filter(None, (self.name, self.what, self.why)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """The state of an import, and the items that it translated or left out."""

    state: State
    taken: Mapping[str, int]
    """Rows by table, each once."""
    translated: tuple[str, ...]
    """Descriptions of values that differ between the state and the system."""
    not_taken: tuple[UntranslatedItem, ...]

    def refused(
        self, *, strict: bool, allow_partial: bool, accept: Collection[str] = ()
    ) -> tuple[UntranslatedItem, ...]:
        """Return the items that forbid the use of the state: all not taken if `strict`, otherwise items that may deny unless `allow_partial`.

        `accept`: names of items that do not forbid it.
        """
        if allow_partial and not strict:
            return ()
        return tuple(item for item in self.not_taken if (strict or item.denies) and item.name not in accept)

    @property
    def by_name(self) -> Mapping[str, tuple[UntranslatedItem, int]]:
        """Return the items not taken by name: one item of each name, one that denies if any does, and their number."""
        found: dict[str, tuple[UntranslatedItem, int]] = {}
        for item in self.not_taken:
            first, count = found.get(item.name, (item, 0))
            found[item.name] = (item if item.denies > first.denies else first, count + item.count)
        return found


@dataclass(slots=True)
class _CollectedRows:
    rows: dict[str, dict[tuple[tuple[str, str], ...], None]] = field(default_factory=dict)
    translated: dict[str, None] = field(default_factory=dict)
    not_taken: dict[UntranslatedItem, None] = field(default_factory=dict)
    has_rows: bool = False
    """True if there was any row, valid or not."""

    def row(self, table: str, cells: Row) -> None:
        self.rows.setdefault(table, {})[tuple(cells.items())] = None


def run(
    document: ImportDocument,
    answers: Answers,
    program: Program,
    *,
    values: Mapping[str, str] | None = None,
    entities: Sequence[Entity] = (),
) -> ImportResult:
    """Ask a system what a document asks, and check the rows against a policy.

    `values`: values for the document's `needs`, by name. `entities`: entities that wildcards may stand for. Raises UsageError where a value is
    missing or strange, FileError where the system does not answer: then nothing is taken.
    """
    values = dict(values or {})
    if missing := sorted(f"`{name}`" for name in set(document.needs) - values.keys()):
        raise UsageError(f"`{document.title}` needs {', '.join(missing)}: --set NAME=VALUE")
    if strange := sorted(f"`{name}`" for name in values.keys() - {*document.needs, *document.takes}):
        raise UsageError(f"`{document.title}` does not use {', '.join(strange)}")
    collector = _Collector(document, answers, program, entities)
    known = {
        "hierarchy": list(program.semantics.hierarchy),
        "inheritance": program.inheritance,
        "deny": program.semantics.deny,
        "types": list(program.entities),
        "kinds": document.names.listed(program.entities),
        "privileges": list(program.grantable),
        "owner_holds": list(program.semantics.owner.holds) if program.semantics.owner else [],
        **dict.fromkeys(document.takes),
    }
    with no_collection():
        for step in document.steps:
            collector.step(step, {**known, **values, **collector.lookups})
    for name, found in collector.fields.found.items():
        why, denies = found.loss.why, found.loss.denies
        item = UntranslatedItem(what=found.example, why=why, denies=denies, name=name, count=found.count)
        collector.found.not_taken[item] = None
    for file in answers.unread():
        collector.note(UNREAD, file, "a kept answer that the import document does not ask for")
    if not collector.found.has_rows and not any(item.denies for item in collector.found.not_taken):
        collector.note(NO_ROWS, f"`{document.title}`", "nothing in the answers of the system is a row of a state")
    return _checked(program, document, collector.found)


class _Pages:
    """The pages of one answer: whether one is missing, or comes twice."""

    def __init__(self, page: Page, address: str, value: Callable[[Expression, object], Any]) -> None:
        self._page = page
        self._address = address
        self._value = value
        self._marks: set[str] = set()
        self._items: set[int | str] = set()
        self._total: int | None = None
        self._count = 0

    def next_mark(self, answer: object) -> str | None:
        """Return the mark that requests the next page; None behind the last. Raises FileError where items are missing."""
        page = self._page
        if page.next is not None:
            mark = self._value(page.next, answer)
            if mark is None or mark == "":
                return None
            if str(mark) in self._marks:
                raise FileError(f"`{self._address}` gives the same page twice")
            self._marks.add(str(mark))
            return str(mark)
        assert page.items is not None
        assert page.total is not None
        items = answer if isinstance(answer, list) else self._value(page.items, answer) or []
        if not isinstance(items, list):
            raise FileError(f"the answer to `{self._address}` has no list `{page.items.text}`: it is {short(items)}")
        total = None if isinstance(answer, list) else self._value(page.total, answer)
        if total is None and page.size is not None and not self._count:
            if len(items) == page.size:
                raise FileError(
                    f"`{self._address}` gives {page.size:,} items, a whole page, and no total: some may be missing"
                )
            return None
        if not isinstance(total, int) or isinstance(total, bool):
            raise FileError(f"an answer to `{self._address}` has no number at `{page.total.text}`")
        if self._total not in (None, total):
            raise FileError(f"`{self._address}` has {self._total:,} items, then {total:,}: it changes while it is read")
        self._total = total
        self._count += len(items)
        if self._count < total or self._items:
            self._items.update(map(self._id, items))
            if len(self._items) < self._count:
                raise FileError(
                    f"`{self._address}` gives items twice: a page is another's, or it changes while it is read"
                )
        if self._count > total or (self._count < total and not items):
            raise FileError(f"`{self._address}` ends after {self._count:,} of {total:,} items")
        return str(self._count + page.first) if self._count < total else None

    def _id(self, item: object) -> int | str:
        """Return the identity of an item: the value that the document names, or a hash of all its content."""
        found = None if self._page.id is None else self._value(self._page.id, item)
        return hash(_canonical(item)) if found is None else str(found)


class _Collector:
    """Carries out the steps of a document."""

    def __init__(
        self, document: ImportDocument, answers: Answers, program: Program, entities: Sequence[Entity]
    ) -> None:
        self.document = document
        self._program = program
        self._everyone = frozenset(document.everyone)
        self.answers = answers
        self.found = _CollectedRows()
        self.fields = FieldSearch()
        self.lookups: dict[str, dict[str, str]] = {name: {} for step in document.steps for name in _lookup_names(step)}
        self._entities: dict[str, list[Entity]] = {}
        for entity in entities:
            self._entities.setdefault(entity.type, []).append(entity)

    def step(self, step: ImportStep, context: Mapping[str, Any], item: object = None) -> bool:
        """Run a step for an item of the step above, and return whether the step takes the item, even by a question or as an empty list."""
        if step.ask is None or (step.ask_when is not None and not holds(self._value(step.ask_when, context))):
            return self._items(step, 0, context, context) if step.each else self._item(step, context, item)
        for data in self._answers(step, step.ask, context):
            self._items(step, 0, data, context)
        return True

    def _items(self, step: ImportStep, number: int, data: Any, context: Mapping[str, Any]) -> bool:
        """Collect the items of a step; each further expression is applied to the items of the previous expression. `number`: expressions done."""
        if number < len(step.each):
            found = self._value(step.each[number], data)
            items = found if isinstance(found, list) else [] if found is None else [found]
        else:
            items = data if isinstance(data, list) else [data]
        last = number >= len(step.each) - 1
        taken = not items
        for item in items:
            values = {**context, **item} if isinstance(item, dict) else {**context, ITEM: item}
            taken |= self._item(step, values, item) if last else self._items(step, number + 1, values, values)
        return taken

    def _item(self, step: ImportStep, values: Mapping[str, Any], item: object) -> bool:
        if step.when is not None and not holds(self._value(step.when, values)):
            return False
        taken = bool(step.rows or step.keep) or not (step.not_taken or step.steps)
        for rule in step.not_taken:
            found = self._value(rule.each, values)
            for part in found if isinstance(found, list) else [found] if holds(found) else []:
                self._note_not_taken(rule, {**values, **(part if isinstance(part, dict) else {ITEM: part})})
                taken = True
        for name, (key, value) in step.keep.items():
            with contextlib.suppress(TemplateError):  # an item without a name is found where another names it
                self.lookups[name][key.plain(values)] = value.plain(values)
        for table, cells in step.rows:
            self._row(table, cells, values)
        for inner in step.steps:
            taken |= self.step(inner, values, item)
        if step.steps and not taken:
            self.note(NO_STEP, short(item), "no step of the import document takes it")
        return taken or bool(step.steps)

    def note(self, name: str, what: str, why: str) -> None:
        """Note what may deny, and is in no row."""
        self.found.not_taken[UntranslatedItem(name=name, what=what, why=why, denies=True)] = None

    def _note_not_taken(self, rule: Excluded, values: Mapping[str, Any]) -> None:
        name, what = rule.name.plain(values, "?"), rule.why.plain(values, "?")
        denies = rule.denies if isinstance(rule.denies, bool) else holds(self._value(rule.denies, values))
        count = 1 if rule.count is None else int(rule.count.plain(values))
        item = UntranslatedItem(what=what, why="", denies=denies, name=name, count=count)
        self.found.not_taken[item] = None

    def _answers(self, step: ImportStep, ask: Template, context: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the system's answers to a step: the rows of a query, or the pages of an answer."""
        if step.kind == "tables":
            yield self.answers.tables()
            return
        if step.kind == "sql":
            columns, rows = self.answers.query(ask.text, context)
            yield self._checked_rows(step.fields, columns, [*rows], f"`{' '.join(ask.text.split()):.60}`")
            return
        try:
            address, about = ask.address(context), ask.varying(context)
        except TemplateError as error:
            raise FileError(f"{self.document.path}: {error}") from error
        search = self.fields.question(f"`{address}`")
        for answer in self._pages(step, address, about):
            yield answer if answer is None or step.fields is None else search.answer(step.fields, answer)

    def _checked_rows(self, fields: Fields | None, columns: list[str], rows: list[Any], where: str) -> Any:
        """The rows of a query, looked through."""
        if fields is None:
            return rows
        (of_rows,) = (
            [kind.item for kind in fields.named.values() if isinstance(kind, Many)] if fields.bare else [fields]
        )
        if isinstance(of_rows, Fields):
            of_rows.check_columns(columns, where)
        found = self.fields.question(where).answer(fields, rows)
        return next(iter(found.values())) if isinstance(found, dict) else found

    def _pages(self, step: ImportStep, address: str, about: str) -> Iterator[Any]:
        page = step.page
        by_number = "" if page is None or page.next is not None else f"{page.parameter}={page.first}"
        answer = self.answers.get(address, about=about, first=by_number)
        if answer is None and not step.optional:
            raise FileError(f"there is no answer to `{address}`")
        if page is None or answer is None:
            yield answer
            return
        pages = _Pages(page, address, self._value)
        for _ in range(PAGES):
            mark = pages.next_mark(answer)  # before the steps change it
            yield answer
            if mark is None:
                return
            answer = self.answers.get(address, f"{page.parameter}={quote(mark, safe='')}", about)
            if answer is None:
                raise FileError(f"there is no answer to `{address}` with `{page.parameter}={mark}`, a further page")
        raise FileError(f"`{address}` has more than {PAGES:,} pages")

    def _value(self, expression: Expression, data: object) -> Any:
        try:
            return expression.of(data)
        except JMESPathError as error:
            reason = str(error).splitlines()[0]
            raise FileError(f"{self.document.path}: `{expression.text}` does not fit an answer: {reason}") from error

    def _row(self, table: str, cells: Mapping[str, Template], values: Mapping[str, Any]) -> None:
        row: Row = {}
        problem = ""
        self.found.has_rows = True
        for name, cell in cells.items():
            if cell.optional and values.get(cell.optional) in (None, ""):
                continue
            try:
                if name in ENTITY_COLUMNS:
                    object_ = cell.path(values, self.document.names.wildcards)
                    row[name] = self.document.names.entity(object_, self._program.entities)
                else:
                    row[name] = cell.principal(values) if name in _PRINCIPAL_COLUMNS else cell.plain(values)
            except TemplateError as error:
                row[name] = cell.text
                problem = problem or str(error)
        if problem:
            self._note_row(table, row, "missing-value", problem)
            return
        if any(map(self.document.names.changes, row.values())):
            self._note_row(table, row, "macro", f"it {CHANGES}")
            return
        if not self._everyone.isdisjoint(row.values()):
            group = self._program.semantics.everyone
            if group is None:
                self._note_row(table, row, "everyone", "the policy declares no group that everyone is in")
                return
            row = {name: f"group:{group}" if cell in self._everyone else cell for name, cell in row.items()}
        column = next((name for name in ENTITY_COLUMNS if name in row), None)
        if column is None or not self.document.names.stands_for_several(row[column]):
            self.found.row(table, row)
            return
        matched = self._matched(row[column])
        if not matched:
            reasons = ("no list of entities was given to expand it", "no entity of the list matches it")
            self._note_row(table, row, "wildcard", reasons[bool(self._entities)])
            return
        self.found.translated[f"`{row[column]}` stands for {len(matched):,} entities of the list"] = None
        for entity in matched:
            self.found.row(table, {**row, column: str(entity)})

    def _note_row(self, table: str, row: Row, name: str, why: str) -> None:
        denies = _denies(self._program, table, row)
        self.found.not_taken[UntranslatedItem(what=_row_text(table, row), why=why, denies=denies, name=name)] = None

    def _matched(self, pattern: str) -> list[Entity]:
        type_, _, path = pattern.partition(":")
        pattern_ = _pattern(path, self.document.names.wildcards)
        return [entity for entity in self._entities.get(type_, ()) if pattern_.fullmatch(entity.id)]


def _checked(program: Program, document: ImportDocument, found: _CollectedRows) -> ImportResult:
    """The rows that are valid for the policy; the others are reported as not taken."""
    tables = {table: [dict(cells) for cells in rows] for table, rows in found.rows.items()}
    state, findings = validate(program, from_tables(tables, document.path))
    not_taken = dict(found.not_taken)
    findings_by_row: dict[tuple[str, int], list[StateFinding]] = {}
    for finding in findings:
        if finding.severity != "error":
            continue
        findings_by_row.setdefault((finding.place.table, finding.place.row), []).append(finding)
    for (table, number), of_row in findings_by_row.items():
        row = tables[table][number - 1] if number else {}
        item = UntranslatedItem(
            what=_row_text(table, row),
            why="; ".join(finding.message for finding in of_row),
            denies=_denies(program, table, row) or any(finding.stops(program) for finding in of_row),
            name=of_row[0].name,
        )
        not_taken[item] = None
    return ImportResult(
        state=state,
        taken={table: len(getattr(state, table)) for table in tables},
        translated=tuple(found.translated),
        not_taken=tuple(not_taken),
    )


def _row_text(table: str, row: Row) -> str:
    return f"{table}: {', '.join(f'{name} {cell}' for name, cell in row.items())}"


def _lookup_names(step: ImportStep) -> Iterator[str]:
    """The names of the look-ups of a step and of the steps in it."""
    yield from step.keep
    for inner in step.steps:
        yield from _lookup_names(inner)


def _denies(program: Program, table: str, row: Row) -> bool:
    """Return whether a row denies, or gives a right that may be denied."""
    if table == "grants":
        return row.get("effect", "allow") != "allow"
    return table in {"assignments", "memberships"} and program.semantics.deny != "none"


@cache
def _pattern(path: str, wildcards: str) -> re.Pattern[str]:
    """A path with wildcards: `*` any signs of one name, `?` any one."""
    signs = {"*": "[^/]*", "?": "[^/]", "%": "[^/]*"}
    return re.compile("".join(signs[sign] if sign in wildcards else re.escape(sign) for sign in path))
