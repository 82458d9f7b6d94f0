"""Finds the driver that a command line names: `authzen`, a YAML document, or a class of Python.

The drivers of documents: for databases, and for HTTP APIs.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jmespath

from privtab.base import Entity, Request, UsageError, needing, strict_loads
from privtab.client import HttpTransport, Sender, SendError
from privtab.ir import Program
from privtab_connect.errors import TemplateError
from privtab_connect.importing.template import Template
from privtab_testing.conform import SystemAnswer
from privtab_testing.conform.authzen import AuthZenDriver
from privtab_testing.conform.document import AnswerPatterns, Call, Calls, DriverDocument, load
from privtab_testing.conform.documented import DocumentedDriver, MakingStep, SystemNames, kept_of
from privtab_testing.conform.driver import Driver, DriverError, StateFile, load_class

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.engine import URL


USUAL = AnswerPatterns(allowed=("2xx",), refused=("401", "403"), hidden=("404",))
"""The meaning of statuses unless the document says otherwise."""
MAX_BODY = 1 << 26
"""The most bytes of one answer."""


class HttpDriver(DocumentedDriver):
    """Makes users, entities and grants by requests, and asks by requests of each user."""

    def __init__(
        self,
        document: DriverDocument,
        program: Program,
        url: str,
        *,
        token: str | None,
        timeout: float,
        file: StateFile | None = None,
    ) -> None:
        super().__init__(document, program, SystemNames(program, document, lambda name: name), file)
        self._url = url.rstrip("/")
        # A document that says where the secret goes has it there, and not as a bearer token.
        places = [text for _, text in document.admin_headers if "{token" in text.text]
        self._secret: dict[str, object] = {}
        if places and token is None:
            raise UsageError(f"{document.path} needs a secret of the administrator: name its file with `--token-file`")
        if places and token is not None:
            self._secret = {"token": token, "basic": {token: b64encode(token.encode()).decode()}}
            token = None
        self._sender, self._admin = (
            Sender(
                timeout=(timeout, timeout),
                seconds=timeout,
                largest=MAX_BODY,
                token=secret,
                accept="application/json",
            )
            for secret in (None, token)
        )

    def ask(self, request: Request) -> SystemAnswer:
        """As Driver.ask."""
        operation = self.operation(request)
        if operation is None:
            return SystemAnswer.UNSUPPORTED
        values = dict(self.values(request))
        answer, status, body = SystemAnswer.BROKEN, 0, b""
        kept: dict[str, str] = {}
        for call in operation.calls:
            status, body = self._sent(self._sender, call, values | kept, self._document.headers)
            answer = read_answer(operation.signs, status, body)
            if answer is not SystemAnswer.ALLOWED:
                break
            kept |= kept_of(call, body)
        if answer is SystemAnswer.ALLOWED and operation.shows is not None and self.is_named(request):
            answer = _shown(operation.shows, request, body)
        if answer is SystemAnswer.BROKEN:
            return self.broken(request, f"{status} {body[:200].decode(errors='replace')}".strip())
        if answer is SystemAnswer.ALLOWED:
            self.undo(request, operation, kept)
        return answer

    def reproduce(self, request: Request) -> str:
        """As Driver.reproduce."""
        operation = self.operation(request)
        if operation is None:
            return ""
        values = dict(self.values(request))
        lines = []
        for call in operation.calls:
            parts = ["curl", "-s", "-X", call.method.upper(), self._url + call.text.address(values)]
            for name, value in (*self._document.headers, *call.headers):
                parts += ["-H", f"{name}: {value.plain(values)}"]
            if call.body is not None:
                parts += ["-H", "Content-Type: application/json", "-d", _json(call.body, values)]
            lines.append(shlex.join(parts))
        return " && ".join(lines)

    # --- private ---

    def values(self, request: Request) -> Mapping[str, object]:
        """As DocumentedDriver.values, with what `{user:basic}` needs."""
        values: dict[str, object] = dict(self._names.request(request))
        return values | {"basic": {request.user: b64encode(f"{request.user}:{self._names.password}".encode()).decode()}}

    def call(self, call: Call, step: MakingStep, *, absent_is_done: bool = False) -> bytes | str | None:
        """As DocumentedDriver.call; a missing entity counts as removed."""
        status, body = self._sent(self._admin, call, {**self._secret, **step.values}, self._document.admin_headers)
        if 200 <= status < 300:
            return body
        if str(status) in call.allowed or (absent_is_done and status == 404):
            return None
        return f"{call.method.upper()} was answered with {status}: {body[:200].decode(errors='replace')}"

    def _sent(
        self, sender: Sender, call: Call, values: Mapping[str, object], headers: tuple[tuple[str, Template], ...]
    ) -> tuple[int, bytes]:
        """The status and the body of an answer. Raises DriverError if there is none."""
        try:
            path = call.text.address(values)
            given = {name: value.plain(values) for name, value in (*headers, *call.headers)}
            body = None if call.body is None else _json(call.body, values).encode()
        except TemplateError as error:
            raise DriverError(f"{self._document.path}: {error}") from error
        try:
            answer = sender.send(call.method.upper(), self._url + path, body, headers=given)
        except SendError as error:
            raise DriverError(f"{self._url} gave no answer: {error.why}") from error
        except UsageError as error:
            raise DriverError(f"{self._document.path}: {error}") from error
        return answer.status, answer.body


def _shown(names_in: str, request: Request, body: bytes) -> SystemAnswer:
    """Return the answer of a listing, which shows the named item or hides it."""
    try:
        names = jmespath.search(names_in, strict_loads(body))
    except (ValueError, jmespath.exceptions.JMESPathError):
        return SystemAnswer.BROKEN
    if not isinstance(names, list):
        return SystemAnswer.BROKEN
    return SystemAnswer.ALLOWED if request.resource.decoded_names[-1] in names else SystemAnswer.HIDDEN


def read_answer(signs: AnswerPatterns, status: int, body: bytes) -> SystemAnswer:
    """The meaning of a status and a body; a mark is a status, a class of statuses as in `2xx`, or a part of the body."""

    def fits(marks: tuple[str, ...]) -> bool:
        text = body.decode(errors="replace")
        return any(
            mark in (str(status), f"{status // 100}xx") or (not _is_status(mark) and mark in text) for mark in marks
        )

    for answer, marks, usual in (
        (SystemAnswer.REFUSED, signs.refused, USUAL.refused),
        (SystemAnswer.HIDDEN, signs.hidden, USUAL.hidden),
        (SystemAnswer.ALLOWED, signs.allowed, ()),
        (SystemAnswer.ALLOWED, (), USUAL.allowed),
    ):
        if fits(marks or usual):
            return answer
    return SystemAnswer.BROKEN


def _is_status(mark: str) -> bool:
    return len(mark) == 3 and mark[0].isdigit() and (mark[1:].isdigit() or mark[1:] == "xx")


def _json(template: Template, values: Mapping[str, Any]) -> str:
    """A body with the values as parts of JSON texts."""
    return template.plain(
        {name: json.dumps(value)[1:-1] if isinstance(value, str) else value for name, value in values.items()}
    )


AUTHZEN = "authzen"


def open_driver(
    name: str,
    program: Program,
    url: str | None,
    options: Mapping[str, str],
    *,
    token: str | None = None,
    timeout: float = 60.0,
) -> Driver:
    """The driver `name` for the system at `url`. Raises UsageError, and PolicyInvalid for findings in a document."""
    if name == AUTHZEN:
        if url is None:
            raise UsageError("the driver `authzen` needs `--url`, the address of the server")
        if strange := set(options) - {"state", "names"}:
            raise UsageError(
                f"the driver `authzen` takes only `--set state=FILE` and `names=prefixed`, not `{min(strange)}`"
            )
        if (names := options.get("names", "bare")) not in ("bare", "prefixed"):
            raise UsageError(f"`--set names={names}`: names are `bare`, as in ann, or `prefixed`, as in user:ann")
        transport, timeouts = HttpTransport(url, token=token), (min(5.0, timeout), timeout)
        file, prefixed = _state_file(program, options), names == "prefixed"
        return AuthZenDriver(transport, url=url.rstrip("/"), state=file, timeout=timeouts, prefixed=prefixed)
    path = Path(name)
    if path.suffix in {".yaml", ".yml"}:
        document = load(path, program)
        if url is None:
            raise UsageError(f"the driver `{name}` needs `--url`, the address of the system")
        if set(options) - ({"state"} if document.state is not None else set()):
            raise UsageError(
                "`--set` is for the driver `authzen`, for classes, and as `--set state=FILE` for documents with `state`"
            )
        file = _state_file(program, options)
        if document.kind == "http":
            return HttpDriver(document, program, url, token=token, timeout=timeout, file=file)
        return SqlDriver(document, program, url, file)
    if ":" in name:
        return load_class(name, url, options)
    raise UsageError(f"no driver `{name}`: name `authzen`, a YAML file, or a class as `module:Class`")


def _state_file(program: Program, options: Mapping[str, str]) -> StateFile | None:
    return StateFile(Path(options["state"]), program) if "state" in options else None


MAX_CONNECTIONS = 16
"""The most connections that one thread keeps open, each to another database."""


class SqlDriver(DocumentedDriver):
    """Makes roles, objects and grants as an administrator, and asks as the user of each request."""

    def __init__(self, document: DriverDocument, program: Program, url: str, file: StateFile | None = None) -> None:
        with needing("asking a database", "import"):
            import sqlalchemy
        try:
            self._url: URL = sqlalchemy.make_url(url)
            with needing(self._url.render_as_string(hide_password=True)):
                sqlalchemy.create_engine(self._url)
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise UsageError(f"`{url.partition('://')[0]}://…` is no address of a database") from error
        super().__init__(document, program, SystemNames(program, document, self._quoted), file)
        self._threads = threading.local()
        self._open: list[Connection] = []
        self._lock = threading.Lock()

    def _quoted(self, name: str) -> str:
        quote = self._document.quote
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    def ask(self, request: Request) -> SystemAnswer:
        """As Driver.ask."""
        operation = self.operation(request)
        if operation is None:
            return SystemAnswer.UNSUPPORTED
        statements = self._statements(operation.calls, request)
        if operation.login:
            answer = self._asked_as(request, statements, operation.signs)
            if answer is SystemAnswer.ALLOWED:
                self.undo(request, operation, {})
            return answer
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
        except TemplateError as error:
            raise DriverError(f"{self._document.path}: {error}") from error

    def _execute(self, connection: Connection, statements: Iterable[str]) -> None:
        for statement in statements:
            connection.exec_driver_sql(statement)

    def _read_answer(self, request: Request, execute: Callable[[], None], signs: AnswerPatterns) -> SystemAnswer:
        """The answer to executed statements. Raises DriverError if the connection broke."""
        from sqlalchemy.exc import DBAPIError

        try:
            execute()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise DriverError(f"the database closed the connection: {_message(error)}") from error
            codes, message = _codes(error), str(error.orig)
            for answer, marks in (
                (SystemAnswer.REFUSED, signs.refused),
                (SystemAnswer.HIDDEN, signs.hidden),
                (SystemAnswer.ALLOWED, signs.allowed),
            ):
                if any(mark in codes or mark == message or (" " in mark and mark in message) for mark in marks):
                    return answer
            return self.broken(request, " ".join((*sorted(codes - {message, _message(error)}), _message(error))))
        return SystemAnswer.ALLOWED

    def _asked_as(self, request: Request, statements: list[str], signs: AnswerPatterns) -> SystemAnswer:
        """Ask on a connection that the user opens."""
        import sqlalchemy

        url = self._url.set(
            username=request.user,
            password=self._names.password if self._document.state is None else None,  # users that it made have one
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

    def call(self, call: Call, step: MakingStep, *, absent_is_done: bool = False) -> bytes | str | None:
        """As DocumentedDriver.call."""
        from sqlalchemy.exc import DBAPIError

        database = self._database(step.at, outside=step.outside)
        try:
            self._connection(database, for_good=True).exec_driver_sql(call.text.plain(step.values))
        except (DBAPIError, TemplateError) as error:
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
        return entity.decoded_names[self._program.depth(type_) - 1]

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
