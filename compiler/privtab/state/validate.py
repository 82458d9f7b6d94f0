"""Rows and a policy → the state of valid rows, and a finding for every other row."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from privtab.ir.nodes import Program
from privtab.state import raw as raw_rows
from privtab.state.attribute_rows import attribute_row, without_two_values
from privtab.state.checker import Checker
from privtab.state.findings import in_order
from privtab.state.links import holding_roles, without_wrong_links
from privtab.state.nodes import State, StateFinding
from privtab.state.placements import placements
from privtab.state.places import Places
from privtab.state.raw import RawState

T = TypeVar("T")

MAX_FINDINGS_OF_KIND = 10_000
"""Limit on findings of one kind in one table; the others are only counted."""


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
    if sum(map(len, raw.rows.values())) < raw_rows.LARGE:
        state = _checked_state(checker)
    else:
        from privtab.state.large import ColumnChecker

        state = ColumnChecker(checker).state()
    state = without_two_values(checker, without_wrong_links(checker, state))
    if notes:
        checker.note_unused_names(state)
    checker.report_omitted()
    return state, Places(rows=checker.valid_rows), in_order(checker.findings)


def _checked_state(checker: Checker) -> State:
    """The state of the valid rows, checked one by one."""
    entities = placements(checker)
    grants = checker.table(
        "grants", checker.grant, lambda g: (g.grantee, g.effect, g.privilege, g.entity.type, g.entity.id)
    )
    owners = checker.table("owners", checker.owner)
    checker.grantees = {grant.grantee for grant in grants} | {owner for _, owner in owners}
    checker.grantees |= holding_roles(checker.program, checker.raw)
    return State(
        members=checker.table("members", checker.member),
        memberships=checker.table("memberships", checker.membership),
        assignments=checker.table("assignments", checker.assignment, lambda a: (a.principal, a.role, a.scope)),
        grants=grants,
        owners=owners,
        service_admins=checker.table("service_admins", checker.service_admin),
        attributes=checker.table("attributes", partial(attribute_row, checker)),
        entities=entities,
        windows=checker.windows,
    )
