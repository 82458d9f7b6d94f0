"""What a system answers, over HTTP, from a database, or from files that were kept, and the fields that no document names."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union
from urllib.parse import unquote, urlsplit

from privtab import files, strict_json
from privtab._resources import how_to_install
from privtab.client._address import shown
from privtab.client._sender import Sender, SendError
from privtab.errors import FileError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


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

    def get(self, address: str, page: str = "", about: str = "") -> Any:  # noqa: ARG002
        """The JSON value at an address below the source's own; None where there is nothing (404). Raises FileError.

        `page`: what a further page is asked for by, as `cursor=NEXT`. `about`: the part of the query that says what is asked about.
        """
        raise UsageError(f"the import document requests `{address}`: give the URL of a server, not {self.where}")

    def query(self, sql: str, values: Mapping[str, object]) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """The rows of a query. `values`: for its `:name` parameters. Raises FileError."""
        raise UsageError(f"the import document has SQL queries: give the URL of a database, not {self.where}")


class HttpAnswers(Answers):
    """Answers of a server."""

    def __init__(self, sender: Sender, url: str) -> None:
        super().__init__(shown(url))
        self._sender = sender
        self._url = url.rstrip("/")
        self._questions = 0

    def get(self, address: str, page: str = "", about: str = "") -> Any:  # noqa: ARG002  (a part of the address)
        """As Answers.get."""
        self._questions += 1
        if self._questions > MOST_QUESTIONS:
            raise FileError(f"the import needs more than {MOST_QUESTIONS:,} requests")
        url = self._url + address + (("&" if "?" in address else "?") + page if page else "")
        try:
            answer = self._sender.get(url)
            if answer.status == 404:
                return None
            if answer.status != 200:
                raise FileError(f"{shown(url)} answered {answer.status} {answer.reason}".rstrip())
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

    def get(self, address: str, page: str = "", about: str = "") -> Any:
        """As Answers.get."""
        path, suffix = self._path, f".{page}.json" if page else ".json"
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
            content = files.content(path, LARGEST)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"{path}: {error.strerror}, the answer to `{address}`") from error
        try:
            return strict_json.loads(content)
        except ValueError as error:
            raise FileError(f"{path} is not JSON: {error}") from error


class SqlAnswers(Answers):
    """Rows of a database."""

    def __init__(self, connection: Connection, url: str) -> None:
        super().__init__(url)
        self._connection = connection

    def query(self, sql: str, values: Mapping[str, object]) -> Iterator[dict[str, Any]]:
        """As Answers.query."""
        from sqlalchemy import text
        from sqlalchemy.exc import SQLAlchemyError

        try:
            statement = text(sql)
            parameters = {name: values.get(name) for name in _PARAMETER.findall(sql)}
            for number, row in enumerate(self._connection.execute(statement, parameters).mappings()):
                if number >= ROWS:
                    raise FileError(f"a query of {self.where} has more than {ROWS:,} rows")
                yield dict(row)
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
        if find_spec("sqlalchemy") is None:
            raise UsageError(f"importing from a database needs SQLAlchemy: {how_to_install('import')}")
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
        return sqlalchemy.create_engine(url), url.render_as_string(hide_password=True)
    except (SQLAlchemyError, ImportError) as error:
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


class Word(Enum):
    """What a field without fields of its own is."""

    KNOWN = "known"
    """It is read, or means nothing for rights."""
    SWITCH = "switch"
    """If false, it turns its object off with all that is in it."""


Field: TypeAlias = Union[Word, "Loss", "Fields"]
"""A word; what is lost with the field; or the fields of the objects in it."""
OTHERS = "*"
"""The name for all fields that have no name of their own."""
_NAMES = ("name", "displayName", "userName", "id")
_LONGEST = 60
_Place: TypeAlias = tuple[str, Mapping[str, object], Union["_Place", None]]
"""The name of a field, the object that has it, and the place of that object: what a message is made of if there is one."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is lost with a field that has a value. `denies`: the state could allow more without it."""

    why: str
    denies: bool


UNKNOWN = Loss("the import document does not know this field, which may deny or narrow", denies=True)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """What the objects at one place of an answer hold."""

    named: Mapping[str, Field]
    required: Mapping[str, type]
    """Names of the lists and objects that must be there."""
    bare: bool = False
    """Whether an answer may be the one list in it alone."""
    listed: bool = False
    """Whether the answer itself must be a list of such objects."""

    @cached_property
    def known(self) -> frozenset[str]:
        """The names of fields that need no look."""
        return frozenset(name for name, kind in self.named.items() if kind is Word.KNOWN)

    @cached_property
    def harmless_if_empty(self) -> frozenset[str]:
        """The names of fields that need a look only if they have a value."""
        named = self.named.items()
        return frozenset(
            n for n, kind in named if isinstance(kind, Loss) or (isinstance(kind, Fields) and not kind.required)
        )


@dataclass(slots=True)
class FoundField:
    """A field that a state cannot express, or that nobody knows: how often it has a value, and the first one."""

    loss: Loss
    example: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class FieldSearch:
    """Looks through answers."""

    found: dict[str, FoundField] = field(default_factory=dict)
    """By name: those of the objects around a field and its own, with dots between."""

    def answer(self, fields: Fields, answer: object, where: str) -> object:
        """Look through an answer, and give it back; a bare list as the one list in it.

        Raises FileError where a list or an object that was asked for is not there, or anything is of another shape. `where`: what was asked.
        """
        if isinstance(answer, list) and fields.bare:
            answer = dict.fromkeys(fields.required, answer)
        if isinstance(answer, list) != fields.listed:
            expected = "a list" if fields.listed else "an object"
            raise FileError(f"the answer to {where} is {_short(answer)}, not {expected}")
        self._objects(fields, answer, None, where)
        return answer

    def _objects(self, fields: Fields, value: object, place: _Place | None, where: str) -> None:
        named, known, if_empty, required = fields.named, fields.known, fields.harmless_if_empty, fields.required
        for item in value if isinstance(value, list) else (value,):
            if not isinstance(item, dict):
                raise FileError(f"`{_path(place)}` in the answer to {where} holds {_short(item)}, not an object")
            names = [name for name in item if name not in known and (item[name] or name not in if_empty)]
            if not names and not required:
                continue
            deeper: list[tuple[Fields | Loss, str, object]] = []
            for name in names:
                content = item[name]
                kind = named.get(name) or named.get(OTHERS)
                if kind is Word.KNOWN:
                    continue
                if kind is Word.SWITCH:
                    if content is False:
                        break
                    if content is not None and content is not True:
                        path = _path((name, item, place))
                        raise FileError(f"`{path}` in the answer to {where} is {_short(content)}, not true or false")
                elif isinstance(kind, Fields):
                    if content.__class__ is not dict or not content.keys() <= kind.known or kind.required:
                        deeper.append((kind, name, content))
                elif kind is None:
                    if content is not None and content not in ("", [], {}):  # `false` may mean something
                        deeper.append((UNKNOWN, name, content))
                elif content:
                    deeper.append((kind, name, content))
            else:
                for name, kind_ in required.items():
                    if not isinstance(item.get(name), kind_):
                        what = "list" if kind_ is list else "object"
                        raise FileError(f"the answer to {where} has no {what} `{_path((name, item, place))}`")
                for kind, name, content in deeper:
                    if isinstance(kind, Fields):
                        self._objects(kind, content, (name, item, place), where)
                    else:
                        self._note((name, item, place), kind, content)

    def _note(self, place: _Place, loss: Loss, content: object) -> None:
        path = _path(place)
        found = self.found.get(path)
        if found is None:
            around = (item for _, item, _ in _outwards(place))
            names = (item[name] for item in around for name in _NAMES if isinstance(item.get(name), str | int))
            of = "".join(f" of `{name}`" for name in islice(names, 1))
            found = self.found[path] = FoundField(loss=loss, example=f"`{path}`{of} is {_short(content)}")
        found.count += 1


def _outwards(place: _Place | None) -> Iterator[_Place]:
    while place is not None:
        yield place
        place = place[2]


def _path(place: _Place | None) -> str:
    return ".".join([name for name, _, _ in _outwards(place)][::-1])


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
