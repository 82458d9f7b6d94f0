"""Matrices of marks: which roles may do what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, TypeAlias

from privtab.base import Span
from privtab_pages.conditions import limits
from privtab_pages.draft import Draft, Mark, row_title
from privtab_pages.marks import Marks
from privtab_pages.names import FOOTNOTE, Names, without_notes
from privtab_pages.normal_form import normal_form
from privtab_pages.role_names import AND_ABOVE, ROLE, ranked, roles_in
from privtab_pages.shapes import LEAST, Shape
from privtab_pages.tables import Cell, Row, Table, joined

_HELP = "write a mark that allows or denies; the role is denied"


Key: TypeAlias = tuple[str, str]
"""An operation: (entity type, operation)."""


class _Roles(NamedTuple):
    """The roles of a column; not certain if its heading has a footnote that nobody accepted."""

    names: Sequence[str]
    certain: bool


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
        rows = [self._stated(table, shape, row, whole=id(row) in whole) for row in table.rows]
        ranks = ranked(self.lines)
        head = table.header.cell(shape.marked[0])
        if shape.form == "holders" and LEAST.search(head.line) and not ranks:
            message = f"nothing says which roles are above those in `{head.line}`: these alone are allowed"
            self.names.leave_out(head, head.line, message)
        table, shape = normal_form(replace(table, rows=tuple(rows)), shape, ranks)
        roles = {at: found for at in shape.marked if (found := self._roles(table.header.cell(at), ranks)).names}
        times = Counter(name for found in roles.values() for name in found.names)
        for at, found in roles.items():
            if twice := [name for name in found.names if times[name] > 1]:
                self.names.refuse(table.header.cell(at), f"several columns are of the role `{twice[0]}`")
                roles[at] = _Roles(found.names, certain=False)
        actions = [*self._actions(table, shape, roles)]
        texts = Counter((_text(action.entity), action.called.line.lower()) for action in actions)
        before = {(type_, name) for type_, written in self.draft.rows.items() for name in written}
        held = None if shape.form == "permissions" else scope
        for action in actions:
            prefix = action.category if texts[_text(action.entity), action.called.line.lower()] > 1 else ""
            self._write(action, roles, scope, held, before, prefix=prefix, heading=table.heading)

    def _stated(self, table: Table, shape: Shape, row: Row, *, whole: bool) -> Row:
        """A row in which cells say nothing that are not read whole, or that a note may limit."""
        silent = () if whole else shape.marked
        note = row.cell(shape.columns["note"]) if whole and "note" in shape.columns else None
        if note and shape.marks and limits(note.text, head := table.header.cell(shape.columns["note"]).line):
            heads = {at: table.header.cell(at).line for at in shape.marked}
            limited = [at for at in _concerned(note.text, heads) if shape.marks.allows(row.cell(at).text) is not False]
            message = f"`{row.cells[0].line}`: `{head}` says `{note.line[:160]}`, which may ask for more"
            if limited and not self.names.leave_out(note, head, message):
                silent = limited
        cells = [cell._replace(said=cell.said and at not in silent) for at, cell in enumerate(row.cells)]
        return replace(row, cells=tuple(cells)) if silent else row

    def _roles(self, cell: Cell, ranks: Sequence[str]) -> _Roles:
        """The roles of a column, whose heading may name several."""
        text, notes = without_notes(cell)
        certain = not notes or self._noted(cell, notes)
        several = roles_in(text, ranks) or []
        if not (AND_ABOVE.search(text) or (len(several) > 1 and all(map(ROLE.search, several)))):
            several = [text]
        elif not several:
            self.names.refuse(cell, f"nothing says which roles are above `{AND_ABOVE.sub('', text)}`")
        named = [name for role in several for name in self.names.of(cell._replace(text=role), "role")[:1]]
        for name, title in named:
            self.draft.roles.setdefault(name, title)
        return _Roles([name for name, _ in named], certain=certain)

    def _actions(self, table: Table, shape: Shape, roles: Collection[int]) -> Iterator[_Action]:
        assert shape.marks is not None
        category, entity, columns = "", None, shape.columns
        cells = [row.cell(at) for row in table.rows for at in roles]
        explicit = any(cell.text and shape.marks.allows(cell.text) is False for cell in cells)
        for row in table.rows:
            called = row.cell(columns["operation"])
            if "category" in columns and (text := row.cell(columns["category"]).line):
                category = text
            if "entity" in columns and (row.cell(columns["entity"]).text or shape.lists or shape.form == "permissions"):
                entity = row.cell(columns["entity"])
            if not called.text:
                if _filled(row, roles):
                    self.names.refuse(row.cells[0], "a row of marks names no action", "write the action in its cell")
                continue
            if row.spans or (not _filled(row, roles) and (explicit or called.bold)):
                category = called.line
                if limits(category, "description"):
                    self.names.leave_out(called, FOOTNOTE, f"`{category[:160]}` may limit the rows beside it")
                continue
            cells = [row.cell(at) for at in roles]
            heads = ["" if shape.form == "holders" else f"`{table.header.cell(at).line}` of " for at in roles]
            pairs = zip(heads, cells, strict=True)
            name = entity.line if shape.lists and entity and entity.text else called.line
            said = [self._said(f"{head}`{name}`", cell, shape.marks) for head, cell in pairs]
            note = row.cell(columns["note"]).line if "note" in columns else ""
            if (
                1 < len(cells) == len({cell.line for cell in cells})
                and all(cell.said and roles_in(cell.text) for cell in cells)
                and said == [None] * len(said)
            ):
                self.names.refuse(called, f"`{called.line}` may begin another table: nothing below is read")
                return
            yield _Action(entity if entity and entity.text else None, category, called, cells, note, said)

    def _said(self, where: str, cell: Cell, marks: Marks) -> bool | None:
        """The answer of a cell: True, False, or None, and a finding, for a cell that is no plain mark."""
        text, notes = without_notes(cell)
        allowed = marks.allows(text)
        if not cell.said:
            return None
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
        roles: Mapping[int, _Roles],
        scope: str,
        held: str | None,
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
            if held and (type_, operation) in before and heading and not prefix:  # of another table
                self._write(action, roles, scope, held, before, prefix=heading, heading=heading)
                continue
            if held and operation in self.draft.rows.get(type_, {}):
                self.names.refuse(
                    action.called, f"`{type_}` has several rows `{operation}`", "name it: `--name TEXT=NAME`"
                )
                self.draft.deny(type_, operation)
                continue
            privilege, line = operation.upper(), action.called.span.line
            self.spans[line] = action.called.span
            self.draft.privileges.setdefault(privilege, "")
            row = {
                **row_title(operation, title),
                "requires": f"{privilege} ({type_})",
                **({"note": action.note} if action.note else {}),
                "source": line,
            }
            self.draft.rows.setdefault(type_, {}).setdefault(operation, row)
            for of, cell, allowed in zip(roles.values(), action.cells, action.said, strict=True):
                known = allowed is False or (allowed is True and certain and of.certain)
                for role in of.names if held or allowed is not None else ():
                    mark = Mark(role, held or type_, type_, operation, allowed=bool(allowed), span=cell.span)
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


def _concerned(note: str, heads: Mapping[int, str]) -> Collection[int]:
    """The columns whose roles a note names before a colon in each of its lines; else all columns."""
    found: set[int] = set()
    for line in note.split("\n"):
        before, _, after = line.partition(": ")
        named = {*map(_one, roles_in(before) or ())}
        columns = {at: {*map(_one, roles_in(head) or (head,))} & named for at, head in heads.items()}
        if not named or named - {*chain(*columns.values())} or ". " in after:
            return heads
        found |= {at for at, names in columns.items() if names}
    return found


def _one(name: str) -> str:
    return name.lower().rstrip("s")
