"""A store that is changed: each change is decided, carried out and journaled in one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from sqlalchemy import Connection, select

from privtab.characters import unusable
from privtab.effects import Change
from privtab.errors import StoreConflict, StoreError, UsageError
from privtab.ir.nodes import Program
from privtab.request import Decision, Request
from privtab.state.load import from_tables
from privtab.state.raw import RawState
from privtab.state.uses import uses
from privtab.store.database import Database, address, migrate, version
from privtab.store.journal import MOST_CHANGES, Entry, Head, Journal, append, entries, read_head
from privtab.store.planning import Asked, Current, Plan, Tables, plan, raw
from privtab.store.rows import Rows, about, checked
from privtab.store.schema import BEGINNING, HEAD, JOURNAL, canonical

LONGEST_ID = 200
"""Characters of a request's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done: the number of the change, the decision that allowed it, and the rows that it added and removed."""

    number: int
    decision: Decision
    changes: tuple[Change, ...]
    repeated: bool = False
    """Whether an earlier request with the same id did it."""


class Store(Journal):
    """A store that is changed. Threads may share it, and several processes may use one store at a time."""

    def __init__(self, database: Database, program: Program) -> None:
        super().__init__(database)
        if self.system != program.system:
            raise UsageError(f"{database.shown} is a store of {self.system}, and the policy is of {program.system}")
        self.program = program
        self._lock = Lock()
        self._current: Current | None = None

    @classmethod
    def open(cls, url: str, program: Program) -> Store:  # type: ignore[override]  # changes need the policy
        """Open a store for a policy. Raises FileError, StoreError or UsageError if there is none that this code can change."""
        return cls(Database(address(url)).existing(), program)

    @classmethod
    def create(
        cls, url: str, program: Program, *, administrators: Sequence[str] = (), actor: str = "operator"
    ) -> Store:
        """Create a store, whose first service administrators are given.

        Raises UsageError if the policy has no service administrators, StateInvalid for a wrong name, StoreError if there is a
        store already.
        """
        if administrators and not uses(program).service_admins:
            raise UsageError(
                f"no row of {program.system} requires service administrators: load the first grants with `privtab store load`"
            )
        listed = [{"user": name.removeprefix("user:")} for name in dict.fromkeys(administrators)]
        rows = from_tables({"service_admins": listed}, "the administrators")
        _, changes = checked(program, Rows(), "the store", rows)
        _check_name(actor, "actor")
        database = Database(address(url))
        with database.writing() as connection:
            if version(connection) is not None:
                raise StoreError(f"{database.shown} holds a store already")
            migrate(connection)
            connection.execute(HEAD.insert(), [{"id": 1, "number": 0, "hash": BEGINNING, "system": program.system}])
            request = {"system": program.system, "administrators": [row["user"] for row in listed]}
            _append_unasked(connection, Head(0, BEGINNING, program.system), changes, "create", actor, request)
        return cls(database, program)

    def load(self, rows: Tables | RawState, *, actor: str) -> int:
        """Load the first rows, without a decision, and return their number. Raises UsageError after any other change.

        The journal holds them as ordinary changes of at most 5,000 rows each, all in one transaction, so that replaying it
        needs nothing else.
        """
        _check_name(actor, "actor")
        with self._lock, self.database.writing() as connection:
            head = read_head(connection, lock=True)
            if head.number != 1:
                raise UsageError(
                    f"{self.database.shown} has changes already: rows are loaded into a new store, and changed by requests"
                )
            current = self._brought_forward(connection, head)
            _, changes = checked(self.program, current.rows, self.database.shown, raw(rows, "the rows"))
            for first in range(0, len(changes), MOST_CHANGES):
                part = changes[first : first + MOST_CHANGES]
                head = _append_unasked(connection, head, part, "load", actor, {"first": first, "of": len(changes)})
        return len(changes)

    def perform(self, request: Request, *, request_id: str | None = None, expect: int | None = None) -> Outcome:
        """Decide a request and carry out its effects, in one transaction.

        `request_id`: a second request with this id does nothing and returns what the first one did. `expect`: the number of
        the last change that the caller knows; raises StoreConflict if a later one concerns what this one changes.
        Raises AccessDenied and writes nothing if the request is denied.
        """
        return self._write(Asked(request=request), request_id, expect)

    def delete_entity(self, request: Request, *, request_id: str | None = None, expect: int | None = None) -> Outcome:
        """As `perform`, for an operation that deletes its resource: every row on it, and on what lies below, goes too."""
        return self._write(Asked(request=request, delete=True), request_id, expect)

    def change(
        self,
        request: Request,
        *,
        add: Tables | RawState | None = None,
        remove: Tables | RawState | None = None,
        request_id: str | None = None,
        expect: int | None = None,
    ) -> Outcome:
        """As `perform`, for an operation that changes rows: those to add and to remove, beside its effects.

        The caller names the operation of the policy that permits the change, as in `grant_role` on a role; it must not come
        from a source that is not trusted. Rows must be about the objects of the request or about what lies below them.
        Raises StateInvalid, with every finding, if a row is wrong.
        """
        return self._write(_asked(request, add, remove), request_id, expect)

    def done(
        self,
        request_id: str,
        request: Request,
        *,
        add: Tables | RawState | None = None,
        remove: Tables | RawState | None = None,
    ) -> Outcome | None:
        """What `change` did for this request id; None if nothing. Raises StoreConflict if it was another request."""
        with self.database.reading() as connection:
            return _known(connection, request_id, _asked(request, add, remove))

    def propose(
        self, request: Request, *, add: Tables | RawState | None = None, remove: Tables | RawState | None = None
    ) -> Plan:
        """What `change` would do now; nothing is written."""
        with self._lock, self.database.reading() as connection:
            self._current = current = self._brought_forward(connection, read_head(connection))
            return plan(self.program, current, _asked(request, add, remove), self.database.shown)

    def _write(self, asked: Asked, request_id: str | None, expect: int | None) -> Outcome:
        if request_id is not None:
            _check_name(request_id, "request id")
            if not 0 < len(request_id) <= LONGEST_ID:
                raise UsageError(f"a request id has 1 to {LONGEST_ID} characters")
        with self._lock:
            with self.database.writing() as connection:
                head = read_head(connection, lock=True)
                if request_id is not None and (known := _known(connection, request_id, asked)) is not None:
                    return known
                self._current = current = self._brought_forward(connection, head)
                planned = plan(self.program, current, asked, self.database.shown)
                if expect is not None:
                    _check_unseen(connection, expect, head, planned.changes)
                after = append(
                    connection,
                    head,
                    planned.changes,
                    actor=asked.request.user,
                    request_id=request_id,
                    action=asked.request.action,
                    resource=str(asked.request.resource),
                    request=canonical(asked.to_json()),
                    decision=canonical(planned.decision.to_json()),
                )
            # Committed, so it is kept for the next change.
            rows = current.rows.changed(after.number, planned.changes)
            self._current = Current(number=after.number, hash=after.hash, rows=rows, state=planned.after)
        return Outcome(number=after.number, decision=planned.decision, changes=planned.changes)

    def _brought_forward(self, connection: Connection, head: Head) -> Current:
        """The rows at the head: those that were kept, and what changed since; read anew if that is not the same journal."""
        kept = self._current
        if kept is not None and (kept.number, kept.hash) == (head.number, head.hash):
            return kept
        rows = None if kept is None else _later(connection, kept)
        if rows is None:
            rows = Rows.read(connection)
        state, _ = checked(self.program, rows, self.database.shown)
        return Current(number=head.number, hash=head.hash, rows=rows, state=state)


def _later(connection: Connection, kept: Current) -> Rows | None:
    """Rows that were kept, after the later changes; None if the journal does not continue from there."""
    question = select(JOURNAL.c.hash).where(JOURNAL.c.number == kept.number)
    if connection.execute(question).scalar_one_or_none() != kept.hash:
        return None
    rows = Rows(kept.rows.tables)
    for row in entries(connection, kept.number):
        rows.apply(row["number"], Entry.of(row).changes)
    return rows


def _known(connection: Connection, request_id: str, asked: Asked) -> Outcome | None:
    """What an earlier request with the same id did. Raises StoreConflict if it was another request."""
    found = connection.execute(select(JOURNAL).where(JOURNAL.c.request_id == request_id)).mappings().one_or_none()
    if found is None:
        return None
    if found["request"] != canonical(asked.to_json()):
        raise StoreConflict(f"the request id `{request_id}` belongs to another request, change {found['number']}")
    entry = Entry.of(dict(found))
    decision = Decision.from_json(json.loads(found["decision"]))
    return Outcome(number=entry.number, decision=decision, changes=entry.changes, repeated=True)


def _check_unseen(connection: Connection, expect: int, head: Head, changes: Sequence[Change]) -> None:
    """Raise StoreConflict if a change that the caller does not know concerns what they change."""
    if expect > head.number:
        raise StoreConflict(f"the store has {head.number:,} changes, and change {expect:,} was expected")
    own = {about(change) for change in changes}
    for row in entries(connection, expect):
        if any(about(change) in own for change in Entry.of(row).changes):
            raise StoreConflict(
                f"change {row['number']} by {row['actor']} concerns the same rows, and came after change {expect}: read them again"
            )


def _append_unasked(
    connection: Connection, head: Head, changes: Sequence[Change], action: str, actor: str, request: dict[str, Any]
) -> Head:
    """An entry of the operator, which no decision allowed."""
    return append(
        connection, head, changes, actor=actor, action=f"store {action}", request=canonical(request), decision="{}"
    )


def _asked(request: Request, add: Tables | RawState | None, remove: Tables | RawState | None) -> Asked:
    return Asked(request=request, add=raw(add, "the rows to add"), remove=raw(remove, "the rows to remove"))


def _check_name(text: str, what: str) -> None:
    if (character := unusable(text)) is not None:
        raise UsageError(f"the {what} holds the character {character}")
