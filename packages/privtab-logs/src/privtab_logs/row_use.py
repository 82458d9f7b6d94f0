"""Rights that nobody needs according to a log: rows of a state and of the table; roles and users by the used share of their rights."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from privtab.base import UsageError, Window, moment_text
from privtab.ir import Program
from privtab.state import ROLE_PREFIX, Places, RowLocation, State
from privtab_analysis.row_sentences import row_sentence
from privtab_analysis.state_diff.rows import changed_rows
from privtab_logs.distinct import Log
from privtab_logs.excerpts import USER, Row, StateRows
from privtab_logs.proposal import DENIAL, Proposal, propose, removal_order
from privtab_logs.usage import Seen, Tell, Usage, Use, usage

LATER, YOUNG, AGAIN = "does not hold now", "younger than the log", "holds at other times, too"
"""Reasons why rows are never proposed, besides a reason to keep them: their window is not open, the log did not see all of it, or a second row says the same."""
_EDGES = (Window().begin, Window().end)
ROWS = pa.schema(
    [
        ("table", pa.string()),
        ("row", pa.string()),
        ("path", pa.string()),
        ("number", pa.int64()),
        ("use", pa.string()),
        ("count", pa.int64()),
        ("first", pa.timestamp("us", "UTC")),
        ("last", pa.timestamp("us", "UTC")),
        ("stays", pa.string()),
        ("proposed", pa.bool_()),
    ]
)
"""The rows of a state with their use; `path` and `number`: the file of a row and its number there."""
SHARE = 3
"""Users of whose rights at most one in so many was used are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowUse:
    """A row of the state, and what the allows of a log say of it."""

    table: str
    text: str
    place: RowLocation | None
    use: Use
    seen: Seen | None
    stays: str | None
    """Reason why the row is not proposed; None if it could be."""
    proposed: bool = False

    def to_json(self) -> dict[str, Any]:
        """As in reports."""
        place = None if self.place is None else {name: getattr(self.place, name) for name in ("path", "row", "line")}
        return self._cells(_time) | {"place": place}

    def as_row(self) -> dict[str, Any]:
        """As in tables, `ROWS`."""
        place = {} if self.place is None else {"path": self.place.path, "number": self.place.row}
        return self._cells(lambda moment: None if moment in _EDGES else moment // 1000) | place

    def _cells(self, time: Callable[[int], object]) -> dict[str, Any]:
        told = {"table": self.table, "row": self.text, "use": str(self.use)}
        return {**told, **_seen(self.seen, time), "stays": self.stays, "proposed": self.proposed}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationUse:
    """A row of the table for an operation: its allows, and how often it denied."""

    rule: str
    place: str | None
    seen: Seen | None
    denied: int

    def to_json(self) -> dict[str, Any]:
        """As in reports."""
        return {"rule": self.rule, "place": self.place, **_seen(self.seen, _time), "denied": self.denied}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleUse:
    """A role: the rights that rows give it, the rights that were used, and the users who used any."""

    role: str
    granted: tuple[str, ...]
    used: tuple[str, ...]
    holders: int
    """Rows by which it is held."""
    like: tuple[str, ...] = ()
    """Other roles of which the same rights were used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserUse:
    """A user: the rows that give them rights, and how many of these were used."""

    user: str
    held: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """The use of a state and a table in a log."""

    log: Log
    usage: Usage
    rows: tuple[RowUse, ...]
    """Rows that could be proposed or that were used, in the order in which their removal is tried; then the others."""
    operations: tuple[OperationUse, ...]
    roles: tuple[RoleUse, ...]
    users: tuple[UserUse, ...]
    """Users of whose rights at most a third was used, users with the most rights first."""
    proposal: Proposal

    @property
    def idle(self) -> list[RowUse]:
        """The rows that no allow could have gone through, and that the log could show."""
        return [row for row in self.rows if row.use is Use.UNUSED and row.stays is None]

    @property
    def idle_operations(self) -> list[OperationUse]:
        """The rows of the table that allowed nothing."""
        return [operation for operation in self.operations if operation.seen is None]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of rows of each use by table; `stays`: rows that are not proposed whatever the log says."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for row in self.rows:
            found[row.table]["stays" if row.stays is not None else str(row.use)] += 1
        return {table: dict(counts) for table, counts in found.items()}

    def table(self) -> pa.Table:
        """The rows of the state as columns, `ROWS`."""
        return pa.Table.from_pylist([row.as_row() for row in self.rows], ROWS)

    def to_json(self) -> dict[str, Any]:
        """As in reports."""
        window = self.log.window
        return {
            "window": None if window is None else dict(zip(("from", "until"), map(moment_text, window), strict=True)),
            "requests": {
                "distinct": len(self.log.requests),
                "allows": len(self.usage.allows),
                "lapsed": len(self.usage.lapsed),
                "denials": len(self.usage.denials),
                "skipped": dict(sorted(self.log.skipped.items())),
            },
            "counts": self.counts(),
            "rows": [row for row in self.rows if row.use is not Use.NEEDED],
            "operations": self.operations,
            "roles": self.roles,
            "users": self.users,
            "proposed": len(self.proposal.removed),
        }


def _seen(seen: Seen | None, time: Callable[[int], object]) -> dict[str, Any]:
    uses = seen or Seen()
    return {"count": uses.count, "first": time(uses.first), "last": time(uses.last)}


def _time(moment: int) -> str | None:
    return None if moment in _EDGES else moment_text(moment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A state at a moment, and which of its rows the log cannot show."""

    whole: State
    """The state with the rows of every moment."""
    places: Places
    moment: int
    kept: Mapping[tuple[str, int], str]
    """(table, number) of rows that stay, and why."""
    earlier: State | None = None
    """The state of the moment when the log began, if that is known: rows that it lacks are young."""

    def numbers(self, table: str) -> Sequence[int]:
        """The numbers in the whole state of the rows that hold at the moment."""
        held = self.whole.held(self.moment)
        return held.get(table, range(len(getattr(self.whole, table))))

    def stays(self, begin: int) -> Iterator[tuple[str, int, str]]:
        """Table, number and reason of each row that is not proposed; `begin`: when the log begins."""
        held = self.whole.held(self.moment)
        for table, windows in self.whole.windows.items():
            taken = set(held[table])
            cells = list(self.whole.table(table).cells())
            repeated = Counter(cells)
            for number, window in enumerate(windows):
                if not window.holds(self.moment):
                    yield table, number, LATER
                elif number not in taken or repeated[cells[number]] > 1:
                    yield table, number, AGAIN
                elif window.begin > begin:
                    yield table, number, YOUNG
        if self.earlier is not None:
            now = self.whole.at(self.moment)
            position: dict[str, dict[tuple[str | None, ...], int]] = {}
            for row in changed_rows(self.earlier, now):
                if row.added and row.table in StateRows.TABLES:
                    rows = now.table(row.table)
                    if row.table not in position:
                        position[row.table] = dict(zip(rows.cells(), self.numbers(row.table), strict=True))
                    yield row.table, position[row.table][tuple(map(row.cells.get, rows.columns))], YOUNG
        yield from ((table, number, why) for (table, number), why in self.kept.items())


def unused(program: Program, observed: Observed, log: Log, *, tell: Callable[[str], Tell] | None = None) -> Unused:
    """Find rows of a state and a table that a log does not need. `tell`: given the name of a step, takes its progress."""
    if log.window is None:
        raise UsageError("the log has no decision of the policy with a time: nothing was observed")
    numbers = {table: list(observed.numbers(table)) for table in StateRows.TABLES}
    stays = {(table, number): why for table, number, why in observed.stays(log.window[0])}
    protected: dict[Row, str] = {}
    order: list[Row] = []

    def rank(rows: StateRows) -> Mapping[Row, int]:
        ends = set()
        for row in range(len(rows)):
            table, number = rows.place(row)
            original = numbers[table][number]
            why = stays.get((table, original))
            if why is not None:
                protected[row] = why
            elif table in windows and windows[table][original].end != Window().end:
                ends.add(row)
        order.extend(removal_order(program, rows, protected, ends))
        return {row: n for n, row in enumerate(order)}

    state, windows = observed.whole.at(observed.moment), observed.whole.windows
    found = usage(program, state, log.requests, rank=rank, tell=tell and tell("finding what was used"))
    ever = StateRows(program, replace(observed.whole, windows={})) if windows else None
    proposal = propose(program, found, order, protected, ever=ever, tell=tell and tell("removing rows"))
    listed = dict.fromkeys((*order, *range(len(found.rows))))
    removed = set(proposal.removed)
    kept = protected | dict.fromkeys(found.rows.denials, DENIAL) | dict(proposal.kept)

    def told(table: str, number: int, cells: Mapping[str, str], stays: str | None, row: Row | None) -> RowUse:
        """Describe a row by its number in the whole state; `row`: its number if it holds at the moment."""
        window = windows[table][number] if table in windows else Window()
        text = row_sentence(table, cells)
        return RowUse(
            table=table,
            # As `diff --without` and a file of rows to keep name it.
            text=text if window == Window() else f"{text}, {window.describe()}",
            place=observed.places.of(table, number),
            use=Use.UNUSED if row is None else found.of(row),
            seen=None if row is None else found.seen.get(row),
            stays=stays,
            proposed=row in removed,
        )

    def use(row: Row) -> RowUse:
        table, number = found.rows.place(row)
        return told(table, numbers[table][number], found.rows.named(row), kept.get(row), row)

    holding = {table: set(listed) for table, listed in numbers.items()}
    elsewhere = [
        told(table, number, next(observed.whole.some({table: [number]}).cells(table)), why, None)
        for (table, number), why in stays.items()
        if table in holding and number not in holding[table]
    ]
    return Unused(
        log=log,
        usage=found,
        rows=(*map(use, listed), *elsewhere),
        operations=tuple(_operations(program, found)),
        roles=tuple(_roles(found)),
        users=tuple(_users(found)),
        proposal=proposal,
    )


def _operations(program: Program, found: Usage) -> Iterator[OperationUse]:
    for pair, rule in program.rules.items():
        place = f"{rule.span.path}:{rule.span.line}" if rule.span.line else None
        yield OperationUse(
            rule="/".join(pair), place=place, seen=found.operations.get(pair), denied=found.denied.get(pair, 0)
        )


def _roles(found: Usage) -> Iterator[RoleUse]:
    """Every role that a row gives something, with the rights that were used; roles with the same use name each other."""
    rows = found.rows
    granted: dict[str, list[Row]] = defaultdict(list)
    for row in rows.numbers["grants"]:
        if row not in rows.denials and rows.holder(row).startswith(ROLE_PREFIX):
            granted[rows.holder(row)].append(row)

    def right(row: Row) -> str:
        cells = rows.named(row)
        return f"{cells['privilege']} ({cells['entity']})"

    used = {role: tuple(sorted(right(row) for row in listed if row in found.seen)) for role, listed in granted.items()}
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for role, rights in used.items():
        if rights:
            alike[rights].append(role)
    holders = Counter(rows.containers[row] for row in rows.numbers["assignments"])
    for role in sorted(granted):
        yield RoleUse(
            role=role,
            granted=tuple(sorted(map(right, granted[role]))),
            used=used[role],
            holders=holders[role],
            like=tuple(other for other in alike.get(used[role], ()) if other != role),
        )


def _users(found: Usage) -> Iterator[UserUse]:
    rows = found.rows
    used: dict[str, set[Row]] = defaultdict(set)
    for (user, _), relevant in found.relevant.items():
        used[user] |= relevant - rows.denials
    users = sorted({name.removeprefix(USER) for name in rows.by_principal if name.startswith(USER)})
    entries = []
    for user in users:
        rights = [r for r in rows.of_caller((user, ())) if r not in rows.containers and r not in rows.denials]
        count = sum(row in used[user] for row in rights)
        if rights and count * SHARE <= len(rights):
            entries.append(UserUse(user=user, held=len(rights), used=count))
    yield from sorted(entries, key=lambda entry: (entry.used - entry.held, entry.user))
