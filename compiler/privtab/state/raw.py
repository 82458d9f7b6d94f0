"""Rows as read, before they are checked against a policy: every cell is text, every row has its position."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from privtab.base import files
from privtab.base.errors import FileError
from privtab.base.files import GZIP
from privtab.base.hints import did_you_mean
from privtab.base.lazy import pattern
from privtab.base.moments import WINDOW_COLUMNS
from privtab.base.records import dataclass
from privtab.state.findings import RowLocation, StateFinding
from privtab.state.nodes import ALL_TABLES, ENTITY_COLUMNS

LARGEST = 1 << 30
"""Limit on the bytes of a file that is read as a whole, and on those that it unpacks to."""
LARGE = 20_000
"""Rows of a table, or of a state, from which on columns are used: loading numpy and pyarrow takes as long as fewer rows."""
MOST_ROWS = 5_000_000
"""Limit on the rows of one table that are read one by one: some 400 bytes of memory each."""
MOST_COLUMN_ROWS = 20_000_000
"""Limit on the rows of one table that are read as columns: some 150 bytes of memory each, until they are packed."""
MOST_VALUES = 30_000_000
"""Limit on the objects, lists and members of a JSON text."""
_ADVICE = "`privtab state build` reads larger ones, in Spark"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table: those that every row has, and those that are optional."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    window: tuple[str, ...] = ()
    """The optional columns with the time in which a row holds."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that says who holds what, the required ones first."""
        return self.required + self.optional

    @property
    def all(self) -> tuple[str, ...]:
        """Every column."""
        return self.names + self.window


TABLE_COLUMNS: Mapping[str, Columns] = {
    "members": Columns(("user", "of")),
    "memberships": Columns(("user", "group"), window=WINDOW_COLUMNS),
    "assignments": Columns(("principal", "role"), ("scope",), WINDOW_COLUMNS),
    "grants": Columns(("grantee", "effect", "privilege", "entity"), window=WINDOW_COLUMNS),
    "owners": Columns(("entity", "owner"), window=WINDOW_COLUMNS),
    "service_admins": Columns(("user",)),
    "attributes": Columns(("attribute", "value"), ("user", "entity")),
    "entities": Columns(("entity", "parent"), ("name",)),
}
"""The columns of each table: `TABLE_COLUMNS["grants"].required`."""
_TRUTH = "the truth value "
PRINCIPALS = ("principal", "grantee", "owner", "user", "group", "role")
"""The columns that hold principals."""
NAMED = frozenset((*PRINCIPALS, *ENTITY_COLUMNS))
"""The columns that hold names of principals and entities."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row whose cells are text. An optional column that is absent, null or empty has no cell.

    >>> RawRow("s.yaml", "memberships", 1, 2, {"user": "ann", "group": "hr"}).place.line
    2
    """

    path: str
    table: str
    number: int
    line: int | None
    cells: Mapping[str, str]

    @property
    def place(self) -> RowLocation:
        """The position of the row."""
        return RowLocation(path=self.path, table=self.table, row=self.number, line=self.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawState:
    """Everything that was read: rows by table, in the order of the input, and findings about the rest.

    >>> RawState().findings
    ()
    """

    rows: Mapping[str, Sequence[RawRow]] = field(default_factory=dict)
    """Only tables that have rows; large ones as `coded.RawTable`."""
    findings: tuple[StateFinding, ...] = ()
    lacks: frozenset[str] = frozenset()
    """As in `State`."""


@dataclass(frozen=True, slots=True)
class NotText:
    """A cell that is not text; `what` describes its value.

    >>> str(NotText("a list"))
    'a list'
    """

    what: str

    def __str__(self) -> str:
        return self.what


class RawReader:
    """Collects rows and findings while the files of one state are read.

    >>> reader = RawReader()
    >>> reader.row("rows", "memberships", 1, None, {"user": "ann", "group": "hr"})
    >>> len(reader.done().rows["memberships"])
    1
    """

    def __init__(self, accept: Collection[str] = ()) -> None:
        """`accept`: the names of tables, of columns as `grants.comment`, and of files that may stay unread."""
        self.accept = accept
        self.rows: dict[str, list[RawRow]] = {}
        self.large: dict[str, Sequence[RawRow]] = {}
        """Tables that were read as columns."""
        self.findings: list[StateFinding] = []
        self._full: set[str] = set()
        self.tables: set[str] = set()
        """The tables found so far, with or without rows."""

    def done(self) -> RawState:
        """What was read."""
        rows = self.large | {table: tuple(rows) for table, rows in self.rows.items()}
        return RawState(rows={t: rows[t] for t in ALL_TABLES if rows.get(t)}, findings=tuple(self.findings))

    def report(
        self,
        code: str,
        message: str,
        place: RowLocation,
        *,
        help: str | None = None,  # noqa: A002 - the name that findings have for it
        row: Mapping[str, object] | None = None,
    ) -> None:
        """Add one error."""
        self.findings.append(StateFinding(place=place, message=message, code=code, help=help, row=row or {}))

    def too_much(self, what: str, place: RowLocation) -> None:
        """Report a file or a table that exceeds a limit."""
        self.report("S007", f"{what}; nothing after this place was read", place, help=_ADVICE)

    def text(self, file: Path, table: str | None) -> str | None:
        """The text of a file with the rows of `table`, or of all tables; None, with a finding, if it cannot be read."""
        place = RowLocation(path=str(file), table=table or "", row=0)
        content = b""
        try:
            if (size := file.stat().st_size) <= LARGEST:
                content = files.read_content(file, LARGEST)
                if file.name.endswith(GZIP):
                    with gzip.open(BytesIO(content)) as stream:
                        content = stream.read(LARGEST + 1)
                size = len(content)
            if size > LARGEST:
                self.too_much(f"the file has {size:,} bytes, and {LARGEST:,} is the most", place)
            elif (text := content.decode("utf-8-sig")).strip() or table is None:
                return text
            else:
                self.empty(place)
        except UnicodeDecodeError as error:
            line = bytes(error.object[: error.start]).count(b"\n") + 1
            self.report("S001", "not UTF-8", replace(place, line=line), help="save the file as UTF-8")
        except FileError as error:
            self.report("S001", str(error), place)
        except (OSError, EOFError, zlib.error) as error:
            self.report("S001", f"cannot be read: {getattr(error, 'strerror', None) or error}", place)
        return None

    def empty(self, place: RowLocation) -> None:
        """Report a table's file that says nothing, as the file of an export that failed does."""
        advice = "a table without rows is `[]`, in CSV the line with the names of its columns"
        self.report("S008", "the file is empty", place, help=advice)

    def is_table(self, name: str, only: str | None, place: RowLocation, suffix: str) -> bool:
        """Whether a table may stand in a file, which has all tables or `only` one; reports one that may not."""
        if name in self.accept and name not in ALL_TABLES:
            return False
        if name not in ALL_TABLES:
            self.unknown_table(name, place)
        elif only is not None and name != only:
            advice = f"put it into a file of its own, `{name}{suffix}`"
            self.report("S004", f"table `{name}` is in the file of `{only}`", place, help=advice)
        else:
            return True
        return False

    def not_tables(self, kind: str, place: RowLocation) -> None:
        """Report a value of another kind in the place of all tables."""
        message = f"a state is a mapping from tables to lists of rows, not {kind}"
        self.report("S004", message, place, help=f"the tables are {', '.join(ALL_TABLES)}")

    def not_rows(self, table: str, kind: str, place: RowLocation) -> None:
        """Report a value of another kind in the place of the rows of a table, or of one of them if the place has a row."""
        message = f"`{table}` is {kind}, not a list of rows"
        of_row = f"a row of `{table}` is {kind}, not a mapping from columns to text"
        self.report("S004", of_row if place.row else message, place)

    def unknown_table(self, name: str, place: RowLocation) -> None:
        """Report a table that is not one of a state."""
        advice = did_you_mean(name, ALL_TABLES) or f"the tables are {', '.join(ALL_TABLES)}"
        if name == "privtab":
            advice = "this is a policy, not a state: give it as the policy, `--policy FILE`"
        self.report("S003", f"unknown table `{name}`", place, help=advice)

    def header(self, table: str, names: Sequence[str], place: RowLocation) -> bool:
        """Check the column names of a table that lists them once for all rows; False if its rows cannot be read."""
        columns = TABLE_COLUMNS[table]
        findings_before = len(self.findings)
        if len(names) == 1 and names[0] not in columns.all:
            for separator, title in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
                if separator in names[0]:
                    advice = "separate columns by commas"
                    self.report("S101", f"the columns of `{table}` are separated by {title}", place, help=advice)
                    return False
        for name in dict.fromkeys(names):
            if f"{table}.{name}" in self.accept:
                continue
            if name not in columns.all:
                self._unknown_column(table, name, place, {})
            elif names.count(name) > 1:
                self.report("S106", f"column `{name}` occurs {names.count(name)} times", place)
        for name in columns.required:
            if name not in names:
                self._missing_column(table, name, place, {})
        return len(self.findings) == findings_before

    def row(self, path: str, table: str, number: int, line: int | None, cells: dict[str, object]) -> None:
        """Add a row if all its cells are text; otherwise report what is wrong with it."""
        columns = TABLE_COLUMNS[table]
        text = {name: value for name in columns.all if isinstance(value := cells.get(name), str) and value}
        if len(text) == len(cells) and all(name in text for name in columns.required):
            self.take(RawRow(path, table, number, line, text))
        else:
            self._convert(RawRow(path, table, number, line, text), cells)

    def _convert(self, row: RawRow, cells: dict[str, object]) -> None:
        """Report everything that is wrong with a row; add it if its cells only had to be converted to text."""
        columns, place = TABLE_COLUMNS[row.table], row.place
        text: dict[str, str] = {}
        usable = True
        for name, value in cells.items():
            if name not in columns.all:
                if f"{row.table}.{name}" in self.accept:
                    continue
                self._unknown_column(row.table, name, place, cells)
            elif type(value) is int:
                text[name] = str(value)
                continue
            elif (row.table, name) == ("attributes", "value") and str(value).startswith(_TRUTH):
                text[name] = str(value).removeprefix(_TRUTH).lower()
                continue
            elif value is None or value == "":
                if name not in columns.required:
                    continue
                kind = "null" if value is None else "empty"
                self.report("S103" if value is None else "S105", f"`{name}` is {kind}", place, row=plain(cells))
            elif isinstance(value, str):
                text[name] = value
                continue
            else:
                kind_of_value = str(value) if isinstance(value, NotText) else f"a {type(value).__name__}"
                self.report(
                    "S104",
                    f"`{name}` is {kind_of_value}, not text",
                    place,
                    help=_advice(kind_of_value),
                    row=plain(cells),
                )
            usable = False
        for name in columns.required:
            if name not in cells:
                self._missing_column(row.table, name, place, cells)
                usable = False
        if usable:
            self.take(RawRow(row.path, row.table, row.number, row.line, {c: text[c] for c in columns.all if c in text}))

    def take(self, row: RawRow) -> None:
        """Add a row whose cells are complete and all text; report the first one beyond the limit."""
        rows = self.rows.setdefault(row.table, [])
        if len(rows) < MOST_ROWS:
            rows.append(row)
        elif row.table not in self._full:
            self._full.add(row.table)
            self.too_much(f"`{row.table}` has more than {MOST_ROWS:,} rows", row.place)

    def _unknown_column(self, table: str, name: str, place: RowLocation, cells: dict[str, object]) -> None:
        known = TABLE_COLUMNS[table].all
        advice = did_you_mean(name, known) or f"the columns of `{table}` are {', '.join(known)}"
        self.report("S101", f"unknown column `{name}` in `{table}`", place, help=advice, row=plain(cells))

    def _missing_column(self, table: str, name: str, place: RowLocation, cells: dict[str, object]) -> None:
        self.report("S102", f"column `{name}` is missing in `{table}`", place, row=plain(cells))


def plain(cells: Mapping[str, object]) -> dict[str, object]:
    """The cells of a bad row as JSON values; anything other than text, numbers, booleans or null becomes text."""
    return {n: v if v is None or isinstance(v, str | int | float) else str(v) for n, v in cells.items()}


def arrow_cells(column: Any, kind: str | None = None) -> list[object]:
    """The cells of an Arrow column; a text that is not UTF-8 becomes a NotText that says so, and so does each text if it is of a `kind`.

    For example:

        arrow_cells(pa.array(["ann", None]))  # ["ann", None]
    """
    if kind is not None:
        return [None if value is None else NotText(kind) for value in column.to_pylist()]
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [None if value is None else _decoded(value) for value in column.cast("binary").to_pylist()]


def _decoded(value: bytes) -> str | NotText:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return NotText("a run of bytes that are not UTF-8")


def _advice(kind: str) -> str | None:
    if kind.endswith("without a time zone"):
        return "store it with a time zone, such as UTC"
    if kind.endswith("without a time"):
        return "store the moment, with a time zone such as UTC"
    return "put it in quotes" if kind.startswith((_TRUTH, "a number")) else None


_PLAIN = pattern(r"[A-Za-z][\w/.:%+-]*[\w]", re.ASCII)


def row_text(table: str, cells: Mapping[str, str | None]) -> str:
    """A row with its columns in order, as YAML reads it.

    >>> row_text("owners", {"owner": "user:a b", "entity": "lake:l"})
    'owners:{entity: lake:l, owner: "user:a b"}'
    """
    order = {name: number for number, name in enumerate(TABLE_COLUMNS[table].all)}
    named = sorted(cells.items(), key=lambda cell: order.get(cell[0], len(order)))
    written = ", ".join(f"{name}: {_cell(text or '')}" for name, text in named)
    return f"{table}:{{{written}}}"


def _cell(text: str) -> str:
    """A cell as YAML reads it: in quotes where it is not plain."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
