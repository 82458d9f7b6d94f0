"""The driver for databases: a driver document's statements, through SQLAlchemy. Questions are rolled back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from privtab._install import how_to_install
from privtab.conform.document import AnswerPatterns, Call, Calls, DriverDocument
from privtab.conform.documented import DocumentedDriver
from privtab.conform.nodes import Answer
from privtab.conform.values import Step, SystemNames
from privtab.errors import DriverError, FormatError, UsageError
from privtab.ir.nodes import Program
from privtab.names import decode_name
from privtab.request import Entity, Request

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine import URL

MAX_CONNECTIONS = 16
"""The most connections that one thread keeps open, each to another database."""


class SqlDriver(DocumentedDriver):
    """Makes roles, objects and grants as an administrator, and asks as the user of each request."""

    def __init__(self, document: DriverDocument, program: Program, url: str) -> None:
        try:
            import sqlalchemy
        except ImportError as error:
            raise UsageError(f"asking a database needs SQLAlchemy: {how_to_install('import')}") from error
        try:
            self._url: URL = sqlalchemy.make_url(url)
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise UsageError(f"`{url.partition('://')[0]}://…` is no address of a database") from error
        super().__init__(document, program, SystemNames(program, document, self._quoted))
        self._threads = threading.local()
        self._open: list[Connection] = []
        self._lock = threading.Lock()

    def _quoted(self, name: str) -> str:
        quote = self._document.quote
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    def ask(self, request: Request) -> Answer:
        """As Driver.ask."""
        operation = self.operation(request)
        if operation is None:
            return Answer.UNSUPPORTED
        statements = self._statements(operation.calls, request)
        if operation.login:
            return self._asked_as(request, statements, operation.signs)
        connection = self._connection(self._database(request.resource))
        with self._errors():
            transaction = connection.begin()
        try:
            for statement in self._statements(self._document.become, request):
                connection.exec_driver_sql(statement)
            return self._read_answer(request, lambda: self._execute(connection, statements), operation.signs)
        finally:
            with contextlib.suppress(Exception):
                transaction.rollback()

    def reproduce(self, request: Request) -> str:
        """As Driver.reproduce: the statements, in a transaction that is rolled back."""
        operation = self.operation(request)
        if operation is None:
            return ""
        statements = self._statements(operation.calls, request)
        if operation.login:
            return f"-- as {request.user}: {'; '.join(statements)};"
        return "; ".join(["begin", *self._statements(self._document.become, request), *statements, "rollback"]) + ";"

    # --- private ---

    def _statements(self, calls: Calls, request: Request) -> list[str]:
        values = self._names.request(request)
        try:
            return [call.text.plain(values) for call in calls]
        except FormatError as error:
            raise DriverError(f"{self._document.path}: {error}") from error

    def _execute(self, connection: Connection, statements: Iterable[str]) -> None:
        for statement in statements:
            connection.exec_driver_sql(statement)

    def _read_answer(self, request: Request, execute: Callable[[], None], signs: AnswerPatterns) -> Answer:
        """What the statements came to. Raises DriverError if the connection broke."""
        from sqlalchemy.exc import DBAPIError

        try:
            execute()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise DriverError(f"the database closed the connection: {_message(error)}") from error
            codes, message = _codes(error), str(error.orig)
            for answer, marks in (
                (Answer.REFUSED, signs.refused),
                (Answer.HIDDEN, signs.hidden),
                (Answer.ALLOWED, signs.allowed),
            ):
                if any(mark in codes or mark == message or (" " in mark and mark in message) for mark in marks):
                    return answer
            return self.broken(request, " ".join((*sorted(codes - {message, _message(error)}), _message(error))))
        return Answer.ALLOWED

    def _asked_as(self, request: Request, statements: list[str], signs: AnswerPatterns) -> Answer:
        """Ask on a connection that the user opens."""
        import sqlalchemy

        url = self._url.set(
            username=request.user,
            password=self._names.password,
            database=self._database(request.resource) or self._url.database,
        )
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)

        def execute() -> None:
            with engine.connect() as connection:
                self._execute(connection, statements)
                connection.rollback()

        try:
            return self._read_answer(request, execute, signs)
        finally:
            engine.dispose()

    def call(self, call: Call, step: Step, *, absent_is_done: bool = False) -> str | None:
        """As DocumentedDriver.call."""
        from sqlalchemy.exc import DBAPIError

        database = self._database(step.at, outside=step.outside)
        try:
            self._connection(database, for_good=True).exec_driver_sql(call.text.plain(step.values))
        except (DBAPIError, FormatError) as error:
            return _message(error)
        except DriverError as error:
            # An entity in a database that is gone is gone too.
            return None if absent_is_done and database is not None else str(error)
        return None

    def _database(self, entity: Entity | None, *, outside: bool = False) -> str | None:
        """The database that contains an entity; None: the one in the URL."""
        type_ = self._document.database
        if type_ is None or entity is None or outside or type_ not in self._program.chain(entity.type):
            return None
        return decode_name(entity.names[self._program.depth(type_) - 1])

    def _connection(self, database: str | None, *, for_good: bool = False) -> Connection:
        """The administrator's connection of this thread to a database; `for_good`: what it does is not rolled back.

        Raises DriverError.
        """
        import sqlalchemy

        known: dict[tuple[str | None, bool], Connection] = self._threads.__dict__.setdefault("known", {})
        key = database, for_good
        connection = known.get(key)
        if connection is not None and not connection.closed:
            known[key] = known.pop(key)
            return connection
        while len(known) >= MAX_CONNECTIONS:
            known.pop(next(iter(known))).close()
        url = self._url if database is None else self._url.set(database=database)
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
        with self._errors():
            connection = engine.connect()
            if for_good:  # what makes or drops a database cannot stand in a transaction
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        known[key] = connection
        with self._lock:
            self._open.append(connection)
        return connection

    def disconnect(self) -> None:
        """As DocumentedDriver.disconnect."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(Exception):
                    connection.close()
            self._open.clear()
        self._threads = threading.local()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except SQLAlchemyError as error:
            shown = self._url.render_as_string(hide_password=True)
            raise DriverError(f"{shown}: {_message(error)}") from error


def _codes(error: Exception) -> set[str]:
    """The SQLSTATE of an error, and the number that the database gives it, which says more where it has one."""
    original = getattr(error, "orig", None)
    code = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    number = next(iter(getattr(original, "args", ())), None)
    return {str(found) for found in (code, number) if isinstance(found, str | int)}


def _message(error: Exception) -> str:
    text = str(getattr(error, "orig", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
