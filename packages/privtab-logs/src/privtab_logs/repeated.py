"""Entries that repeat an earlier one but for ids, times and measurements: their rows are known by their text, which is not parsed again.

JSON in which plain texts stand in the places of plain texts, and numbers in the places of numbers, is read alike. So an entry is read with a mark
in each place that varies, as strictly as any; its row shows which cells come from where. An entry whose other text is the same, byte for byte, has
the same row but for these cells. Whatever is not proven so is read as without this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias

from privtab.base import StrictDecoder
from privtab_logs import opa
from privtab_logs.schema import SCHEMA, VARYING, Reading, Row, SharedRow

_Path: TypeAlias = tuple[str, ...]

# The places that vary, with the column that shows them; None: `opa.rows` does not read them.
_TEXTS: dict[_Path, str | None] = {
    ("decision_id",): "decision_id",
    ("timestamp",): "time",
    ("input", "subject", "id"): "user",
    ("input", "resource", "id"): "resource",
    **dict.fromkeys(((name,) for name in ("batch_decision_id", "requested_by", "span_id", "time", "trace_id")), None),
}
_NUMBERS: dict[_Path, str | None] = {("metrics", "timer_server_handler_ns"): "latency_us", ("req_id",): None}
_METRICS = ("metrics",)
_NAMES = ("user", "resource")

_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(rf'(?P<name>{_TEXT})\s*:|(?P<open>[{{\[])|(?P<close>[}}\]])|(?P<value>{_TEXT}|[^\s"{{}}\[\],:]+)')
_PLAIN_TEXT = r'[^"\\\x00-\x1f]*+'
_PLAIN_NUMBER = "(?>0|[1-9][0-9]{0,17})"
_NO_HASH = '(?!(?:[^":]*+:)?[0-9a-f]{64}")'
_MARK, _MARK_NUMBER = "<varies>", 900_000_000_000_000_000

_LONGEST = 1 << 12
"""Characters of the longest entry that is learnt."""
_MOST_FORMS, _MOST_ROWS = 8, 1 << 14
_CREDIT, _COST, _COST_OF_FORM = 1 << 12, 32, 256
"""Entries that may be learnt before any is repeated; learning one, and one of another form, takes as long as reading so many that repeat others."""


class _Piece(NamedTuple):
    """A part of an entry's text: a value without its quotes, or what is between values."""

    text: str
    pattern: str
    """Matches what may stand here in entries of the same form."""
    tells: bool = False
    """True if entries of the same form may have another value here, which makes their rows others."""
    mark: str | None = None
    """The mark of a value that varies."""
    column: str | None = None
    """The column that shows it."""


class _Form:
    """Entries with the same members in the same order."""

    def __init__(self, pattern: str, columns: Sequence[str | None], lines: int) -> None:
        """`columns`: the column of each group; None for text that tells which row it is."""
        self._pattern = re.compile(pattern)
        self._telling = itemgetter(*(at for at, column in enumerate(columns) if column is None))
        # The last group is of no entry, and therefore None.
        places = (columns.index(name) if name in columns else -1 for name in VARYING)
        self._cells: Callable[[Sequence[str | None]], tuple[str | None, ...]] = itemgetter(*places)
        self._lines = lines
        self._rows: dict[Any, Row] = {}

    @property
    def pattern(self) -> str:
        """As given."""
        return self._pattern.pattern

    def learn(self, text: str, row: Row) -> None:
        """Take note that entries which have the same telling text have a row."""
        if len(self._rows) >= _MOST_ROWS:
            self._rows.clear()
        if (found := self._pattern.match(text)) is not None and found.end() == len(text):
            self._rows[self._telling(found.groups())] = row

    def repeated(self, text: str, start: int, path: str, line: int) -> tuple[list[SharedRow], int, int]:
        """See `Repeats.repeated`."""
        found: list[SharedRow] = []
        position = f"{path}:{line}"
        for match in self._pattern.finditer(text, start):
            groups = match.groups()
            row = self._rows.get(self._telling(groups))
            if row is None:
                return found, match.start(), line
            found.append((row, self._cells(groups), position))
            if groups[-2] != "," or self._lines:
                line += self._lines + groups[-2].count("\n")
                position = f"{path}:{line}"
        return found, len(text), line


class Repeats:
    """The entries that later ones may repeat; not for several threads."""

    def __init__(self) -> None:
        self._forms: list[_Form] = []
        """The last one first."""
        self._credit = _CREDIT

    def repeated(self, text: str, start: int, path: str, line: int) -> tuple[list[SharedRow], int, int]:
        """Return the rows of entries that repeat others, from a position in a text on, and the position and the line behind them."""
        for number, form in enumerate(self._forms):
            found, end, after = form.repeated(text, start, path, line)
            if found:
                self._forms.insert(0, self._forms.pop(number))
                self._credit = min(self._credit + len(found), _CREDIT)
                return found, end, after
        return [], start, line

    def learn(self, text: str, fixed: Collection[str] = ()) -> None:
        """Take note of an entry, by its text, which could be read. `fixed`: columns whose cells come from elsewhere than is usual."""
        if self._credit < 0 or len(text) > _LONGEST or '"decision_id":' not in text or _MARK in text:
            return
        self._credit -= _COST
        pieces = [*_pieces(text, fixed)]
        row = _read("".join(piece.text if piece.mark is None else piece.mark for piece in pieces))
        if row is None:
            return
        shared = dict(zip(SCHEMA.names, row, strict=True)) | {"position": None}
        elsewhere = [piece.column for piece in pieces if piece.column and not _take_mark(shared, piece.column)]
        if elsewhere:
            self.learn(text, {*fixed, *elsewhere})
        elif not any(mark in repr(shared) for mark in (_MARK, str(_MARK_NUMBER))):
            if shared["masked"] is not None:  # a name that looks like a hash decides what becomes of a row
                pieces = [
                    one._replace(pattern=_NO_HASH + one.pattern) if one.column in _NAMES else one for one in pieces
                ]
            self._form(pieces, text.count("\n")).learn(text, tuple(shared.values()))

    def _form(self, pieces: Iterable[_Piece], lines: int) -> _Form:
        patterns: list[str] = []
        columns: list[str | None] = []
        for _, run in groupby(pieces, attrgetter("mark")):
            together = [*run]
            pattern = "".join(piece.pattern for piece in together)
            grouped = any(piece.tells or piece.column for piece in together)
            patterns.append(f"({pattern})" if grouped else pattern)
            columns += [together[0].column] if grouped else []
        pattern = "".join(patterns) + r"([\s,]*)|([\s\S])"
        form = next((form for form in self._forms if form.pattern == pattern), None)
        if form is None:
            self._credit -= _COST_OF_FORM
            form = _Form(pattern, columns, lines)
            self._forms = [form, *self._forms[: _MOST_FORMS - 1]]
        return form


def _pieces(text: str, fixed: Collection[str]) -> Iterator[_Piece]:
    """The parts of an entry's text. What varies stands between others."""
    path: list[str] = []
    end = 0
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "name":
                path[-1] = token["name"][1:-1]
            case "open":
                path.append("")
            case "close":
                path.pop()
            case _:
                begin, after = token.span()
                if is_text := token[0].startswith('"'):
                    begin, after = begin + 1, after - 1
                yield _Piece(text[end:begin], re.escape(text[end:begin]))
                yield _value(text[begin:after], tuple(path), fixed, is_text=is_text)
                end = after
    yield _Piece(text[end:], re.escape(text[end:]))


def _value(text: str, path: _Path, fixed: Collection[str], *, is_text: bool) -> _Piece:
    places = _TEXTS if is_text else _NUMBERS
    column = places.get(path)
    plain = "\\" not in text if is_text else re.fullmatch(_PLAIN_NUMBER, text) is not None
    if plain and column not in fixed and (path in places or (path[:-1] == _METRICS and not is_text)):
        pattern, mark = (_PLAIN_TEXT, f"{_MARK}{column}") if is_text else (_PLAIN_NUMBER, str(_MARK_NUMBER))
        return _Piece(text, pattern, mark=mark, column=column)
    if is_text and not plain:
        return _Piece(text, re.escape(text))
    return _Piece(text, '[^"]*+' if is_text else r"[^\s,}\]]++", tells=True)


def _read(text: str) -> Row | None:
    """The row of an entry; None if it has none or several, or must be counted otherwise."""
    reading = Reading()
    with suppress(ValueError, RecursionError):
        value, _ = StrictDecoder().at(text, 0, compact=False)
        found = [*(opa.rows(value, "", reading) or ())]
        if len(found) == 1 and reading == Reading():
            return found[0]
    return None


def _take_mark(cells: dict[str, Any], column: str) -> bool:
    """Take the mark of a column out of the cells of a row; returns whether it was there, and as `batch` puts it back."""
    mark: Any = f"{_MARK}{column}"
    prefix: str | None = None
    if column == "resource" and cells[column] is not None:
        prefix = cells[column].removesuffix(mark)
        mark = f"{prefix}{mark}"
    elif column == "latency_us":
        mark = _MARK_NUMBER // 1000
    shown: bool = cells[column] == mark
    cells[column] = prefix if shown else cells[column]
    return shown
