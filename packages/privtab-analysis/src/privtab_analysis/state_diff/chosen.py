"""Find rows of a state by the text that `explain` and `diff --state` print for them: the sentence, or the place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import Any, TypeVar

from privtab.base import UsageError, nearest
from privtab.state import TABLE_COLUMNS, Places, RawRow, RawState, RowLocation, State
from privtab_analysis.row_sentences import row_sentence

T = TypeVar("T")
_LINE = re.compile(r"(?P<path>.+):(?P<line>[0-9]{1,9})")
_ROW = re.compile(r"(?P<path>.+): (?P<table>[a-z_]+) row (?P<row>[0-9]{1,9})")
COMPARED = 200
"""The most rows, of the rows with most words in common, that are compared by letters to suggest one."""


def find_rows(texts: Iterable[str], state: State, places: Places, shown: str) -> list[tuple[str, int]]:
    """(table, number) of the rows that texts name; raises UsageError for a text that does not name one row of the state."""
    return _find(texts, lambda: _sentences(state), lambda table: places.rows.get(table, ()), shown)


def without_rows(state: State, rows: Iterable[tuple[str, int]]) -> State:
    """The state without some rows."""
    removed: dict[str, set[int]] = {}
    for table, number in rows:
        removed.setdefault(table, set()).add(number)
    remaining: Any = {
        table: state.table(table).some([row for row in range(len(getattr(state, table))) if row not in numbers])
        for table, numbers in removed.items()
    }
    windows = {
        table: _remaining(table_windows, removed.get(table, set())) for table, table_windows in state.windows.items()
    }
    return replace(state, windows=windows, **remaining)


def _remaining(rows: Sequence[T], numbers: Collection[int]) -> tuple[T, ...]:
    return tuple(row for number, row in enumerate(rows) if number not in numbers)


def find_raw_rows(texts: Iterable[str], rows: RawState, shown: str) -> list[RawRow]:
    """The rows as read that texts name; raises UsageError as `find_rows`."""

    def sentences() -> Iterator[tuple[str, tuple[str, int]]]:
        for table, table_rows in rows.rows.items():
            yield from ((row_sentence(table, row.cells), (table, number)) for number, row in enumerate(table_rows))

    found = _find(texts, sentences, lambda table: rows.rows.get(table, ()), shown)
    return [rows.rows[table][number] for table, number in found]


def _sentences(state: State) -> Iterator[tuple[str, tuple[str, int]]]:
    for table in TABLE_COLUMNS:
        for number, cells in enumerate(state.cells(table)):
            yield row_sentence(table, cells), (table, number)


def _find(
    texts: Iterable[str],
    sentences: Callable[[], Iterator[tuple[str, tuple[str, int]]]],
    rows: Callable[[str], Sequence[RawRow]],
    shown: str,
) -> list[tuple[str, int]]:
    text_of_sentence = {_plain(text): text for text in texts}
    found: dict[str, list[tuple[str, int]]] = {text: [] for text in text_of_sentence.values()}
    for sentence, row in sentences():
        if sentence in text_of_sentence:
            found[text_of_sentence[sentence]].append(row)
    for text, matches in found.items():
        matches.extend(() if matches else _at_place(text, rows))
        if not matches:
            raise UsageError(f"no row of {shown} is `{text}`{_advice(text, (sentence for sentence, _ in sentences()))}")
        if len(matches) > 1:
            tables = ", ".join(f"{table} row {number + 1}" for table, number in matches)
            raise UsageError(f"`{text}` names {len(matches)} rows of {shown}: {tables}")
    return [row for matches in found.values() for row in matches]


def _plain(text: str) -> str:
    """A sentence without the sign that `diff --state` prints before it, and without spaces around it."""
    return text.strip().removeprefix("+ ").removeprefix("- ").strip()


def _at_place(text: str, rows: Callable[[str], Sequence[RawRow]]) -> list[tuple[str, int]]:
    """The rows at `FILE:LINE` or `FILE: TABLE row N`."""
    by_row, by_line = _ROW.fullmatch(text.strip()), _LINE.fullmatch(text.strip())

    def is_there(place: RowLocation) -> bool:
        if by_row is not None:
            return place.path == by_row["path"] and place.row == int(by_row["row"])
        return by_line is not None and place.path == by_line["path"] and place.line == int(by_line["line"])

    tables = [by_row["table"]] if by_row is not None else tuple(TABLE_COLUMNS) if by_line is not None else ()
    return [(table, number) for table in tables for number, row in enumerate(rows(table)) if is_there(row.place)]


def _advice(text: str, sentences: Iterable[str]) -> str:
    words = set(text.split())
    closest = nlargest(COMPARED, sentences, key=lambda sentence: len(words.intersection(sentence.split())))
    similar = nearest(text, closest, cutoff=0.5)
    return f"; did you mean `{similar}`?" if similar else "; a row is named as `explain` prints it, or as FILE:LINE"
