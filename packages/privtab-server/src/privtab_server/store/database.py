"""The database of a store: how it is opened, its transactions, which threads share, its tables and their version."""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from privtab.base import FileError, UsageError, needing
from privtab.state import TABLE_COLUMNS
from privtab_server.addresses import STORE
from privtab_server.errors import StoreError

METADATA = sa.MetaData()
JOURNAL = sa.Table(
    "journal",
    METADATA,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("request_id", sa.String(200), unique=True),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("resource", sa.Text),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("decision", sa.Text, nullable=False),
    sa.Column("changes", sa.Text, nullable=False),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)
HEAD = sa.Table(
    "head",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("system", sa.Text, nullable=False),
    sa.Column("checked", sa.String(64)),
)
"""One row, which every writer locks. `checked`: the policy under which all rows are known to be valid."""
TABLES_VERSION = "0001"
"""The version of these tables: another one needs another number, and tables of the earlier ones are to be changed then."""
VERSION = sa.Table("alembic_version", METADATA, sa.Column("version_num", sa.String(32), primary_key=True))
"""One row, in the form of Alembic, so that its migrations can lead to later versions."""
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Texts that are compared by their characters."""
STATE = {
    name: sa.Table(
        f"state_{name}",
        METADATA,
        sa.Column("id", sa.String(64), primary_key=True),
        *(sa.Column(cell, TEXT, nullable=cell not in columns.required) for cell in columns.all),
        sa.Column("change", sa.BigInteger, nullable=False),
    )
    for name, columns in TABLE_COLUMNS.items()
}
"""The rows of a state by table. `id` is a hash, since names are too long for an index; `change` added the row.

`change` is no foreign key, which would cost a look-up and a lock for each row: `verify` compares the rows with the journal.
"""
CUT = 300
"""Characters of a text in an index: PostgreSQL takes at most 2,704 bytes for the columns of an index together."""
INDEXES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "members": (("user",), ("of",)),
    "memberships": (("user",), ("group",)),
    "assignments": (("principal",), ("role",), ("scope",)),
    "grants": (("entity", "grantee"), ("grantee",)),
    "owners": (("entity",), ("owner",)),
    "service_admins": (("user",),),
    "attributes": (("user",), ("entity",)),
    "entities": (("entity",), ("parent",)),
}
"""The columns by which rows are looked up, by table."""
BEGINNING = "0" * 64
"""The hash before the first entry of a journal."""


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_TEXT: Callable[[str], str] = json.encoder.encode_basestring_ascii


def cut(column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """A text as it is in an index. The numbers are part of the statement, or no index would fit it."""
    return sa.func.substr(column, sa.literal_column("1"), sa.literal_column(str(CUT)))


for _name, _indexes in INDEXES.items():
    for _columns in _indexes:
        sa.Index(f"of_{_name}_{'_'.join(_columns)}", *(cut(STATE[_name].c[cell]) for cell in _columns))


def canonical(value: object) -> str:
    """JSON in ASCII with sorted keys and no spaces."""
    return _ENCODER.encode(value)


def row_id(cells: Mapping[str, str | None]) -> str:
    """The primary key of a row: a hash of its cells as canonical JSON, which is written here without the encoder's overhead."""
    texts = [f"{_TEXT(name)}:{'null' if text is None else _TEXT(text)}" for name, text in sorted(cells.items())]
    return hashlib.sha256(f"{{{','.join(texts)}}}".encode()).hexdigest()


def entry_hash(entry: Mapping[str, Any]) -> str:
    """The hash of a row of the journal, which covers the hash before it and every other column as it is stored."""
    content = {name: value for name, value in entry.items() if name != "hash"}
    return hashlib.sha256((entry["previous"] + canonical(content)).encode()).hexdigest()


BUSY = 60
"""Seconds that a writer waits for others."""
_WRITES = "privtab_writes"


def address(text: str) -> sa.URL:
    """The URL of a store: `postgresql+psycopg://…`, or the path of an SQLite file. Raises UsageError, FileError."""
    text = text.removeprefix(STORE)  # As `--state` takes it.
    try:
        url = sa.make_url(text) if "://" in text else sa.URL.create("sqlite", database=text)
        backend = url.get_backend_name()
    except (SQLAlchemyError, ValueError) as error:
        raise UsageError(f"`{text.partition('://')[0]}://…` is not the URL of a database: {reason(error)}") from error
    if backend not in {"sqlite", "postgresql"}:
        raise UsageError(
            f"a store is in SQLite or PostgreSQL, not in `{backend}`: give a path, or postgresql+psycopg://…"
        )
    if backend == "sqlite" and url.database in {None, "", ":memory:"}:
        raise UsageError("a store in SQLite needs a file: give its path")
    if backend == "sqlite" and not Path(str(url.database)).parent.is_dir():
        raise FileError(f"no such folder: {Path(str(url.database)).parent}")
    return url


class Database:
    """A database with transactions that read one moment, or write alone."""

    def __init__(self, url: sa.URL) -> None:
        self.url = url
        self.sqlite = url.get_backend_name() == "sqlite"
        self.shown = str(url.database) if self.sqlite else url.render_as_string(hide_password=True)
        settings: dict[str, Any] = {"connect_args": {"timeout": BUSY}} if self.sqlite else {"pool_pre_ping": True}
        try:
            with needing(self.shown):
                self.engine = sa.create_engine(url, **settings)
        except SQLAlchemyError as error:
            raise UsageError(f"{self.shown} cannot be opened by SQLAlchemy: {reason(error)}") from error
        if self.sqlite:
            sa.event.listen(self.engine, "connect", _configure)
            sa.event.listen(self.engine, "begin", _begin)

    def existing(self) -> Database:
        """The database itself; raises FileError if it is an SQLite file that does not exist."""
        if self.sqlite and not Path(self.shown).is_file():
            if (store := file_before_at(self.shown)) is not None:
                raise FileError(
                    f"no such store: {self.shown}; only a state is read at a moment, as in `--state store:{self.shown}`: "
                    f"give {store} here"
                )
            raise FileError(f"no such store: {self.shown}; `privtab store create` creates one")
        return self

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that sees one moment. Raises StoreError if the database fails."""
        options = {} if self.sqlite else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._connected(options) as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that is committed at the end, or not at all. Raises StoreError if the database fails."""
        options = {_WRITES: True} if self.sqlite else {"isolation_level": "READ COMMITTED"}
        with self._connected(options) as connection, connection.begin():
            yield connection

    @contextmanager
    def _connected(self, options: dict[str, Any]) -> Iterator[sa.Connection]:
        try:
            with self.engine.connect().execution_options(**options) as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(f"{self.shown}: {reason(error)}") from error


def file_before_at(path: str) -> str | None:
    """The file before an `@` of a path that is no file itself; None if there is none."""
    if Path(path).is_file():
        return None
    ends = (end for end, sign in enumerate(path) if sign == "@")
    return next((path[:end] for end in ends if Path(path[:end]).is_file()), None)


def create_tables(connection: sa.Connection) -> None:
    """Create the tables, and record their version."""
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(VERSION.insert(), [{"version_num": TABLES_VERSION}])


def version(connection: sa.Connection) -> str | None:
    """The version of the tables; None for a database without a store."""
    if not sa.inspect(connection).has_table(VERSION.name):
        return None
    found: str | None = connection.execute(sa.select(VERSION.c.version_num)).scalar_one_or_none()
    return found


def check_version(connection: sa.Connection, shown: str) -> None:
    """Raise StoreError unless the tables have the version that this code reads and writes."""
    found = version(connection)
    if found is None:
        raise StoreError(f"{shown} holds no store: `privtab store create` creates one")
    if found != TABLES_VERSION:
        raise StoreError(
            f"the tables of {shown} have version {found}, and this privtab works with {TABLES_VERSION}: "
            "use the privtab that created the store, or a newer one"
        )


def reason(error: Exception) -> str:
    """The first line of what a driver says, without the statement that SQLAlchemy adds."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def _configure(connection: Any, _record: object) -> None:
    """Set up a new connection to SQLite. Transactions begin as `_begin` says, not as the driver guesses."""
    connection.isolation_level = None
    for setting in (f"busy_timeout = {BUSY * 1000}", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {setting}").close()


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction of SQLite: a writer takes the lock at once, so that it never has to give up halfway."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


# --- rows of filters, beside those of the store ----------------------------------------------------------------------


_TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def keep_rows(
    url: str, name: str, columns: Sequence[str], rows: Iterable[tuple[object, ...]], key: str, revision: str | None
) -> None:
    """Replace the rows of a filter in a table, which is made if there is none, in one transaction.

    `url`: the store's. `columns` and `rows`: the filter's. `revision`: the state's, which gets a column of its own.
    Raises UsageError for a name that is no plain one or is of the store itself, FileError, StoreError.
    """
    if not _TABLE_NAME.fullmatch(name) or name in METADATA.tables:
        raise UsageError(
            f"`{name}` is no name for a table of filters: small letters, digits and `_`, and none of the store's"
        )
    numbers = ("depth", "allowed")
    made = (sa.Column(one, sa.Integer if one in numbers else TEXT, nullable=one.startswith("name")) for one in columns)
    table = sa.Table(name, sa.MetaData(), *made, sa.Column("revision", sa.Text))
    sa.Index(f"of_{name}", table.c.filter)
    added = [dict(zip((*columns, "revision"), (*row, revision), strict=True)) for row in rows]
    with Database(address(url)).existing().writing() as connection:
        table.create(connection, checkfirst=True)
        connection.execute(table.delete().where(table.c.filter == key))
        if added:
            connection.execute(table.insert(), added)


# --- group commit ----------------------------------------------------------------------------------------------------


T = TypeVar("T")
Take: TypeAlias = Callable[[], Sequence[T]]
"""Returns what threads have asked for and nobody has taken yet; nothing once a transaction has enough."""
MOST_TOGETHER = 100
"""Changes after which a transaction takes no more."""


class _Group(Generic[T]):
    """Items of one thread that belong into one transaction."""

    __slots__ = ("done", "items", "leads", "turn")

    def __init__(self, items: Sequence[T]) -> None:
        self.items = items
        self.done = self.leads = False
        self.turn = Lock()
        """Released when all items are done, or when the thread is to write."""
        self.turn.acquire()


class GroupCommit(Generic[T]):
    """One thread at a time writes, in one transaction, what all threads ask for until it commits; the others wait for that.

    So the disk is synchronised once for all of them.
    """

    def __init__(self, write: Callable[[Take[T]], None]) -> None:
        """`write` carries out what it takes; it must take at least once, and leave the outcome in the items."""
        self._write = write
        self._lock = Lock()
        self._queue: deque[_Group[T]] = deque()
        self._busy = False
        """True if a thread writes, or was told to."""

    def submit(self, items: Sequence[T]) -> None:
        """Have items written; returns when their transaction has ended."""
        group = _Group(items)
        with self._lock:
            self._queue.append(group)
            group.leads = not self._busy
            self._busy = True
        if not group.leads:
            try:
                group.turn.acquire()
            except BaseException:  # An interrupt, such as KeyboardInterrupt: nobody waits for the items any more.
                self._leave(group)
                raise
        if not group.done:
            self._lead(group)

    def waiting(self) -> int:
        """The number of threads that wait for a transaction to take their items."""
        return len(self._queue)

    def _lead(self, group: _Group[T]) -> None:
        taken: list[_Group[T]] = []
        try:
            self._write(lambda: self._take(taken))
        finally:
            self._leave(group)
            for written in taken:
                written.done = True
                written.turn.release()

    def _take(self, taken: list[_Group[T]]) -> list[T]:
        items: list[T] = []
        with self._lock:
            count = sum(len(group.items) for group in taken)
            while self._queue and count < MOST_TOGETHER:
                group = self._queue.popleft()
                taken.append(group)
                items += group.items
                count += len(group.items)
        return items

    def _leave(self, group: _Group[T]) -> None:
        """Forget a group that nobody took; if its thread leads, let the one that has waited longest write next."""
        with self._lock:
            if group in self._queue:
                self._queue.remove(group)
            if group.leads:
                self._busy = bool(self._queue)
                if self._busy:
                    self._queue[0].leads = True
                    self._queue[0].turn.release()
