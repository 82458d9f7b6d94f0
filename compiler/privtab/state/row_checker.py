"""What checks the rows of all tables one by one, also those of `entities`."""

from __future__ import annotations

from functools import partial

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state.attribute_rows import attribute_row
from privtab.state.checker import Checker
from privtab.state.names import RowProblem
from privtab.state.nodes import ENTITIES, Cells
from privtab.state.raw import RawRow, RawState


def checker_of(program: Program, raw: RawState, *, alone: bool = False) -> Checker:
    """What checks the rows of every table; `alone`: as Checker."""
    checker = Checker(program, raw, alone=alone)
    checker.readers |= {"attributes": partial(attribute_row, checker), ENTITIES: partial(placement, checker)}
    return checker


def placement(checker: Checker, row: RawRow) -> Cells | None:
    """One row, without whether what contains the entity lies anywhere."""
    if not checker.program.flat:
        message = f"no type of `{checker.program.system}` has flat ids"
        checker.warn(row, "S185", message, "the path of an entity says where it lies: leave the table out")
        return None
    entity, parent = checker.entity(row, "entity"), checker.entity(row, "parent")
    if entity is None or parent is None:
        return None
    if entity.type not in checker.program.flat:
        message = f"ids of `{entity.type}` are not flat: the path of `{entity}` says where it lies"
        checker.error(row, RowProblem("S181", message, "leave the row out"))
        return None
    known = vocabulary(checker.program).containers(entity.type)
    if parent.type not in known:
        types = " or a ".join(f"`{type_}`" for type_ in known)
        checker.error(
            row, RowProblem("S181", f"`{entity}` cannot lie in `{parent}`", f"a `{entity.type}` lies in a {types}")
        )
        return None
    return str(entity), str(parent), row.cells.get("name")
