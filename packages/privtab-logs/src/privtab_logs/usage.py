"""Rows of a state and of a policy's table that the allows of a log used.

A row is *used* by an allow if it is on some way by which the state gives that allow: in a minimal set that holds, in a chain from the
right back to the user. It is *needed* if an allow is lost without it alone. What is used and not needed has a substitute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from privtab.base import Request, Window
from privtab.engines import Opener
from privtab.ir import Program
from privtab.pipeline import policy_artifacts
from privtab.state import ROLE_PREFIX, State, index_document
from privtab_logs.distinct import LoggedRequest
from privtab_logs.excerpts import Caller, Excerpt, Row, Rows, StateRows, caller_of


@dataclass(slots=True)
class Seen:
    """The number of times something was used, and the first and the last time."""

    count: int = 0
    first: int = Window().end
    last: int = Window().begin

    def add(self, logged: LoggedRequest) -> None:
        """Count a logged request."""
        self.count += logged.count
        self.first = min(self.first, logged.first)
        self.last = max(self.last, logged.last)


class Use(StrEnum):
    """The use of a row of the state by the allows of a log."""

    NEEDED = "needed"
    """An allow is lost without it alone."""
    SUBSTITUTED = "substituted"
    """Allows went through it, or could have, and other rows give each of them as well."""
    UNUSED = "unused"
    """No allow could have gone through it."""


@dataclass(slots=True, kw_only=True)
class Usage:
    """The parts of a state that the allows of a log used."""

    rows: StateRows
    log: Sequence[LoggedRequest]
    """The distinct requests of the log, whose names the policy knows."""
    allows: Sequence[int]
    """Allows of the log that the state gives."""
    lapsed: Sequence[int]
    """The allows that it does not give: by rows that are gone, or by another policy."""
    denials: Sequence[int]
    """The denials that the state gives as well."""
    seen: dict[Row, Seen] = field(default_factory=dict)
    """The rows that were used."""
    needed: dict[Row, int] = field(default_factory=dict)
    """The rows that are needed, each with an allow that is lost without it."""
    witnesses: dict[int, Rows] = field(default_factory=dict)
    """Rows that suffice for an allow, by allow."""
    by_caller: dict[Caller, list[int]] = field(default_factory=dict)
    relevant: dict[Caller, frozenset[Row]] = field(default_factory=dict)
    """The rows on which a caller's allows depend, by caller: the used rows, and denials."""
    operations: dict[tuple[str, str], Seen] = field(default_factory=dict)
    """The rows of the table, by type and operation, that allowed something."""
    denied: dict[tuple[str, str], int] = field(default_factory=dict)
    """Denials by row of the table."""
    through: Counter[tuple[str, tuple[str, str]]] = field(default_factory=Counter)
    """Allows that went through a role, or could have, by role and row of the table."""

    def of(self, row: Row) -> Use:
        """Return the use of a row in the log."""
        return Use.NEEDED if row in self.needed else Use.SUBSTITUTED if row in self.seen else Use.UNUSED


Tell = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


def usage(
    program: Program,
    state: State,
    log: Iterable[LoggedRequest],
    *,
    rank: Callable[[StateRows], Mapping[Row, int]],
    tell: Tell | None = None,
) -> Usage:
    """Find the rows of the state of one moment that the allows of a log used.

    `rank`: the order in which rows would be removed; if an allow has several ways, the way counts whose rows would be removed last.
    """
    known = list(log)
    answers = decided(program, state, [logged.request for logged in known])
    found = Usage(
        rows=StateRows(program, state),
        log=known,
        allows=[n for n, logged in enumerate(known) if logged.allowed and answers[n]],
        lapsed=[n for n, logged in enumerate(known) if logged.allowed and not answers[n]],
        denials=[n for n, logged in enumerate(known) if not logged.allowed and not answers[n]],
    )
    for logged in known:
        if logged.allowed:
            found.operations.setdefault(logged.operation, Seen()).add(logged)
        else:
            found.denied[logged.operation] = found.denied.get(logged.operation, 0) + logged.count
    ranks = rank(found.rows)
    for number in found.allows:
        found.by_caller.setdefault(caller_of(known[number].request), []).append(number)
    for done, (caller, numbers) in enumerate(found.by_caller.items()):
        _of_caller(found, caller, numbers, ranks)
        if tell is not None:
            tell(done, len(found.by_caller))
    Needs(found).all(found.seen.keys() & ranks.keys())
    return found


def decided(program: Program, state: State, requests: Sequence[Request]) -> list[bool]:
    """Return whether each request is allowed, by the engine in process."""
    opener = Opener()
    opened = opener.open(policy_artifacts(program).program, [opener.keep(index_document(program, state))], 0)
    return opened.engine.allow_many(requests)


def _of_caller(found: Usage, caller: Caller, numbers: Collection[int], ranks: Mapping[Row, int]) -> None:
    requests = [found.log[number].request for number in numbers]
    rows = [*found.rows.concerning(found.rows.of_caller(caller), requests)]
    excerpt, used = found.rows.excerpt(rows), set[Row]()
    for number in numbers:
        logged = found.log[number]
        witnesses = excerpt.witnesses(logged.request)
        for row in witnesses.used:
            found.seen.setdefault(row, Seen()).add(logged)
        used |= witnesses.used
        held = {found.rows.containers.get(row, "") for row in witnesses.used}
        found.through.update({(role, logged.operation): logged.count for role in held if role.startswith(ROLE_PREFIX)})
        found.witnesses[number] = witnesses.best(ranks)
    found.relevant[caller] = frozenset(row for row in rows if row in used or row in found.rows.denials)


class Needs:
    """Allows that are lost without rows: the reference decides for the callers whose allows went through the rows."""

    def __init__(self, found: Usage) -> None:
        self.found = found
        self.through: dict[Row, set[int]] = {}
        """Allows whose witness has the row, by row."""
        self._caller = {n: caller for caller, numbers in found.by_caller.items() for n in numbers}
        for number, rows in found.witnesses.items():
            self.move(number, rows)

    def move(self, number: int, rows: Rows, before: Rows = frozenset()) -> None:
        """Let an allow have another witness."""
        for row in before - rows:
            self.through[row].discard(number)
        for row in rows - before:
            self.through.setdefault(row, set()).add(number)

    def all(self, rows: Collection[Row]) -> None:
        """Find which of some rows are needed."""
        for row in rows:
            lost = self.lost(row, ())
            if lost is not None:
                self.found.needed[row] = lost

    def lost(self, row: Row, removed: Collection[Row]) -> int | None:
        """An allow that is lost without a row, where others are removed already; None if every allow is kept.

        An allow whose witness lacks the row is kept: fewer rows that allow never give more, and its witness still suffices.
        """
        for caller, numbers in self.affected(row):
            excerpt = self.without(caller, removed, row)
            for number in numbers:
                if not excerpt.allows(self.found.log[number].request):
                    return number
        return None

    def affected(self, row: Row) -> Iterable[tuple[Caller, list[int]]]:
        """The allows whose witness has a row, by caller."""
        by_caller: dict[Caller, list[int]] = {}
        for number in sorted(self.through.get(row, ())):
            by_caller.setdefault(self._caller[number], []).append(number)
        return by_caller.items()

    def without(self, caller: Caller, removed: Collection[Row], row: Row) -> Excerpt:
        """Return the rows that a caller has left."""
        return self.found.rows.excerpt(r for r in self.found.relevant[caller] if r != row and r not in removed)
