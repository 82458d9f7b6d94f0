"""Rows and a policy → the state of valid rows, and a finding for every other row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from privtab.ir.nodes import Program
from privtab.state import raw as raw_rows
from privtab.state.attribute_rows import without_two_values
from privtab.state.checker import Checker
from privtab.state.findings import in_order
from privtab.state.links import without_wrong_links
from privtab.state.nodes import State, StateFinding
from privtab.state.places import Places
from privtab.state.raw import RawState


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
    checker = Checker(program, raw)
    table: Callable[[str], Any] = checker.table
    if sum(map(len, raw.rows.values())) >= raw_rows.LARGE:
        from privtab.state.large import ColumnChecker

        table = ColumnChecker(checker).table
    state = checker.state(table)
    state = without_two_values(checker, without_wrong_links(checker, state))
    if notes:
        checker.note_unused_names(state)
    checker.report_omitted()
    return state, Places(rows=checker.valid_rows), in_order(checker.findings)
