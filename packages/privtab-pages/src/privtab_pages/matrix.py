"""Matrices of marks: which roles may do what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from privtab.base import Span
from privtab_pages.draft import Draft, Mark, row_title
from privtab_pages.marks import Marks, verbs
from privtab_pages.names import FOOTNOTE, Names, without_notes
from privtab_pages.shapes import Shape
from privtab_pages.tables import Cell, Row, Table, joined

_HELP = "write a mark that allows or denies; the role is denied"


Key: TypeAlias = tuple[str, str]
"""An operation: (entity type, operation)."""


class _Action(NamedTuple):
    """A row of a matrix, or an action that cells of a row list."""

    entity: Cell | None
    category: str
    called: Cell
    cells: Sequence[Cell]
    note: str
    said: Sequence[bool | None]
    """The answer of each role's cell; None for a cell that is not read."""


@dataclass(kw_only=True)
class MatrixReader:
    """Reads matrices into a draft: each action requires a privilege of its own, which the roles with a mark have."""

    names: Names
    draft: Draft
    lines: Sequence[str]
    spans: dict[int, Span] = field(default_factory=dict)

    def read(self, table: Table, shape: Shape, scope: str, whole: Collection[int]) -> None:
        """Read a table whose roles are held on `scope`; `whole`: the rows that are read whole, of which the others allow nothing."""
        if shape.form == "grants":
            complete = all(id(row) in whole for row in table.rows)
            table, shape = _turned(table, shape)
            whole = {*map(id, table.rows)} if complete else ()
        roles: dict[int, tuple[str, ...]] = {}
        for at in shape.marked:
            cell = table.header.cells[at]
            text, notes = without_notes(cell)
            named = self.names.of(cell._replace(text=text), "role")
            certain = not notes or self._noted(cell, notes)
            if named and self.draft.roles.setdefault(named[0][0], named[0][1]):
                roles[at] = (named[0][0], "" if certain else notes[0])
        actions = [*self._actions(table, shape, roles, whole)]
        texts = Counter((_text(action.entity), action.called.line.lower()) for action in actions)
        before = {(type_, name) for type_, written in self.draft.rows.items() for name in written}
        for action in actions:
            twice = texts[_text(action.entity), action.called.line.lower()] > 1
            self._write(action, roles, scope, before, prefix=action.category if twice else "", heading=table.heading)

    def _actions(
        self, table: Table, shape: Shape, roles: dict[int, tuple[str, ...]], whole: Collection[int]
    ) -> Iterator[_Action]:
        assert shape.marks is not None
        category, entity, columns = "", None, shape.columns
        label = columns.get("operation", columns.get("entity", 0))
        cells = [row.cell(at) for row in table.rows for at in roles]
        explicit = any(cell.text and shape.marks.allows(cell.text) is False for cell in cells)
        for row in table.rows:
            called = row.cell(label)
            if "category" in columns and (text := row.cell(columns["category"]).line):
                category = text
            if "entity" in columns and "operation" in columns and row.cell(columns["entity"]).text:
                entity = row.cell(columns["entity"])
            if not called.text:
                if _filled(row, roles):
                    self.names.refuse(row.cells[0], "a row of marks names no action", "write the action in its cell")
                continue
            spans = len({*map(id, row.cells)}) == 1 and len(row.cells) > 1
            if spans or (not _filled(row, roles) and (explicit or called.bold)):
                category = called.line
                continue
            cells = [row.cell(at) for at in roles]
            note = row.cell(columns["note"]).line if "note" in columns else ""
            if id(row) not in whole:
                yield _Action(entity, category, called, cells, note, [None] * len(cells))
            elif shape.lists and any(verbs(without_notes(cell)[0]) for cell in cells):
                yield from self._listed(called, category, cells, note, shape.marks)
            else:
                heads = [table.header.cells[at] for at in roles]
                pairs = zip(heads, cells, strict=True)
                said = [self._said(f"`{head.line}` of `{called.line}`", cell, shape.marks) for head, cell in pairs]
                yield _Action(entity, category, called, cells, note, said)

    def _listed(self, entity: Cell, category: str, cells: Sequence[Cell], note: str, marks: Marks) -> Iterator[_Action]:
        """An action for each that the cells of a row list; an action with a footnote is reported, and denied."""
        listed: dict[str, dict[int, bool | None]] = {}
        for number, cell in enumerate(cells):
            for line in cell.text.split("\n") if marks.allows(cell.text) is not False else ():
                text, notes = without_notes(cell._replace(text=line))
                certain = bool(verbs(text)) and (not notes or self._noted(cell, notes))
                if not verbs(text):
                    self.names.refuse(cell, f"`{entity.line}`: cannot read `{line}`", _HELP)
                for verb in verbs(text) or ():
                    listed.setdefault(verb.lower(), {})[number] = True if certain else None
        for verb, by in listed.items():
            said = [by.get(number, False) for number in range(len(cells))]
            yield _Action(entity, category, entity._replace(text=verb, notes=()), cells, note, said)

    def _said(self, where: str, cell: Cell, marks: Marks) -> bool | None:
        """The answer of a cell: True, False, or None, and a finding, for a cell that is no plain mark."""
        text, notes = without_notes(cell)
        allowed = marks.allows(text)
        if allowed is None or (notes and not text):
            self.names.refuse(
                cell, f"{where}: cannot read `{cell.line or notes[0]}`", _HELP + self._explained((text, *notes))
            )
            return None
        message = f"{where}: `{cell.line}` has a footnote, which may say more"
        return allowed if not notes or self.names.leave_out(cell, FOOTNOTE, message, self._explained(notes)) else None

    def _write(
        self,
        action: _Action,
        roles: dict[int, tuple[str, ...]],
        scope: str,
        before: Collection[Key],
        *,
        prefix: str,
        heading: str,
    ) -> None:
        type_ = scope
        if action.entity is not None:
            text, notes = without_notes(action.entity)
            named = self.names.of(action.entity._replace(text=text), "type")
            if not named or (notes and not self._noted(action.entity, notes)):
                return
            type_, title = named[0]
            self.draft.titles.setdefault(type_, title)
            if type_ != scope:
                self.draft.inside.setdefault(type_, scope)
        text, notes = without_notes(action.called)
        certain = not notes or self._noted(action.called, notes)
        for operation, title in self.names.of(
            action.called._replace(text=text), "operation", within=type_, prefix=prefix
        ):
            if (type_, operation) in before and heading and not prefix:  # of another table
                self._write(action, roles, scope, before, prefix=heading, heading=heading)
                continue
            if operation in self.draft.rows.get(type_, {}):
                self.names.refuse(
                    action.called, f"`{type_}` has several rows `{operation}`", "name it: `--name TEXT=NAME`"
                )
                self.draft.deny(type_, operation)
                continue
            privilege, line = operation.upper(), action.called.span.line
            self.spans[line] = action.called.span
            self.draft.privileges.setdefault(privilege, "")
            self.draft.rows.setdefault(type_, {})[operation] = {
                **row_title(operation, title),
                "requires": f"{privilege} ({type_})",
                **({"note": action.note} if action.note else {}),
                "source": line,
            }
            for (role, note), cell, allowed in zip(roles.values(), action.cells, action.said, strict=True):
                known = allowed is False or (allowed is True and certain and not note)
                mark = Mark(role, scope, type_, operation, allowed=bool(allowed), span=cell.span)
                self.draft.allow(mark, certain=known)

    def _noted(self, cell: Cell, notes: Sequence[str]) -> bool:
        message = f"`{cell.line}` has the footnote `{notes[0]}`, which may ask for more: nobody is allowed by it"
        return self.names.leave_out(cell, FOOTNOTE, message, self._explained(notes))

    def _explained(self, notes: Sequence[str]) -> str:
        """The words of the page about a footnote."""
        marks = {note.strip("()[]^* ") or "*" for note in notes if note}
        found = next((line for line in self.lines if line.lstrip("([^").split(" ")[0].rstrip(".)]:") in marks), "")
        return f"; the page says: {joined(found)[:160]}" if found else ""


def _filled(row: Row, columns: Collection[int]) -> bool:
    return any(row.cell(at).text or row.cell(at).lost for at in columns)


def _text(cell: Cell | None) -> str:
    return cell.line.lower() if cell else ""


def _turned(table: Table, shape: Shape) -> tuple[Table, Shape]:
    """A matrix of roles x privileges as one of actions x roles."""
    label = shape.columns["operation"]
    rows = [row for row in table.rows if row.cell(label).text]
    header = Row(cells=(table.header.cell(label), *(row.cell(label) for row in rows)))
    turned = tuple(
        Row(cells=(table.header.cell(at)._replace(bold=False), *(row.cell(at) for row in rows))) for at in shape.marked
    )
    marked = range(1, len(rows) + 1)
    return replace(table, header=header, rows=turned), replace(shape, columns={"operation": 0}, marked=marked)
