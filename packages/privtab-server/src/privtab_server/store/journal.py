"""The journal of a store: every change, in order, each entry with the hash of the one before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import time_ns
from typing import Any

from sqlalchemy import Connection, bindparam, select

from privtab.base import Change, UsageError, moment_text, parse_moment
from privtab.state import TABLE_COLUMNS, row_text
from privtab_analysis.html import page
from privtab_server.errors import StoreError
from privtab_server.store.database import (
    BEGINNING,
    HEAD,
    JOURNAL,
    STATE,
    Database,
    address,
    canonical,
    check_version,
    entry_hash,
    row_id,
)
from privtab_server.store.lookups import Rows

MOST_CHANGES = 5_000
"""Rows of one entry: a load of more rows makes several entries, in one transaction."""
PAGE = 100
"""Entries that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change: who asked for what, by which decision, and the rows that it added and removed."""

    number: int
    at: str
    actor: str
    request_id: str | None
    action: str
    resource: str | None
    request: Mapping[str, Any]
    decision: Mapping[str, Any]
    changes: tuple[Change, ...]
    hash: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Entry:
        """The entry in a row of the journal. Raises StoreError if it cannot be read."""
        try:
            texts = {name: json.loads(row[name]) for name in ("request", "decision", "changes")}
            changes = tuple(Change.from_json(change) for change in texts.pop("changes"))
        except (ValueError, TypeError) as error:
            raise _unreadable(row["number"], error) from error
        plain = {name: row[name] for name in ("number", "at", "actor", "request_id", "action", "resource", "hash")}
        return cls(**plain, **texts, changes=changes)

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON."""
        return {name: getattr(self, name) for name in self.__slots__} | {"changes": [c.to_json() for c in self.changes]}


@dataclass(frozen=True, slots=True)
class Head:
    """The last change of a store, and the system whose rows it holds."""

    number: int
    hash: str
    system: str
    checked: str | None = None
    """Under which policy all rows are known to be valid."""


def read_head(connection: Connection, *, lock: bool = False) -> Head:
    """The head; `lock`: until the end of the transaction, no other writer passes."""
    found = connection.execute(_LOCKED_HEAD if lock else _HEAD).one_or_none()
    if found is None:
        raise StoreError("the store has no head: it was not created completely")
    return Head(*found)


def entries(connection: Connection, after: int = 0, until: int | None = None) -> Iterator[Mapping[str, Any]]:
    """The rows of the journal after a change, in order.

    They are read in pages: a cursor that is not read to its end would keep the connection at this moment, whoever uses it next.
    """
    question = select(JOURNAL).order_by(JOURNAL.c.number).limit(PAGE)
    if until is not None:
        question = question.where(JOURNAL.c.number <= until)
    while True:
        page = connection.execute(question.where(JOURNAL.c.number > after)).mappings().all()
        yield from map(dict, page)
        if len(page) < PAGE:
            return
        after = page[-1]["number"]


def row_of_request(connection: Connection, request_id: str) -> dict[str, Any] | None:
    """The row of the journal whose request has an id."""
    question = select(JOURNAL).where(JOURNAL.c.request_id == request_id)
    found = connection.execute(question).mappings().one_or_none()
    return None if found is None else dict(found)


class Writer:
    """Collects the changes of one transaction, from the head on, and writes them to the journal and to the tables at its end."""

    def __init__(self, connection: Connection, head: Head, last: int | None = None) -> None:
        """`last`: when the last change was made; read from the journal if it is not known."""
        self.head = head
        self.entries: list[dict[str, Any]] = []
        """The rows of the journal that were not written yet."""
        self.pending: dict[str, dict[str, Change]] = {}
        """The last change to each row, by table and id."""
        self.last = _last_time(connection, head) if last is None else last
        """The time of the last change."""
        self._connection = connection
        self._numbers: dict[str, dict[str, int]] = {}
        """The number of that change, by table and id."""
        self._stored: dict[str, list[str]] = {}
        """Ids of the rows that the tables have, and lose, by table."""

    def append(self, changes: Sequence[Change], **columns: Any) -> int:
        """Add one entry with its changes; returns its number. Times never go backwards."""
        self.last = max(time_ns(), self.last)
        number = self.head.number + 1
        entry = {
            "number": number,
            "at": moment_text(self.last),
            "request_id": None,
            "resource": None,
            **columns,
            "changes": canonical([change.to_json() for change in changes]),
            "previous": self.head.hash,
        }
        entry["hash"] = entry_hash(entry)
        self.entries.append(entry)
        for change in changes:
            id_, rows = row_id(change.row or {}), self.pending.setdefault(change.table, {})
            if id_ not in rows and change.action == "remove":
                self._stored.setdefault(change.table, []).append(id_)
            rows[id_] = change
            self._numbers.setdefault(change.table, {})[id_] = number
        self.head = Head(number, entry["hash"], self.head.system, self.head.checked)
        return number

    def flush(self) -> None:
        """Write what was collected. A row that goes and comes back is removed once, and added by the last change that does."""
        if self.entries:
            self._connection.execute(_INSERT_ENTRY, self.entries)
        for name, table in STATE.items():
            gone = self._stored.get(name, [])
            for first in range(0, len(gone), 500):
                self._connection.execute(table.delete().where(table.c.id.in_(gone[first : first + 500])))
            rows = [
                {**_NO_CELLS[name], **(change.row or {}), "id": id_, "change": self._numbers[name][id_]}
                for id_, change in self.pending.get(name, {}).items()
                if change.action == "add"
            ]
            if rows:
                self._connection.execute(_INSERT[name], rows)
        self.entries, self.pending, self._numbers, self._stored = [], {}, {}, {}

    def finish(self, checked: str) -> None:
        """Write what was collected, and move the head to the last entry. `checked`: under which policy all rows are valid."""
        self.flush()
        values = {"number": self.head.number, "hash": self.head.hash, "checked": checked}
        self._connection.execute(_MOVE_HEAD, values)


def _unreadable(number: int, error: Exception) -> StoreError:
    return StoreError(f"change {number} of the journal cannot be read: {error}")


def _last_time(connection: Connection, head: Head) -> int:
    found = connection.execute(_TIME, {"last": head.number}).scalar_one_or_none()
    return 0 if found is None else parse_moment(found)


_TIME = select(JOURNAL.c.at).where(JOURNAL.c.number == bindparam("last"))
_REQUESTS = (
    select(*(JOURNAL.c[name] for name in ("number", "at", "actor", "request")))
    .where(JOURNAL.c.number > bindparam("after"))
    .order_by(JOURNAL.c.number)
    .limit(10 * PAGE)
)
_HEAD = select(HEAD.c.number, HEAD.c.hash, HEAD.c.system, HEAD.c.checked)
_LOCKED_HEAD = _HEAD.with_for_update()
_INSERT_ENTRY = JOURNAL.insert()
_INSERT = {name: table.insert() for name, table in STATE.items()}
_NO_CELLS = {name: dict.fromkeys(columns.all) for name, columns in TABLE_COLUMNS.items()}
_MOVE_HEAD = HEAD.update()


class Journal:
    """A store that is only read: its rows at any moment, its journal, and whether both agree."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.reading() as connection:
            check_version(connection, database.shown)
            self.system = read_head(connection).system

    @classmethod
    def open(cls, url: str) -> Journal:
        """Open a store. Raises FileError, StoreError or UsageError if there is none that this code can read."""
        return cls(Database(address(url)).existing())

    def head(self) -> Head:
        """The last change."""
        with self.database.reading() as connection:
            return read_head(connection)

    def log(self, after: int = 0, most: int | None = None) -> list[Entry]:
        """The entries after a change, oldest first; `most`: only so many."""
        with self.database.reading() as connection:
            return [Entry.of(row) for row in islice(entries(connection, after), most)]

    def requests(self, after: int = 0) -> Iterator[tuple[int, str, str, dict[str, Any]]]:
        """Yield number, time, actor and request of each entry after a change, without its decision and its rows."""
        while True:
            with self.database.reading() as connection:
                page = connection.execute(_REQUESTS, {"after": after}).all()
            for number, at, actor, request in page:
                try:
                    yield number, at, actor, json.loads(request)
                except ValueError as error:
                    raise _unreadable(number, error) from error
            if not page:
                return
            after = page[-1].number

    def requested(self, request_id: str) -> Entry | None:
        """The entry of the request with an id; None if there is none."""
        with self.database.reading() as connection:
            found = row_of_request(connection, request_id)
        return None if found is None else Entry.of(found)

    def inverse(self, number: int) -> tuple[dict[str, list[dict[str, str]]], dict[str, list[dict[str, str]]]]:
        """The rows to add and to remove that undo a change. Raises UsageError if there is no such change."""
        with self.database.reading() as connection:
            found = [Entry.of(row) for row in entries(connection, number - 1, number)]
        if not found:
            raise UsageError(f"{self.database.shown} has no change {number:,}")
        add: dict[str, list[dict[str, str]]] = {}
        remove: dict[str, list[dict[str, str]]] = {}
        for change in found[0].changes:
            rows = add if change.action == "remove" else remove
            rows.setdefault(change.table, []).append({name: str(text) for name, text in (change.row or {}).items()})
        return add, remove

    def rows(self, *, number: int | None = None, moment: int | None = None) -> dict[str, list[dict[str, str]]]:
        """The rows now, after a change, or at a moment. Raises UsageError if the store did not exist then."""
        with self.database.reading() as connection:
            head = read_head(connection)
            if number is None and moment is None:
                return Rows.read(connection).as_tables()
            if number is not None and not 1 <= number <= head.number:
                raise UsageError(f"{self.database.shown} has the changes 1 to {head.number:,}, not {number:,}")
            return replayed(connection, self.database.shown, number, moment).as_tables()

    def latest(self, known: tuple[Head, Rows] | None = None) -> tuple[Head, Rows]:
        """Return the last change and the rows after it; `known`: the result of an earlier call, which is only brought forward."""
        with self.database.reading() as connection:
            head = read_head(connection)
            if known is not None:
                before, rows = known
                if (before.number, before.hash) == (head.number, head.hash):
                    return known
                same = select(JOURNAL.c.hash).where(JOURNAL.c.number == before.number)
                if connection.execute(same).scalar_one_or_none() == before.hash:
                    rows = Rows(rows.tables)
                    for row in entries(connection, before.number, head.number):
                        rows.apply(row["number"], Entry.of(row).changes)
                    return head, rows
            return head, Rows.read(connection)

    def verify(self) -> list[str]:
        """Return the faults of the journal: hashes that do not fit their entries, and rows that differ from the replayed journal."""
        with self.database.reading() as connection:
            head, rows, previous, number = read_head(connection), Rows(), BEGINNING, 0
            found: list[str] = []
            for row in entries(connection):
                number += 1
                if row["number"] != number:
                    return [*found, f"change {number} is missing from the journal"]
                if row["previous"] != previous or row["hash"] != entry_hash(row):
                    return [*found, f"change {number} was altered, or one before it: its hash is wrong"]
                previous = row["hash"]
                try:
                    rows.apply(number, Entry.of(row).changes)
                except StoreError as error:
                    return [*found, str(error)]
                if number == 1 and Entry.of(row).request.get("system") != head.system:
                    found.append(f"the head says that the store is of {head.system}, and change 1 says otherwise")
            if (head.number, head.hash) != (number, previous):
                found.append(
                    f"the head says change {head.number}, and the journal ends with {number}: entries are missing"
                )
            return found + list(_differences(rows, Rows.read(connection)))


def replayed(connection: Connection, shown: str, number: int | None, moment: int | None = None) -> Rows:
    """The rows that the entries of the journal give, up to a number or a moment."""
    rows, created = Rows(), False
    for row in entries(connection, until=number):
        if moment is not None and parse_moment(row["at"]) > moment:
            break
        created = True
        rows.apply(row["number"], Entry.of(row).changes)
    if not created:
        raise UsageError(
            f"{shown} did not exist at {moment_text(moment or 0)}; `privtab store show --after 0` lists its changes"
        )
    return rows


def _differences(replayed: Rows, stored: Rows) -> Iterator[str]:
    """The rows in which the tables differ from the journal."""
    for name, table in replayed.tables.items():
        others = stored.tables[name]
        for id_ in sorted({*table, *others}):
            if id_ not in others:
                yield f"`{name}` lacks the row {canonical(dict(table[id_][1]))} of change {table[id_][0]}"
            elif id_ not in table:
                yield f"`{name}` has the row {canonical(dict(others[id_][1]))}, which no change added"
            elif table[id_] != others[id_]:
                yield f"`{name}` has {canonical(dict(others[id_][1]))} in the place of {canonical(dict(table[id_][1]))}"


MOST = 20
"""Maximum rows shown of one change."""


def journal_page(entries: Sequence[Entry], system: str, shown: str, *, most: int = 1000) -> str:
    """The HTML page of changes, the newest first, without scripts or external resources; `shown`: the address of the store in commands. At most `most` are shown."""
    newest = list(entries[-most:])[::-1]
    earlier = bool(newest) and newest[-1].number > 1
    return page(
        "store/journal", entries=newest, system=system, url=shown, earlier=earlier, row_text=row_text, MOST=MOST
    )
