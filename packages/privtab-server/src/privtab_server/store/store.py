"""A store that is changed: each change is decided, carried out and journaled in one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from privtab import __version__
from privtab.base import (
    Change,
    Decision,
    Entity,
    InvalidRequest,
    PrivtabError,
    Request,
    UsageError,
    no_collection,
    once,
    unusable_character,
)
from privtab.ir import Program, program_json, vocabulary
from privtab.state import RawState, UsedParts, from_tables
from privtab_server.errors import StoreConflict, StoreError
from privtab_server.store.authority import naming
from privtab_server.store.database import (
    BEGINNING,
    HEAD,
    Database,
    GroupCommit,
    Take,
    address,
    canonical,
    create_tables,
    version,
)
from privtab_server.store.excerpt import Excerpt
from privtab_server.store.journal import (
    MOST_CHANGES,
    Entry,
    Head,
    Journal,
    Writer,
    entries,
    read_head,
    replayed,
    row_of_request,
)
from privtab_server.store.lookups import Reader, Rows, about, checked
from privtab_server.store.planning import ChangeRequest, Plan, Tables, plan, raw


def read_ahead(program: Program, reader: Reader, shown: str, requests: Iterable[Request]) -> None:
    """Read by few statements what `Excerpt.read_for` will look for, for each of some requests."""
    if program.flat:
        return  # Their keys depend on rows that requests before them may change.
    lookups: list[tuple[set[str], set[str]]] = []
    excerpt = Excerpt(program, reader, shown)
    for request in requests:
        with suppress(InvalidRequest):
            vocabulary(program).check(request)
            lookups.append(excerpt.keys_and_principals(request))
    if len(lookups) > 1:
        reader.prefetch("grants", [{"entity": sorted(e), "grantee": sorted(p)} for e, p in lookups])
        if program.semantics.owner is not None:
            reader.prefetch("owners", [{"entity": sorted(keys)} for keys, _ in lookups])


LONGEST_ID = 200
"""Characters of a request's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A change that was made: its number, the decision that allowed it, and the rows that it added and removed."""

    number: int
    decision: Decision
    changes: tuple[Change, ...]
    repeated: bool = False
    """True if an earlier request with the same id did it."""

    @classmethod
    def of(cls, entry: Entry) -> Outcome:
        """Return the outcome of an earlier request."""
        decision = Decision.from_json(entry.decision)
        return cls(number=entry.number, decision=decision, changes=entry.changes, repeated=True)

    def to_json(self) -> dict[str, Any]:
        """As in the answers of a server."""
        changes = [change.to_json() for change in self.changes]
        plain = {"number": self.number, "repeated": self.repeated, "changes": changes}
        return {**plain, "decision": self.decision.to_json()}


class Store(Journal):
    """A store that is changed. Threads may share it, and several processes may use one store at a time."""

    def __init__(self, database: Database, program: Program) -> None:
        super().__init__(database)
        if self.system != program.system:
            raise UsageError(f"{database.shown} is a store of {self.system}, and the policy is of {program.system}")
        self.program = program
        self._policy = fingerprint(program)
        self._reader = Reader()
        """Used by the thread that writes."""
        self._last_time: Mapping[str, int] = {}
        """The time of the last change that this process made, by the change's hash."""
        self._commits = GroupCommit(self._write_together)

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
        if administrators and not UsedParts.of(program).service_admins:
            raise UsageError(
                f"no row of {program.system} requires service administrators: give the first grants with `--state`"
            )
        listed = [{"user": name.removeprefix("user:")} for name in dict.fromkeys(administrators)]
        rows = from_tables({"service_admins": listed}, "the administrators")
        _, changes = checked(program, Rows(), "the store", rows)
        _check_name(actor, "actor")
        database = Database(address(url))
        with database.writing() as connection:
            if version(connection) is not None:
                raise StoreError(f"{database.shown} holds a store already")
            create_tables(connection)
            connection.execute(HEAD.insert(), [{"id": 1, "number": 0, "hash": BEGINNING, "system": program.system}])
            request = {"system": program.system, "administrators": [row["user"] for row in listed]}
            writer = Writer(connection, Head(0, BEGINNING, program.system))
            _append_unasked(writer, changes, "create", actor, request)
            writer.finish(fingerprint(program))
        return cls(database, program)

    def load(self, rows: Tables | RawState, *, actor: str) -> int:
        """Load the first rows, without a decision, and return their number. Raises UsageError after any other change.

        The journal holds them as ordinary changes of at most 5,000 rows each, all in one transaction, so that replaying it
        needs nothing else.
        """
        _check_name(actor, "actor")
        with no_collection(), self.database.writing() as connection:
            head = read_head(connection, lock=True)
            if head.number != 1:
                raise UsageError(
                    f"{self.database.shown} has changes already: rows are loaded into a new store, and changed by requests"
                )
            own = Rows.read(connection)
            _, changes = checked(self.program, own, self.database.shown, raw(rows, "the rows"))
            writer = Writer(connection, head)
            for first in range(0, len(changes), MOST_CHANGES):
                part = changes[first : first + MOST_CHANGES]
                _append_unasked(writer, part, "load", actor, {"first": first, "of": len(changes)})
            writer.finish(self._policy)
        return len(changes)

    def perform(
        self,
        request: Request,
        *,
        new: Entity | None = None,
        document: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        expect: int | None = None,
    ) -> Outcome:
        """Decide a request and carry out its effects, in one transaction.

        `new`: the entity with a flat id that the request creates; its resource then names what contains it, as in
        `document:folder:f1/`. Raises StoreConflict if the entity is there already.
        `document`: what describes the resource, as JSON, which the journal keeps with the request.
        `request_id`: a second request with this id does nothing and returns what the first one did. `expect`: the number of
        the last change that the caller knows; raises StoreConflict if a later one concerns what this one changes, or if there
        is no such change.
        Raises AccessDenied and writes nothing if the request is denied.
        """
        return self.carry_out(ChangeRequest(request=request, new=new, document=document), request_id, expect)

    def delete_entity(self, request: Request, *, request_id: str | None = None, expect: int | None = None) -> Outcome:
        """As `perform`, for an operation that deletes its resource: every row on it, and on what lies below, goes too."""
        return self.carry_out(ChangeRequest(request=request, delete=True), request_id, expect)

    def delete_all(
        self, requests: Sequence[Request], *, request_id: str | None = None, expect: int | None = None
    ) -> list[Outcome | PrivtabError]:
        """Delete the resources of some requests as far as each is allowed, in one transaction; the error for each of the others.

        `request_id`: each deletion has this id with a hash of its resource.
        Raises StoreError, and deletes nothing, if the database fails.
        """
        requested = [ChangeRequest(request=request, delete=True) for request in requests]
        return self.carry_out_each(requested, request_id, expect)

    def change(
        self,
        request: Request,
        *,
        add: Tables | RawState | None = None,
        remove: Tables | RawState | None = None,
        new: Entity | None = None,
        request_id: str | None = None,
        expect: int | None = None,
    ) -> Outcome:
        """As `perform`, for an operation that changes rows: rows to add and to remove, beside its effects.

        The caller names the operation of the policy that permits the change, as in `grant_role` on a role; it must not come
        from a source that is not trusted. Rows must be about the objects of the request or about what lies below them.
        Raises StateInvalid, with every finding, if a row is wrong.
        """
        return self.carry_out(replace(_change_request(self.program, request, add, remove), new=new), request_id, expect)

    def carry_out(self, requested: ChangeRequest, request_id: str | None = None, expect: int | None = None) -> Outcome:
        """As `perform`, of any kind of change; also for callers who are not trusted, whose request then has a guard."""
        own = _PendingChange(requested, None if request_id is None else _checked_id(request_id), expect)
        self._commits.submit([own])
        assert own.result is not None
        if isinstance(own.result, Outcome):
            return own.result
        raise own.result

    def carry_out_each(
        self, requested: Sequence[ChangeRequest], request_id: str | None = None, expect: int | None = None
    ) -> list[Outcome | PrivtabError]:
        """As `delete_all`, of any kind of changes, each about another resource."""
        waiting: list[_PendingChange] = []
        for change in requested:
            part = hashlib.sha256(str(change.request.resource).encode()).hexdigest()[:16]
            own_id = None if request_id is None else _checked_id(f"{request_id} {part}")
            waiting.append(_PendingChange(change, own_id, expect))
        self._commits.submit(waiting)
        results = [item.result for item in waiting if item.result is not None]
        for result in results:
            if isinstance(result, StoreError) and not isinstance(result, StoreConflict):
                raise result
        return results

    def done(
        self,
        request_id: str,
        request: Request,
        *,
        add: Tables | RawState | None = None,
        remove: Tables | RawState | None = None,
        new: Entity | None = None,
        document: Mapping[str, Any] | None = None,
    ) -> Outcome | None:
        """Return the outcome of `change` or `perform` for this request id; None if none. Raises StoreConflict for another request."""
        requested = replace(_change_request(self.program, request, add, remove), new=new, document=document)
        with self.database.reading() as connection:
            return _known(connection, request_id, canonical(requested.to_json()))

    def propose(
        self,
        request: Request,
        *,
        add: Tables | RawState | None = None,
        remove: Tables | RawState | None = None,
        delete: bool = False,
        new: Entity | None = None,
        expect: int | None = None,
    ) -> Plan:
        """Plan what `change`, `perform` or `delete_entity` would do now; nothing is written."""
        return self.plan(replace(_change_request(self.program, request, add, remove), delete=delete, new=new), expect)

    def plan(self, requested: ChangeRequest, expect: int | None = None) -> Plan:
        """Plan what `carry_out` would do now; nothing is written."""
        with self.database.reading() as connection:
            head = read_head(connection)
            decision, changes = plan(self.program, self._excerpt(connection, head), requested)
            self._check_unseen(connection, head, requested, expect, changes)
        read = partial(self._rows_after, head.number)
        return Plan(number=head.number, decision=decision, changes=changes, rows=read, program=self.program)

    def _excerpt(self, connection: Connection, head: Head) -> Excerpt:
        """An excerpt for a transaction that only reads. Raises StateInvalid for rows that are wrong under this policy."""
        self._check_all(connection, head)
        return Excerpt(self.program, Reader().at(connection, head.hash), self.database.shown)

    def _rows_after(self, number: int) -> Rows:
        """Return the rows after a change; for the last change, the rows of the tables."""
        with self.database.reading() as connection:
            if read_head(connection).number == number:
                return Rows.read(connection)
            return replayed(connection, self.database.shown, number)

    def _write_together(self, take: Take[_PendingChange]) -> None:
        """Carry out changes in one transaction, so that one synchronisation of the disk is for all of them.

        What threads ask for while others are planned is carried out with these.
        """
        waiting: list[_PendingChange] = []
        results: list[Outcome | PrivtabError] = []
        begun = ready = False
        try:
            with self.database.writing() as connection:
                head = read_head(connection, lock=True)
                self._check_all(connection, head)
                begun = True
                self._reader.at(connection, head.hash)
                writer = Writer(connection, head, self._last_time.get(head.hash))
                while taken := take():
                    waiting += taken
                    requests = (item.requested.request for item in taken)
                    read_ahead(self.program, self._reader, self.database.shown, requests)
                    results += [self._result(connection, writer, item) for item in taken]
                changed = set(writer.pending)
                if (writer.head, self._policy) != (head, head.checked):
                    writer.finish(self._policy)
                self._reader.changed(writer.head.hash, changed)
                self._last_time = {writer.head.hash: writer.last}
                ready = True
        except BaseException as error:
            self._reader.forget()
            failed = error if isinstance(error, PrivtabError) else StoreError(f"{self.database.shown}: {error!r}")
            waiting = waiting or [*take()]
            alone = isinstance(error, Exception) and len(waiting) > 1 and begun and not ready
            for item in waiting if alone else ():
                # One of them is what the database refuses, or what cannot be planned: its own result says so.
                with suppress(Exception):
                    self._write_together(_only(item))
            for item in waiting:
                item.result = item.result or failed
            if not alone and not isinstance(error, PrivtabError):
                raise
        else:
            for item, result in zip(waiting, results, strict=True):
                item.result = result

    def _result(self, connection: Connection, writer: Writer, waiting: _PendingChange) -> Outcome | PrivtabError:
        """Plan one change on the rows that the changes before it left, and write it."""
        requested, request_id = waiting.requested, waiting.request_id
        resource, action = requested.request.resource, requested.request.action
        try:
            text = canonical(requested.to_json())
            if request_id is not None:
                known = _known(connection, request_id, text, writer.entries)
                if known is not None:
                    return known
            excerpt = Excerpt(self.program, self._reader, self.database.shown, writer.pending)
            decision, changes = plan(self.program, excerpt, requested)
            self._check_unseen(connection, writer.head, requested, waiting.expect, changes, writer.entries)
        except PrivtabError as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreConflict):
                raise
            return error
        number = writer.append(
            changes,
            actor=requested.request.user,
            request_id=request_id,
            action=action,
            resource=str(resource),
            request=text,
            decision=canonical(decision.to_json()),
        )
        return Outcome(number=number, decision=decision, changes=changes)

    def _check_unseen(
        self,
        connection: Connection,
        head: Head,
        requested: ChangeRequest,
        expect: int | None,
        changes: Sequence[Change],
        pending: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Raise StoreConflict if a change after `expect`, which the caller does not know, concerns the same rows.

        Where no row changes, that is one by the same operation on the same objects: of two creations the second comes too late.
        """
        if expect is not None and expect > head.number:
            raise StoreConflict(f"the store has {head.number:,} changes, and change {expect:,} was expected")
        if requested.guard is not None and requested.creates is not None:
            expect = requested.guard.number if expect is None else min(expect, requested.guard.number)
        if expect is None:
            return
        own = {about(change) for change in changes}
        same = {name: part for name, part in requested.request.to_json().items() if name != "subject"}
        for row in chain(entries(connection, expect), pending):
            if row["number"] <= expect:
                continue
            entry = Entry.of(row)
            if any(about(change) in own for change in entry.changes) or (
                not own and all(entry.request.get(name) == part for name, part in same.items())
            ):
                raise StoreConflict(
                    f"change {row['number']} by {row['actor']} concerns the same rows, and came after change {expect}: read them again"
                )

    def _check_all(self, connection: Connection, head: Head) -> None:
        """Raise StateInvalid unless all rows are valid under this policy; that is known if the last writer had the same."""
        if head.checked != self._policy:
            checked(self.program, Rows.read(connection), self.database.shown)


@dataclass(slots=True)
class _PendingChange:
    """A change that a thread asked for, and what became of it."""

    requested: ChangeRequest
    request_id: str | None
    expect: int | None
    result: Outcome | PrivtabError | None = None


def _only(item: _PendingChange) -> Take[_PendingChange]:
    """Take one item, and then nothing."""
    items = [item]
    return lambda: [items.pop()] if items else []


@once
def fingerprint(program: Program) -> str:
    """Return the same text for two policies only if rows that are valid under one are valid under the other."""
    return hashlib.sha256(canonical([__version__, program_json(program)]).encode()).hexdigest()


def _known(
    connection: Connection, request_id: str, requested: str, pending: Sequence[Mapping[str, Any]] = ()
) -> Outcome | None:
    """Return the outcome of an earlier request with the same id. Raises StoreConflict if it was another request.

    `requested`: the request as the journal records it. `pending`: rows of the journal that are not written yet.
    """
    found: Mapping[str, Any] | None = next((row for row in pending if row["request_id"] == request_id), None)
    if found is None:
        found = row_of_request(connection, request_id)
    if found is None:
        return None
    if found["request"] != requested:
        raise StoreConflict(f"the request id `{request_id}` belongs to another request, change {found['number']}")
    return Outcome.of(Entry.of(found))


def _append_unasked(
    writer: Writer, changes: Sequence[Change], action: str, actor: str, request: dict[str, Any]
) -> None:
    """An entry of the operator, which no decision allowed."""
    writer.append(changes, actor=actor, action=f"store {action}", request=canonical(request), decision="{}")
    writer.flush()


def _change_request(
    program: Program, request: Request, add: Tables | RawState | None, remove: Tables | RawState | None
) -> ChangeRequest:
    added, removed = raw(add, "the rows to add"), raw(remove, "the rows to remove")
    given = [row.cells for rows in (added, removed) if rows for listed in rows.rows.values() for row in listed]
    return ChangeRequest(request=naming(program, request, given), add=added, remove=removed)


def _checked_id(request_id: str) -> str:
    _check_name(request_id, "request id")
    if not 0 < len(request_id) <= LONGEST_ID:
        raise UsageError(f"a request id has 1 to {LONGEST_ID} characters")
    return request_id


def _check_name(text: str, what: str) -> None:
    if (character := unusable_character(text)) is not None:
        raise UsageError(f"the {what} holds the character {character}")
