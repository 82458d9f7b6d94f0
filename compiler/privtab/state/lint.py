"""Find valid rows of a state that are probably mistakes: expired, unused, superfluous. They stay in the state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, TypeAlias

from privtab.base.moments import Window, moment_text
from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.findings import StateFinding
from privtab.state.located import locations
from privtab.state.names import Places, StateNames, UsedParts
from privtab.state.nodes import State

Found: TypeAlias = tuple[str, int, str, str, str]
"""Table, row from 0 on, code, message, advice."""
_SEVERITY: Mapping[str, Literal["warning", "note"]] = {"S203": "note", "S206": "note"}
SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def lint(program: Program, state: State, places: Places, *, at: int, soon: int) -> tuple[StateFinding, ...]:
    """The findings about a state at a moment; `soon`: the nanoseconds within which the end of a row is reported."""
    found: list[Found] = [
        *_windows(state, at, soon),
        *_roles(program, state),
        *_direct(state),
        *_repeated(state),
        *_covered(program, state),
    ]
    return tuple(sorted(_finding(places, entry) for entry in found))


def _finding(places: Places, entry: Found) -> StateFinding:
    table, row, code, message, advice = entry
    cells = places.rows[table][row].cells
    place = places.of(table, row)
    assert place is not None
    return StateFinding(
        place=place, message=message, code=code, severity=_SEVERITY.get(code, "warning"), help=advice, row=cells
    )


def _windows(state: State, at: int, soon: int) -> Iterator[Found]:
    for table, windows in state.windows.items():
        for row, (begin, end) in enumerate(windows):
            if end <= at:
                yield table, row, "S201", f"the row has ended at {moment_text(end)}", "remove it"
            elif begin <= at and end - at <= soon:
                yield table, row, "S203", f"the row ends at {moment_text(end)}", "extend `until` if it is needed longer"


def _roles(program: Program, state: State) -> Iterator[Found]:
    """Roles that give nothing, and roles that nobody holds."""
    column = state.column("assignments", "role")
    # A role that holds others gives what they give.
    granted_to = state.distinct(("grants", "grantee"), ("owners", "owner"), ("assignments", "principal"))
    declared = {role.name for role in program.roles.values() if role.grants}
    for role in column.names if not UsedParts.of(program).holds else ():
        if f"role:{role}" not in granted_to and role not in declared:
            row, advice = column.where([role])[0], "grant it something, or remove its assignments"
            yield "assignments", row, "S204", f"role `{role}` is held, and no row grants it anything", advice
    assigned = set(column.names)
    reported: set[str] = set()
    for table, name in (("grants", "grantee"), ("owners", "owner")):
        principals = state.column(table, name)
        for principal in principals.names:
            role = principal.removeprefix("role:")
            if principal != role and role not in assigned and principal not in reported:
                reported.add(principal)
                message = f"role `{role}` is not assigned"
                yield table, principals.where([principal])[0], "S205", message, "assign it, or remove its rows"


def _direct(state: State) -> Iterator[Found]:
    for row, (grantee, effect) in enumerate(state.texts("grants", "grantee", "effect")):
        if effect == "allow" and grantee.startswith("user:"):
            message = f"`{grantee}` is granted a privilege directly"
            yield "grants", row, "S206", message, "grant it to a role or a group, so that it ends with the task"


def _repeated(state: State) -> Iterator[Found]:
    """Rows that say the same as another in a part of its time."""
    for table, windows in state.windows.items():
        rows_by_cells: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for row, cells in enumerate(state.table(table).cells()):
            rows_by_cells[cells].append(row)
        for rows in rows_by_cells.values():
            for row in rows if len(rows) > 1 else ():
                yield from _covering(table, row, rows, windows, "it says the same, and holds as long")


def _covered(program: Program, state: State) -> Iterator[Found]:
    """Assignments within a scope of a role that is held everywhere, and grants below one of the same privileges."""
    everywhere: dict[tuple[str, str], list[int]] = defaultdict(list)
    windows = state.windows_of("assignments")
    rows = list(state.texts("assignments", "principal", "role", "scope"))
    for row, (principal, role, scope) in enumerate(rows):
        if scope is None:
            everywhere[principal, role].append(row)
    for row, (principal, role, scope) in enumerate(rows):
        others = everywhere.get((principal, role), ()) if scope is not None else ()
        yield from _covering("assignments", row, others, windows, "it assigns the role everywhere")
    yield from _grants_covered(program, state)


def _grants_covered(program: Program, state: State) -> Iterator[Found]:
    names, keys, inherited = StateNames(program), locations(program, state).keys, program.inherited
    windows = state.windows_of("grants")
    privileges_of: list[frozenset[str]] = []
    rows_by_place: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    rows = list(state.texts("grants", "grantee", "effect", "privilege", "entity"))
    for row, (grantee, effect, privilege, key) in enumerate(rows):
        privileges_of.append(frozenset(names.privileges_of(privilege, key.partition(":")[0], effect)))
        rows_by_place[grantee, effect, key].append(row)
    for row, (grantee, effect, privilege, key) in enumerate(rows):
        covering_keys = keys(Entity.parse(key)) if privileges_of[row] <= inherited else (key,)
        for other in (
            candidate
            for covering_key in covering_keys
            for candidate in rows_by_place.get((grantee, effect, covering_key), ())
            if candidate != row
        ):
            if not (privileges_of[row] <= privileges_of[other] and _within(windows[row], windows[other])):
                continue
            meanings = [(rows[n][3], privileges_of[n], windows[n]) for n in (row, other)]
            if rows[other][2:] != (privilege, key) and not (meanings[0] == meanings[1] and other > row):
                why = "it gives as much, on the entity or above it, and holds as long"
                yield _superfluous("grants", row, other, why)
                break


def _within(window: Window, other: Window) -> bool:
    """Return whether a row with a window that is not empty is covered by a row with the other window."""
    return window.begin < window.end and other.covers(window)


def _covering(table: str, row: int, others: Sequence[int], windows: Sequence[Window], why: str) -> Iterator[Found]:
    """The finding that the first of some other rows covers the time of a row."""
    covering = (other for other in others if other != row and _within(windows[row], windows[other]))
    yield from (_superfluous(table, row, other, why) for other in islice(covering, 1))


def _superfluous(table: str, row: int, other: int, why: str) -> Found:
    return table, row, "S207", f"row {other + 1} of `{table}` makes the row superfluous", f"remove it: {why}"


def duration(value: str) -> int:
    """Nanoseconds of a duration such as `14d`; raises ValueError."""
    number, unit = value[:-1], value[-1:]
    if unit not in SECONDS or not (number.isascii() and number.isdigit()) or len(number) > 6:
        raise ValueError(f"`{value}` is not a duration: write a number with m, h, d or w, as in 14d")
    return int(number) * SECONDS[unit] * 10**9
