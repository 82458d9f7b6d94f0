"""Turns the tables of a page into a policy: it reads cells whose meaning is plain, and reports every other cell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Literal, NamedTuple

from privtab.base import Diagnostic, FindingKind, Severity, SourceFile, Span, UsageError, did_you_mean, listed_names
from privtab.language import cell_names
from privtab_pages.conditions import asks_more, condition, limits, privileges_of, quoted
from privtab_pages.draft import NOBODY, Draft, row_title
from privtab_pages.matrix import MatrixReader
from privtab_pages.names import FOOTNOTE, Names, identifier, without_notes
from privtab_pages.role_names import all_powerful
from privtab_pages.shapes import COLUMNS, FORMS, HEADINGS, RIGHTS, Form, Shape, Shapes, all_columns
from privtab_pages.tables import STRUCK, Cell, Table, parts, with_routes, words

TWICE = FindingKind("T102", "row-twice", Severity.ERROR)
ROOT = "system"
"""The type of rows that no column and no heading says the type of."""
_WORD = re.compile(r"\w")
_UNREAD = re.compile(r"~~|\^|\u27e6")
"""A part of a heading that is struck out, raised or a picture."""
_SEVERAL = re.compile("[/&,]")
_COMMON = words(
    "a access grants guide available actions an and api apis authorization based built by capabilities check checks control default each for important in its level levels list matrix member members note of on operations overview permission permissions privilege privileges rbac reference required requirements rights role roles security supported table tables tip the to user users warning what which who with your"
)
"""Words of headings that name no type."""
_CODES = words("value id # no. number bit bits code hex key position index")
"""Headings of columns of numbers, which ask for nothing."""
_CODE = re.compile(r"(?:0x[0-9a-f]+|[\d\s()<>#.-])+", re.IGNORECASE)
_OBTAINED = re.compile(r"\b(?:obtain|assign|depend|manage|grant)", re.IGNORECASE)
"""Headings that say how a role is had, which limits none of its actions."""
_MEMBERS = re.compile(r"\bmembers?\b", re.IGNORECASE)
_CALL = re.compile(r"[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)?")
_CALLS = re.compile(r"[/,;]\s*|\s+")


class _Row(NamedTuple):
    """The operations of a row of the page."""

    types: Sequence[str]
    operations: Sequence[tuple[str, str]]
    parts: Mapping[str, Cell]
    condition: str | None
    """The condition of the row, with the policy's names; None if it was not read."""
    objects: Mapping[str, str]
    """The type of each further object that it is required on."""

    @property
    def said(self) -> str:
        """The effects of the row, as the page has them."""
        return self.parts["effects"].line if "effects" in self.parts else ""


@dataclass(kw_only=True)
class TableReader:
    """Reads privilege tables into one policy."""

    system: str
    version: str
    document: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """The name of a column for each part of a row whose column has another name than HEADINGS say."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The names of the policy for names of the page: `program` for `Programs`."""
    inside: Mapping[str, str] = field(default_factory=dict)
    """The type that contains each; the others are roots."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """Names that stand for several privileges: `READ,WRITE`."""
    accepted: Collection[str] = ()
    """The parts that may be left out, by the names that findings give them."""
    entity: str = ""
    """The type of tables in which no column says it; else their headings do."""
    shape: Form | None = None
    several: Literal["", "any", "all"] = ""
    """The condition of an operation with several rows: that one of them holds, or all."""
    found: list[Diagnostic] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    """A line for each table that was read: as what."""
    unread: list[str] = field(default_factory=list)
    """The tables that are not read, each with the reason."""
    spans: dict[int, Span] = field(default_factory=dict)
    """The places of rows, by the line that is their source; 0 for the first table."""

    def read(self, tables: Sequence[Table], lines: Sequence[str] = ()) -> str | None:
        """The policy as YAML, without the rows that could not be read whole; None if no table is one of privileges.

        `lines`: the text of the page beside the tables, in which marks are explained.
        """
        each = [with_routes(part) for table in tables for part in parts(table)]
        pairs = (row.cells for table in each if not table.lost for row in table.rows if len(row.cells) == 2)
        lines = [*lines, *(f"{key.line} = {meaning.line}" for key, meaning in pairs)]  # legends stand in tables, too
        shapes = Shapes(columns=self.columns, wanted=self.shape, lines=lines)
        shape_of = [(table, f"is {table.lost}" if table.lost else shapes.of(table)) for table in each]
        chosen = [(table, shape) for table, shape in shape_of if isinstance(shape, Shape)]
        self.unread = [f"table `{table.heading}` {why}" for table, why in shape_of if isinstance(why, str)]
        if not chosen:
            return None
        self._names = Names(given=self.names, accepted=self.accepted, found=self.found)
        self.draft = Draft(
            system=self.system, version=self.version, document=self.document, inside=dict(self.inside), sets=self.sets
        )
        self._unknown: dict[str, Cell] = {}
        self.spans = {0: chosen[0][0].first.span}
        matrices = MatrixReader(names=self._names, draft=self.draft, lines=lines)
        rows: list[_Row] = []
        for table, shape in shape_of:
            if isinstance(shape, str):
                self._not_read(table, shape)
                continue
            self.forms.append(f"{table.heading or 'table'}: read as {self._shown(table, shape)}")
            self._seen(table.header.cells)
            read = [row for row in table.rows if self._seen(row.cells)]
            said = {*shape.columns.values(), *(() if shape.form in COLUMNS else shape.marked)}
            heads = map(table.header.cell, sorted(said))
            if [head for head in heads if (notes := without_notes(head)[1]) and not self._noted(head, notes)]:
                read = []  # a footnote of a heading may say more of each row
            missed = list(self._missed(table, shape))
            if shape.form in ("requires", "marks"):
                rows += self._rows(table, shape, missed, {*map(id, read)})
            elif scope := self._type_of_table(table, strict=False):
                matrices.read(
                    table, shape, scope, {id(row) for row in read if not any(row.cell(at).text for at in missed)}
                )
        if (role := all_powerful(lines, self.system)) and role not in self.draft.roles:
            self.draft.everything = role
            self.forms.append(
                f"as the page says, each {role} may do everything: read as service administrators, whom a gate admits"
            )
        for name in (*self.inside, *self.inside.values()):
            self.draft.titles.setdefault(name, "")
        self._write(rows)
        for name, cell in self._unknown.items():
            if name not in self.draft.privileges:
                message = f"`{name}` is no privilege that a row of the page requires"
                self._names.refuse(cell, message, f"if it stands for several: `--set {name}=READ,WRITE`")
        self.spans |= matrices.spans
        if not self.draft.rows and not self.found:
            self._names.refuse(chosen[0][0].first, "the table has no row")
        return self.draft.policy()

    def on_page(self, finding: Diagnostic, policy: SourceFile) -> Diagnostic:
        """A finding of the policy that was read, at the condition of the page that it comes from."""
        begin = policy.starts[finding.span.line - 1] + finding.span.column - 1
        row = re.compile(r"\bsource: (\d+)").search(policy.text, begin)
        span = self.spans.get(int(row[1]) if row else 0, self.spans[0])
        return replace(finding, span=span, fix=None, related=())

    def without(self, findings: Sequence[Diagnostic]) -> str | None:
        """The policy in which the rows of these findings, on the page, refuse all; None if they lie in no other row."""
        lines = {finding.span.line for finding in findings}
        rows = [row for rows in self.draft.rows.values() for row in rows.values()]
        wrong = [row for row in rows if row["source"] in lines and row["requires"] != NOBODY]
        for row in wrong:
            row["requires"] = NOBODY
            row.pop("grants", None)
            row.pop("with", None)
        return self.draft.policy() if wrong else None

    def _not_read(self, table: Table, why: str) -> None:
        name = table.heading.strip("~ ") or table.first.line or "".join(text for _, text in table.first.lost).strip()
        name = f"sheet {table.sheet}" if table.sheet else f"table {name or 'without a name'}"
        self._names.leave_out(table.first, name, f"{name} is not read: it {why}")

    def _shown(self, table: Table, shape: Shape) -> str:
        marks = shape.marks
        cells = [row.cell(at) for row in table.rows for at in shape.marked]
        allowing = sum(bool(marks and marks.allows(without_notes(cell)[0])) for cell in cells)
        numbers = f", {len(shape.marked)} {COLUMNS[shape.form]}, {allowing} marks" if shape.form in COLUMNS else ""
        return f"{FORMS[shape.form]}, {len(table.rows)} rows{numbers}"

    def _type_of_table(self, table: Table, *, strict: bool) -> str | None:
        """The type that the headings of a table say, or the one root type; None, and a finding, for a heading that is not plain."""
        if self.entity:
            self.draft.titles.setdefault(self.entity, "")
            return self.entity
        titles = [re.sub(r"\([^()]*\)", "", title).strip() for title in reversed(table.headings)]
        if not strict:  # `Project permissions` says where roles are held, also for the tables below its other headings
            titles.sort(
                key=lambda title: (not (_MEMBERS.search(title) and RIGHTS.search(title)), not RIGHTS.search(title))
            )
        for title in titles:
            cell = Cell(title, table.first.span)
            if title in self.names:
                return self._type(cell)[0]
            named = [word for word in re.findall(r"\w+", title) if word.lower() not in _COMMON]
            plain = title.isascii() and not _SEVERAL.search(title)
            if _UNREAD.search(title) or (strict and not plain and len(named) in (1, 2)):
                message = f"nothing says for sure what the rows below `{title}` are about"
                self._names.refuse(cell, message, "name their type: `--entity TYPE`")
                return None
            if plain and len(named) in (1, 2) and identifier(" ".join(named)):
                found = self._type(Cell(" ".join(named), table.first.span))
                return found[0] if found else None
        self.draft.titles.setdefault(ROOT, "")
        return ROOT

    def _rows(self, table: Table, shape: Shape, missed: Sequence[int], read: Collection[int]) -> Iterator[_Row]:
        """The rows of a table that name operations."""
        columns = shape.columns
        entity = Cell("", table.first.span)
        numbered = _numbered(table, columns["operation"])
        listed = columns["operation"] == columns.get("requires")
        calls = _are_calls(table, columns["operation"])
        scope = None if "entity" in columns else self._type_of_table(table, strict=True)
        if scope is None and "entity" not in columns:
            return
        for row in table.rows:
            cells = [*row.cells, *[Cell("", row.cells[0].span)] * len(table.header.cells)]
            whole = id(row) in read and not any(cells[at].text for at in missed if at < len(cells))
            parts = {part: cells[at] for part, at in columns.items()}
            if listed:
                parts["operation"] = Cell(*parts["requires"])
            if (first := parts.get("entity")) and (first.text or first.lost):
                entity = first
            elif first and columns["entity"] > columns["operation"]:
                entity = first._replace(text=ROOT)  # types that are said behind an operation are said of it alone
            marked = [cells[at] for at in shape.marked]
            stated = [cell for part, cell in parts.items() if cell.text and part != "entity"]
            stated += [cell for cell in marked if cell.text]
            if not stated:
                continue
            called = parts["operation"]
            if called.bold and (row.spans or (shape.marked and len(stated) == 1)):
                continue  # a heading within the table
            if len({*map(id, (*stated, entity))}) <= len(stated) and not shape.marked:
                self._names.refuse(stated[0], "one cell stands under several headings")
            elif not _WORD.search(called.text):
                text = " | ".join(cell.line for cell in row.cells)
                self._names.refuse(stated[0], f"`{text}` names no operation", "write the operation in its cell")
            elif not entity.text and scope is None:
                message = f"nothing says what `{called.line}` is done to"
                self._names.refuse(called, message, "write the type as a heading or in a column `Entity`")
            elif types := [scope] if scope else self._types(entity, listed=listed):
                operations = self._operations(called, types[0], numbered=numbered, calls=calls)
                if operations is None:
                    continue
                objects: dict[str, str] = {}
                if shape.marked:
                    found = self._marked(table, shape, cells, types[0], objects)
                else:
                    found = self._required(parts["requires"])
                hidden = [
                    part for part in ("requires", "effects") if part in parts and not self._names.plain(parts[part])
                ]
                whole &= self._asks_no_more(parts.get("note"), table.header.cell(columns.get("note", 0)), listed=listed)
                where = parts.get("requires", called)
                yield _Row(
                    types, operations, {"requires": where, **parts}, found if whole and not hidden else None, objects
                )

    def _asks_no_more(self, note: Cell | None, head: Cell, *, listed: bool) -> bool:
        if note is None or not (limits(note.text, "description") if listed else asks_more(note.text)):
            return True
        return self._names.leave_out(note, head.line, f"`{head.line}` says `{note.line[:160]}`, which may ask for more")

    def _operations(self, cell: Cell, type_: str, *, numbered: bool, calls: bool) -> list[tuple[str, str]] | None:
        """The names of operations in a cell; None, and a finding, if it has none, or a footnote that may ask for more."""
        text, notes = (cell.text, cell.notes) if numbered else without_notes(cell)
        if calls and len(parts := _CALLS.split(text.strip())) > 1 and all(map(_CALL.fullmatch, parts)):
            return [
                name for part in parts for name in self._names.of(cell._replace(text=part), "operation", within=type_)
            ]
        if not numbered and notes and not self._noted(cell, notes):
            return None
        return self._names.of(cell._replace(text=text), "operation", within=type_) or None

    def _noted(self, cell: Cell, notes: Sequence[str]) -> bool:
        message = f"`{cell.line}` has the footnote `{notes[0]}`, which may ask for more"
        return self._names.leave_out(cell, FOOTNOTE, message)

    def _marked(
        self, table: Table, shape: Shape, cells: Sequence[Cell], type_: str, objects: dict[str, str]
    ) -> str | None:
        """All the privileges whose columns are marked in a row; None, and a finding, if a mark is not plain or there is none.

        A privilege in a column is required on a further object, called as the column, which is added to `objects`.
        """
        assert shape.marks is not None
        required = []
        for at in shape.marked:
            column = table.header.cells[at]
            allowed, names = shape.marks.allows(cells[at].text), privileges_of(cells[at].text)
            if not (allowed is False or ((allowed or names) and not (column.notes or without_notes(column)[1]))):
                message = (
                    f"`{column.line}` of `{cells[shape.columns['operation']].line}`: cannot read `{cells[at].line}`"
                )
                self._names.refuse(cells[at], message, _HELP)
                return None
            if allowed and identifier(column.text) in ("owner", "ownership"):
                required.append("owner (entity)")
                self.draft.owners = True
            elif names and allowed is None:
                self.draft.privileges |= dict.fromkeys(names, "")
                held = f"{identifier(column.text)}_object"
                objects[held] = type_
                required += [f"{quoted(name)} ({held})" for name in names]
            elif allowed:
                name = identifier(column.text).upper()
                self.draft.privileges.setdefault(name, "" if name == column.line.upper() else column.line)
                required.append(f"{name} (entity)")
        if not required:
            self._names.refuse(cells[0], f"nothing says what `{cells[0].line}` requires", _HELP)
        return " and ".join(required) or None

    def _required(self, cell: Cell) -> str | None:
        """The condition of a cell with the policy's names."""
        text, notes = without_notes(cell)
        if notes and not self._noted(cell, notes):
            return None
        return self._text(cell, condition(text, column=True), "condition")

    def _seen(self, cells: Sequence[Cell]) -> bool:
        """Return whether all text of a row is there, but for parts that may be left out."""
        whole = True
        for cell in dict.fromkeys(cells):
            for state in dict.fromkeys(state for state, _ in cell.lost):
                text = " ".join("".join(text for other, text in cell.lost if other == state).split())
                message = f"`{text}` is not read: it is {'struck out' if state == STRUCK else 'hidden'}"
                whole &= self._names.leave_out(cell, state, message)
        return whole

    def _missed(self, table: Table, shape: Shape) -> Iterator[int]:
        """The columns with text that hold no part of a row, and that nobody said to leave out."""
        for at, cells in all_columns(table):
            first = next((cell for cell in cells if cell and cell.text), None)
            if first is None or at in shape.columns.values() or at in shape.marked:
                continue
            heading = cells[0].line if cells[0] else ""
            if heading.lower() in _CODES and all(
                _CODE.fullmatch(cell.text) for cell in cells[1:] if cell and cell.text
            ):
                continue
            part = next((part for part, known in HEADINGS.items() if heading.lower() in known), "note")
            also = "" if part in ("note", *self.columns) else f", and may hold the part `{part}`, too"
            advice = f"; or say what it holds: `--column {part}={quote(heading)}`" if heading else ""
            name, had = heading or f"column {at + 1}", shape.form == "permissions" and _OBTAINED.search(heading)
            why = "it says how roles are had" if had else f"it may ask for more{also}"
            if not self._names.leave_out(first, name, f"the column `{name}` is not read: {why}", advice) and not had:
                yield at

    def _type(self, cell: Cell) -> list[str]:
        """The types that a cell or a heading names; types that another text also names are not merged."""
        text, notes = without_notes(cell)
        if notes and not self._noted(cell, notes):
            return []
        found = self._names.of(cell._replace(text=text), "type")
        for name, title in found:
            self.draft.titles.setdefault(name, title)
        return [name for name, _ in found]

    def _types(self, cell: Cell, *, listed: bool) -> list[str]:
        """The types that a cell names, which lists several where privileges are listed with what they are granted on."""
        parts = (
            [cell._replace(text=text) for text in re.split(r"[,;\n]|\band\b|\bor\b", cell.text)] if listed else [cell]
        )
        return [name for part in parts if part.text.strip() for name in self._type(part)]

    def _write(self, rows: Sequence[_Row]) -> None:
        """Write the rows whose operations have one condition, or several that are to be combined."""
        named = [(type_, operation, row) for row in rows for type_ in row.types for operation in row.operations]
        different = {(type_, name, row.condition, row.said) for type_, (name, _), row in named}
        times = Counter((type_, name) for type_, name, *_ in different)
        refused, written = set(), set()
        marked = {(type_, name) for type_, written in self.draft.rows.items() for name in written}
        for type_, (name, title), row in named:
            cell, same = row.parts["requires"], (type_, name, row.condition, row.said)
            if same in written:
                continue
            written.add(same)
            if (times[type_, name] > 1 and not self.several) or (type_, name) in marked:
                advice = "say whether one of them suffices: `--several any`, or `--several all`"
                self.found.append(TWICE.at(cell.span, f"`{type_}` has several rows `{name}`", advice))
                self._refuse_row(type_, name, title, cell)
                refused |= marked & {(type_, name)}
            elif not self._write_row(self.draft.rows.setdefault(type_, {}), name, title, row):
                self._refuse_row(type_, name, title, cell)
                refused |= {(type_, name)} if self.several == "all" else set()  # the others say too little
        for type_, name in refused:
            self.draft.rows[type_][name]["requires"] = NOBODY
            self.draft.deny(type_, name)

    def _refuse_row(self, type_: str, name: str, title: str, cell: Cell) -> None:
        """Write a row that refuses all, for an operation whose condition is not read."""
        row = {**row_title(name, title), "requires": NOBODY, "source": cell.span.line}
        self.draft.rows.setdefault(type_, {}).setdefault(name, row)
        self.spans[cell.span.line] = cell.span

    def _write_row(self, written: dict[str, dict[str, object]], name: str, title: str, row: _Row) -> bool:
        cell, effects = row.parts["requires"], row.parts.get("effects")
        grants = self._text(effects, effects.line, "effects") if effects and effects.text else ""
        if grants is None or row.condition is None:
            return False
        required = row.condition
        if name in written and written[name]["requires"] != NOBODY:
            required = f"({written[name]['requires']}) {'or' if self.several == 'any' else 'and'} ({required})"
        self.spans[cell.span.line] = cell.span
        note = row.parts["note"].line if "note" in row.parts else ""
        written[name] = {
            **row_title(name, title),
            **({"with": dict(row.objects)} if row.objects else {}),
            "requires": required,
            **({"grants": grants} if grants else {}),
            **({"note": note} if note else {}),
            "source": cell.span.line,
        }
        return True

    def _text(self, cell: Cell, text: str, kind: Literal["condition", "effects"]) -> str | None:
        """A condition or effects with the policy's names; None, and a finding, if some name is unknown or it follows no pattern."""
        names = cell_names(text, kind)
        if isinstance(names, str):
            self._names.refuse(cell, f"cannot read `{cell.line}`: {names}", _HELP)
            return None
        targets = [use.name for use in names if use.kind == "target"]
        self.draft.owners |= any(use.kind == "owner" for use in names)
        for name in (use.name for use in names if use.kind == "privilege"):
            if name.text not in self.sets and kind == "condition":
                self.draft.privileges.setdefault(name.text, "" if name.text in cell.line else cell.line)
            elif name.text not in (*self.sets, *self.draft.privileges):
                self._unknown[name.text] = cell
        known = {**dict.fromkeys(self.draft.titles), "entity": None, "parent": None}
        for target in reversed(targets):
            type_ = self.names.get(target.text, target.text)
            type_ = type_ if type_ in known else identifier(type_)
            if type_ not in known:
                hint = did_you_mean(type_, known) or f"the types are {listed_names(list(self.draft.titles))}"
                message = f"cannot read `{cell.line}`: `{target.text}` is no type"
                self._names.refuse(cell, message, f"{hint}; or name it by `--name {target.text}=TYPE`")
                return None
            text = text[: target.start] + type_ + text[target.end :]
        return text


_HELP = "write it as the language does: `READ (table)`, `READ/WRITE (table)`, `owner (schema) and USE (catalog)`"


def _numbered(table: Table, at: int) -> bool:
    """Return whether all names of a column end in a number, which is then no footnote."""
    cells = [row.cell(at) for row in table.rows if row.cell(at).text]
    return len(cells) > 2 and all(re.search(r"\(\d+\)$", cell.text) for cell in cells)


def _are_calls(table: Table, at: int) -> bool:
    """Return whether the names of a column are those of calls, `ListTables`, of which a cell may have several."""
    texts = [row.cell(at).text for row in table.rows]
    return sum(bool(re.fullmatch(r"(?:[A-Z][a-z0-9]+){2,}", text)) for text in texts) > max(2, len(texts) // 3)


def no_table(path: str, tables: Sequence[Table], why: Sequence[str]) -> UsageError:
    """The reasons why no table of a page can be read, as an error."""
    headers = [
        ", ".join(f"`{cell.text}`" for cell in table.header.cells if cell.text) for table in tables if not table.lost
    ]
    if not headers:
        return UsageError(f"{path} has no table{' that can be seen' if tables else ''}")
    return UsageError(
        f"no table of {path} is read: {'; '.join(why)} (columns: {'; '.join(headers)}): "
        "name columns by `--column operation=NAME` and `--column requires=NAME`"
    )
