"""The rows of `entities`: which of them are valid, so that the entities with flat ids lie somewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.ir.serialise import vocabulary
from privtab.state.located import wrong_places
from privtab.state.names import Problem
from privtab.state.nodes import ENTITIES, Placement
from privtab.state.raw import RawRow

if TYPE_CHECKING:
    from privtab.state.checker import Checker


def placements(checker: Checker) -> tuple[Placement, ...]:
    """The valid rows of `entities`; from then on, rows about entities that lie nowhere are wrong."""
    rows: tuple[Placement, ...] = checker.table(ENTITIES)
    if not checker.program.flat:
        return rows
    pairs = [(str(row.entity), str(row.parent)) for row in rows]
    wrong = wrong_places(vocabulary(checker.program), pairs)
    for number, problem in wrong.items():
        checker.error(checker.valid_rows[ENTITIES][number], problem)
    valid = [number for number in range(len(rows)) if number not in wrong]
    checker.valid_rows[ENTITIES] = [checker.valid_rows[ENTITIES][number] for number in valid]
    checker.names.places = dict(pairs[number] for number in valid)
    return tuple(rows[number] for number in valid)


def placement(checker: Checker, row: RawRow) -> Placement | None:
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
        checker.error(row, Problem("S181", message, "leave the row out"))
        return None
    known = vocabulary(checker.program).containers(entity.type)
    if parent.type not in known:
        types = " or a ".join(f"`{type_}`" for type_ in known)
        checker.error(
            row, Problem("S181", f"`{entity}` cannot lie in `{parent}`", f"a `{entity.type}` lies in a {types}")
        )
        return None
    return Placement(entity=entity, parent=parent, name=row.cells.get("name"))
