"""Rows and a policy → the state of valid rows, and a finding for every other row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state import raw as raw_rows
from privtab.state.attribute_rows import attribute_row, without_two_values
from privtab.state.checker import Checker
from privtab.state.findings import in_order
from privtab.state.links import holding_roles, without_wrong, without_wrong_links
from privtab.state.located import wrong_places
from privtab.state.names import Places, Problem
from privtab.state.nodes import ENTITIES, Cells, Placement, State, StateFinding
from privtab.state.raw import RawRow, RawState


def validate(program: Program, raw: RawState, *, notes: bool = True) -> tuple[State, tuple[StateFinding, ...]]:
    """Check every row against the policy. A row with an error is in the findings, any other row is in the state.

    A row that repeats an earlier one is reported and used once. The findings include those from reading. `notes`: whether to look
    for names that no other row uses.
    """
    state, _, findings = validate_with_places(program, raw, notes=notes)
    return state, findings


def validate_with_places(
    program: Program, raw: RawState, *, notes: bool = True
) -> tuple[State, Places, tuple[StateFinding, ...]]:
    """As `validate`, with the position of each row of the state."""
    checker = checker_of(program, raw)
    table: Callable[[str], Any] = checker.table
    if sum(map(len, raw.rows.values())) >= raw_rows.LARGE:
        from privtab.state.large import ColumnChecker

        table = ColumnChecker(checker).table
    state = _state(checker, table)
    state = without_two_values(checker, without_wrong_links(checker, state))
    if notes:
        checker.note_unused_names(state)
    checker.report_omitted()
    return state, Places(rows=checker.valid_rows), in_order(checker.findings)


def checker_of(program: Program, raw: RawState, *, alone: bool = False) -> Checker:
    """What checks the rows of every table; `alone`: as Checker."""
    checker = Checker(program, raw, alone=alone)
    checker.readers |= {"attributes": partial(attribute_row, checker), ENTITIES: partial(placement, checker)}
    return checker


def _state(checker: Checker, table: Callable[[str], Any]) -> State:
    """The state of the valid rows; `table` gives those of one table, one by one or by columns."""
    entities = placements(checker)
    grants, owners = table("grants"), table("owners")
    checker.grantees = State(grants=grants, owners=owners).distinct(("grants", "grantee"), ("owners", "owner"))
    checker.grantees |= holding_roles(checker.program, checker.raw)
    others = ("members", "memberships", "assignments", "service_admins", "attributes")
    rows: Any = {name: table(name) for name in others}
    return State(grants=grants, owners=owners, entities=entities, windows=checker.windows, **rows)


def placements(checker: Checker) -> Sequence[Placement]:
    """The valid rows of `entities`; from then on, rows about entities that lie nowhere are wrong."""
    state = State(entities=checker.table(ENTITIES))
    if not checker.program.flat:
        return state.entities
    wrong = wrong_places(vocabulary(checker.program), list(state.texts(ENTITIES, "entity", "parent")))
    state = without_wrong(checker, state, ENTITIES, wrong)
    checker.names.places = dict(state.texts(ENTITIES, "entity", "parent"))
    return state.entities


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
        checker.error(row, Problem("S181", message, "leave the row out"))
        return None
    known = vocabulary(checker.program).containers(entity.type)
    if parent.type not in known:
        types = " or a ".join(f"`{type_}`" for type_ in known)
        checker.error(
            row, Problem("S181", f"`{entity}` cannot lie in `{parent}`", f"a `{entity.type}` lies in a {types}")
        )
        return None
    return str(entity), str(parent), row.cells.get("name")
