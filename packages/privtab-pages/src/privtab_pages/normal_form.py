"""Tables of roles in one form: actions x roles, whose cells are marks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from privtab_pages.marks import ALLOWED, Marks, actions_in
from privtab_pages.names import identifier, without_notes
from privtab_pages.role_names import AND_ABOVE, roles_in
from privtab_pages.shapes import LEAST, Shape
from privtab_pages.tables import Cell, Row, Table, joined

Added: TypeAlias = tuple[Row, Sequence[Cell]]
"""A row, and what is added to it: the type of the row, the action, and a cell for each role."""
_NEGATES = re.compile(
    r"\b(?:no|not|cannot|can't|never|except\w*|exclud\w+|includ\w+|without|minus|other than|apart from|only|unless|but)\b",
    re.IGNORECASE,
)
"""Words by which a part of a text limits or explains the one before it, so that it is no action of its own."""
_INHERITS = re.compile(
    r"(?:everything|all)(?: (?:the )?(?:actions|permissions|privileges|rights|capabilities))?(?: (?:in|of|from|that))? (?:an? |the )?(?P<role>[\w -]+?)(?: roles?)?(?: (?:can(?: do)?|has|have|includes))?(?:,? (?:plus|and(?: also)?)\b:? *(?P<more>.*))?\.?",
    re.IGNORECASE | re.DOTALL,
)
"""A text that gives a role all that another one may do, and more."""
_BULLET = re.compile(r"(?:[-*•]\s+|and\s+)+")


def normal_form(table: Table, shape: Shape, ranks: Sequence[str]) -> tuple[Table, Shape]:
    """A table of roles as a matrix; what a cell does not say has no mark. `ranks`: the roles from the lowest up, if known.

    Columns are added to the right, so that those of types, categories and notes stay where they are.
    """
    if shape.form == "grants":
        return _turned(table, shape)
    if shape.form == "roles" and not shape.lists:
        return table, shape
    assert shape.marks is not None
    width = len(table.header.cells)
    blank = Cell("", table.first.span)
    if shape.form == "holders":
        heads, rows = _of_holders(table, shape, shape.marks, ranks)
    elif shape.form == "permissions":
        heads, rows = _of_permissions(table, shape, shape.marks)
    else:
        heads, rows = [table.header.cell(at) for at in shape.marked], [*_of_lists(table, shape, shape.marks)]
    header = Row(cells=(*table.header.cells, blank, blank, *heads))
    wide = [
        row if row.spans else Row(cells=(*(row.cell(at) for at in range(width)), *added), anchor=row.anchor)
        for row, added in rows
    ]
    entity = {} if shape.form == "holders" else {"entity": width}
    columns = {**shape.columns, **entity, "operation": width + 1}
    marked = range(width + 2, width + 2 + len(heads))
    return replace(table, header=header, rows=tuple(wide)), replace(shape, columns=columns, marked=marked)


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


def _of_lists(table: Table, shape: Shape, marks: Marks) -> Iterator[Added]:
    """A row for each action that the cells of a row list; a cell that lists none, and is no denial, is read for no action."""
    for row in table.rows:
        label, cells = row.cell(shape.columns["entity"]), [row.cell(at) for at in shape.marked]
        listed = [actions_in(cell) for cell in cells]
        actions = dict.fromkeys(action for found in listed for action in found or ())
        for action in actions:
            said = [
                cell
                if marks.allows(cell.text) is False
                else cell._replace(text=f"{cell.line} (of what?)" if found is None else found.get(action, ""))
                for cell, found in zip(cells, listed, strict=True)
            ]
            yield row, (label, label._replace(text=action, notes=(), bold=False), *said)
        if not actions:
            yield row, (label._replace(text=""), label, *cells)


def _of_holders(table: Table, shape: Shape, marks: Marks, ranks: Sequence[str]) -> tuple[list[Cell], list[Added]]:
    """A column for each role that cells name. Roles that are not named are denied only below a least role."""
    (at,) = shape.marked
    head = table.header.cell(at)
    least = bool(ranks and LEAST.search(head.line))
    texts = [without_notes(row.cell(at)) for row in table.rows]
    named = [
        roles_in(f"{text}+" if least and len(roles_in(text) or ()) == 1 and not AND_ABOVE.search(text) else text, ranks)
        for text, _ in texts
    ]
    roles = {identifier(role): role for found in named for role in found or ()}
    rows: list[Added] = []
    for row, found, (text, notes) in zip(table.rows, named, texts, strict=True):
        cell, holders = row.cell(at), {*map(identifier, found or ())}
        if found and marks.allows(text) is None:
            other = cell._replace(text="", said=least and cell.said)
            said = [cell._replace(text=ALLOWED, notes=notes) if role in holders else other for role in roles]
        else:
            empty = "" if cell.bold or not row.cell(shape.columns["operation"]).text else "(nobody?)"
            said = [cell._replace(text=cell.text if marks.allows(text) is None else empty)]
            said += [cell._replace(said=False)] * (len(roles) - 1)
        label = row.cell(shape.columns["operation"])
        rows.append((row, (label, label, *said)))
    return [Cell(role, head.span) for role in roles.values()], rows


def _of_permissions(table: Table, shape: Shape, marks: Marks) -> tuple[list[Cell], list[Added]]:
    """A row for each action that the cells of roles list, and a column for each role."""
    (at,) = shape.marked
    roles: dict[str, Cell] = {}
    found: dict[tuple[str, str], tuple[Row, Cell, Cell, dict[str, Cell]]] = {}
    lower: list[tuple[str, str]] = []
    named = {
        identifier(row.cell(shape.columns["role"]).text): row.cell(shape.columns["role"]).line for row in table.rows
    }
    entity = Cell("", table.first.span)
    for row in table.rows:
        role, cell = row.cell(shape.columns["role"]), row.cell(at)
        if "entity" in shape.columns and (type_ := row.cell(shape.columns["entity"])).text:
            entity = type_
        if row.spans or not (role.text or cell.text):
            continue
        roles.setdefault(role.line, role)
        text = cell.text
        if (of := _INHERITS.fullmatch(text)) and (below := named.get(identifier(of["role"]), role.line)) != role.line:
            lower.append((role.line, below))
            text = of["more"] or ""
        for action in [] if marks.allows(text) is False else actions_of(text):
            text, notes = without_notes(cell._replace(text=action))
            key = (entity.line.lower(), text.lower())
            called = cell._replace(text=text, notes=(), bold=False)
            mark = cell._replace(text=text if _NEGATES.match(text) else ALLOWED, notes=notes)
            found.setdefault(key, (row, entity, called, {}))[3][role.line] = mark
    for _ in lower:
        for role_line, below in lower:
            for *_, said in found.values():
                said.update({role_line: said[below]} if below in said and role_line not in said else {})
    return [*roles.values()], [
        (row, (of, called, *(said.get(role, called._replace(said=False)) for role in roles)))
        for row, of, called, said in found.values()
    ]


def actions_of(text: str) -> list[str]:
    """The actions that a text lists: its parts, if all of them are single words or all have several; else the text is one.

    >>> actions_of("read, write"), actions_of("manage users, edit pages"), actions_of("Create, edit pages")
    (['read', 'write'], ['manage users', 'edit pages'], ['Create, edit pages'])
    """
    found = []
    for line in text.split("\n"):
        parts = [joined(_BULLET.sub("", part, count=1)).rstrip(".") for part in re.split(r"[,;]\s+", line)]
        words = {len(part.split()) == 1 for part in parts}
        listed = len(words) == 1 and all(
            part and len(part.split()) <= 4 and not _NEGATES.search(part) for part in parts
        )
        found += parts if listed else [joined(line).rstrip(".")]
    return found
