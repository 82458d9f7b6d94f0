"""The database of a store: how it is opened, its transactions, and the version of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, create_engine, event, make_url
from sqlalchemy.exc import SQLAlchemyError

from privtab.errors import FileError, StoreError, UsageError

BUSY = 60
"""Seconds that a writer waits for others."""
_MIGRATIONS = Path(__file__).parent / "migrations"
_WRITES = "privtab_writes"


def address(text: str) -> URL:
    """The URL of a store: `postgresql+psycopg://…`, or the path of an SQLite file. Raises UsageError, FileError."""
    text = text.removeprefix("store:")  # As `--state` takes it.
    try:
        url = make_url(text) if "://" in text else URL.create("sqlite", database=text)
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

    def __init__(self, url: URL) -> None:
        self.url = url
        self.sqlite = url.get_backend_name() == "sqlite"
        self.shown = str(url.database) if self.sqlite else url.render_as_string(hide_password=True)
        settings: dict[str, Any] = {"connect_args": {"timeout": BUSY}} if self.sqlite else {"pool_pre_ping": True}
        try:
            self.engine = create_engine(url, **settings)
        except (SQLAlchemyError, ImportError) as error:
            raise UsageError(f"{self.shown} cannot be opened by SQLAlchemy: {reason(error)}") from error
        if self.sqlite:
            event.listen(self.engine, "connect", _configure)
            event.listen(self.engine, "begin", _begin)

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
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment. Raises StoreError if the database fails."""
        options = {} if self.sqlite else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._connected(options) as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed at the end, or not at all. Raises StoreError if the database fails."""
        options = {_WRITES: True} if self.sqlite else {"isolation_level": "READ COMMITTED"}
        with self._connected(options) as connection, connection.begin():
            yield connection

    @contextmanager
    def _connected(self, options: dict[str, Any]) -> Iterator[Connection]:
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


def migrate(connection: Connection) -> None:
    """Create the tables, or bring them to the newest version."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def version(connection: Connection) -> str | None:
    """The version of the tables; None for a database without a store."""
    return MigrationContext.configure(connection).get_current_revision()


def newest() -> str:
    """The version of the tables that this code reads and writes."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


def check_version(connection: Connection, shown: str) -> None:
    """Raise StoreError unless the tables have the version that this code reads and writes."""
    found = version(connection)
    if found is None:
        raise StoreError(f"{shown} holds no store: `privtab store create` creates one")
    if found != newest():
        raise StoreError(
            f"the tables of {shown} have version {found}, and this privtab works with {newest()}: "
            "use the privtab that created the store, or a newer one"
        )


def reason(error: Exception) -> str:
    """The first line of what a driver says, without the statement that SQLAlchemy adds."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _configure(connection: Any, _record: object) -> None:
    """Set up a new connection to SQLite. Transactions begin as `_begin` says, not as the driver guesses."""
    connection.isolation_level = None
    for setting in (f"busy_timeout = {BUSY * 1000}", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {setting}").close()


def _begin(connection: Connection) -> None:
    """Begin a transaction of SQLite: a writer takes the lock at once, so that it never has to give up halfway."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
