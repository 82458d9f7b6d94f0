"""Answers of a system, over HTTP, from a database, or from files that were kept."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from privtab.base import FileError, UsageError, needing, read_content, strict_loads
from privtab.client import Sender, SendError, without_password

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, MappingResult


FROM_ROOT = "^"
"""The sign before a path that is below the server, and not below the address of the source."""
LARGEST = 1 << 28
"""Bytes of one answer."""
MOST_QUESTIONS = 1_000_000
"""Questions of one import."""
ROWS = 10_000_000
"""Rows of one query."""
_PARAMETER = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")
_TIMEOUT = (5.0, 60.0)
_ACCEPT = "application/json, */*;q=0.5"


class Answers:
    """A system that is asked, by addresses or by queries. `where`: how it is shown."""

    def __init__(self, where: str) -> None:
        self.where = where

    def get(self, address: str, page: str = "", about: str = "", first: str = "") -> Any:  # noqa: ARG002
        """The JSON value at an address below the source's own; None where there is nothing (404). Raises FileError.

        `page`: what a further page is asked for by, as `cursor=NEXT`; `first`: what a server is asked for the first page by.
        `about`: the part of the query that says what is asked about.
        """
        raise UsageError(f"the import document requests `{address}`: give the URL of a server, not {self.where}")

    def query(self, sql: str, values: Mapping[str, object]) -> tuple[list[str], Iterator[dict[str, Any]]]:  # noqa: ARG002
        """The columns of a query, and its rows. `values`: for its `:name` parameters. Raises FileError."""
        raise UsageError(f"the import document has SQL queries: give the URL of a database, not {self.where}")

    def tables(self) -> list[dict[str, Any]]:
        """The tables and views of a database, each as its name and the names of its columns. Raises FileError."""
        raise UsageError(f"the import document looks for tables: give the URL of a database, not {self.where}")

    def unread(self) -> list[str]:
        """The kept answers that nobody has asked for."""
        return []


class HttpAnswers(Answers):
    """Answers of a server."""

    def __init__(self, sender: Sender, url: str) -> None:
        super().__init__(without_password(url))
        self._sender = sender
        self._url = url.rstrip("/")
        self._questions = 0

    def get(self, address: str, page: str = "", about: str = "", first: str = "") -> Any:  # noqa: ARG002  (a part of the address)
        """As Answers.get."""
        self._questions += 1
        if self._questions > MOST_QUESTIONS:
            raise FileError(f"the import needs more than {MOST_QUESTIONS:,} requests")
        page = page or first
        base = self._url
        if address.startswith(FROM_ROOT):
            base, address = urlsplit(base)._replace(path="", query="").geturl(), address.removeprefix(FROM_ROOT)
        url = base + address + (("&" if "?" in address else "?") + page if page else "")
        try:
            answer = self._sender.get(url)
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise FileError(f"{without_password(url)} answered {answer.status} {answer.reason}".rstrip())
            return answer.json()
        except SendError as error:
            raise FileError(str(error)) from error


class KeptAnswers(Answers):
    """Answers in files: `a/b.json` for `/a/b`, `a/b.cursor=X.json` for a further page; one file answers everything.

    A query counts only where it says what is asked about: then there is `a/b.catalog=C.json` for each, or `a/b.json` for one alone.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path
        self._questions: set[str] = set()
        self._about: dict[Path, str] = {}
        self._read: set[Path] = set()

    def unread(self) -> list[str]:
        """As Answers.unread; names that begin with `.` or `_` are no names of answers."""
        found = (path for path in self._path.rglob("*") if not path.is_dir() and path not in self._read)
        names = (path.relative_to(self._path) for path in found)
        return sorted(name.as_posix() for name in names if not any(part[0] in "._" for part in name.parts))

    def get(self, address: str, page: str = "", about: str = "", first: str = "") -> Any:  # noqa: ARG002  (of servers)
        """As Answers.get."""
        path, suffix, address = self._path, f".{page}.json" if page else ".json", address.removeprefix(FROM_ROOT)
        if path.is_dir():
            parts = [unquote(part) for part in urlsplit(address).path.split("/") if part]
            if any(part in {".", ".."} or "/" in part or "\\" in part for part in parts):
                raise FileError(f"`{address}` cannot be a file below {path}")
            plain = path.joinpath(*parts[:-1], parts[-1] if parts else "index")
            about = about.replace("/", "%2F")
            path = plain.with_name(f"{plain.name}.{about}{suffix}")
            if not about or not path.exists():
                path = plain.with_name(f"{plain.name}{suffix}")
                if self._about.setdefault(path, about) != about:
                    raise UsageError(
                        f"{path} is one answer, and the import document asks for several: give a file for each, as in "
                        f"`{plain.name}.{about}{suffix}`"
                    )
        else:
            if page:
                raise FileError(f"{path} is one page of several: the next is asked for by `{page}`")
            self._questions.add(address)
            if len(self._questions) > 1:
                raise UsageError(
                    f"{path} is one answer, and the import document asks for several: give a folder with a file for each, "
                    f"as in `{address.partition('?')[0].strip('/')}.json`"
                )
        try:
            content = read_content(path, LARGEST)
            self._read.add(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"{path}: {error.strerror}, the answer to `{address}`") from error
        try:
            return strict_loads(content)
        except ValueError as error:
            raise FileError(f"{path} is not JSON: {error}") from error


class SqlAnswers(Answers):
    """Rows of a database."""

    def __init__(self, connection: Connection, url: str) -> None:
        super().__init__(url)
        self._connection = connection

    def query(self, sql: str, values: Mapping[str, object]) -> tuple[list[str], Iterator[dict[str, Any]]]:
        """As Answers.query."""
        from sqlalchemy import text

        parameters = {name: values.get(name) for name in _PARAMETER.findall(sql)}
        with self._failing():
            result = self._connection.execute(text(sql), parameters)
            return [*result.keys()], self._rows(result.mappings())

    def _rows(self, found: MappingResult) -> Iterator[dict[str, Any]]:
        with self._failing():
            for number, row in enumerate(found):
                if number >= ROWS:
                    raise FileError(f"a query of {self.where} has more than {ROWS:,} rows")
                yield dict(row)

    def tables(self) -> list[dict[str, Any]]:
        """As Answers.tables."""
        from sqlalchemy import inspect

        with self._failing():
            found = inspect(self._connection)
            names = sorted({*found.get_table_names(), *found.get_view_names()})
            return [
                {"table": name, "columns": [column["name"] for column in found.get_columns(name)]} for name in names
            ]

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except SQLAlchemyError as error:
            raise FileError(f"{self.where}: {reason(error)}") from error


@contextlib.contextmanager
def opened(where: str, *, token: str | None = None, headers: Mapping[str, str] | None = None) -> Iterator[Answers]:
    """The system at an address (`https://…`), in a database (`postgresql://…`), or in kept answers (a file or a folder).

    Raises UsageError for what is none of these, FileError where a database is not reached.
    """
    scheme, colon, _ = where.partition("://")
    if colon and scheme in {"http", "https"}:
        with Sender(
            timeout=_TIMEOUT, seconds=300, largest=LARGEST, token=token, headers=headers, accept=_ACCEPT
        ) as sender:
            yield HttpAnswers(sender, where)
    elif colon:
        with needing("importing from a database", "import"):
            engine, named = database(where)
        # One snapshot for all queries if the database supports it; nothing is written.
        with transaction(engine, named, FileError) as connection:
            yield SqlAnswers(connection, named)
    elif Path(where).exists():
        yield KeptAnswers(Path(where))
    else:
        raise UsageError(
            f"no such file or folder: {where}; a server is named by https://…, a database by postgresql://…"
        )


def database(where: str) -> tuple[Engine, str]:
    """The database at an address, and the address without its password. Needs SQLAlchemy. Raises UsageError."""
    import sqlalchemy
    from sqlalchemy.exc import SQLAlchemyError

    try:
        url = sqlalchemy.make_url(where)
        named = url.render_as_string(hide_password=True)
        with needing(named):
            return sqlalchemy.create_engine(url), named
    except SQLAlchemyError as error:
        raise UsageError(
            f"`{where.partition('://')[0]}://…` cannot be opened by SQLAlchemy: {reason(error)}"
        ) from error


@contextlib.contextmanager
def transaction(engine: Engine, named: str, error: type[Exception]) -> Iterator[Connection]:
    """A connection in one transaction, which is rolled back unless it was committed; raises `error` if there is none."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        try:
            connection = engine.connect()
        except SQLAlchemyError as refused:
            raise error(f"{named}: {reason(refused)}") from refused
        with connection:
            yield connection
            connection.rollback()
    finally:
        engine.dispose()


def reason(error: Exception) -> str:
    """The first line of what the driver says, without the statement that SQLAlchemy adds."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
