"""Read tables from JSON text, or from values of the same structure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from privtab.state.findings import RowLocation
from privtab.state.nodes import ALL_TABLES
from privtab.state.raw import MOST_VALUES, NotText, RawReader


class _Pairs(dict[str, object]):
    """A JSON object; `repeated` holds its duplicate names."""

    repeated: tuple[str, ...] = ()


def read(file: Path, reader: RawReader, table: str | None) -> None:
    """Read a file with all tables of a state, or with the one that `table` names."""
    text = reader.text(file, table)
    if text is not None and text.strip():
        read_json(text, str(file), reader, table)


def read_json(text: str, path: str, reader: RawReader, table: str | None = None) -> None:
    """Read the tables of a state, or only the one that `table` names. Rows have numbers, not lines."""
    if len(text) > MOST_VALUES and sum(map(text.count, ",{[")) > MOST_VALUES:
        reader.too_much(
            f"the text holds more than {MOST_VALUES:,} values", RowLocation(path=path, table=table or "", row=0)
        )
        return
    try:
        value = _loads(text)
    except json.JSONDecodeError as error:
        if table is not None and error.msg == "Extra data" and text.lstrip().startswith("{"):
            _lines(text, path, table, reader)
            return
        place = RowLocation(path=path, table=table or "", row=0, line=error.lineno)
        reader.report("S002", f"not JSON: {error.msg} at column {error.colno}", place)
    except RecursionError:
        reader.report(
            "S002", "not JSON that can be read: nested too deeply", RowLocation(path=path, table=table or "", row=0)
        )
    else:
        if value is None and table is not None:
            reader.empty(RowLocation(path=path, table=table, row=0))
        else:
            read_value(value, path, reader, table)


def _loads(text: str) -> object:
    return json.loads(text, object_pairs_hook=_pairs, parse_int=str, parse_float=str, parse_constant=_constant)


def _lines(text: str, path: str, table: str, reader: RawReader) -> None:
    """Read the rows of `table`, each on a line of its own."""
    reader.tables.add(table)
    number = 0
    for line, row in enumerate(text.split("\n"), start=1):
        if not row.strip():
            continue
        number += 1
        try:
            value = _loads(row)
        except (json.JSONDecodeError, RecursionError) as error:
            message = f"the line is not one JSON object: {error}; nothing after this place was read"
            reader.report("S002", message, RowLocation(path=path, table=table, row=number, line=line))
            return
        _row(value, path, table, number, line, reader)


def read_value(value: object, path: str, reader: RawReader, table: str | None = None) -> None:
    """Read tables from a mapping of lists of mappings; with `table`, only that one, from a list, from such a mapping, or its only row."""
    place = RowLocation(path=path, table=table or "", row=0)
    if isinstance(value, Mapping) and table is not None and value.keys().isdisjoint(ALL_TABLES):
        _rows([value], path, table, reader)
    elif isinstance(value, Mapping):
        for name in value.repeated if isinstance(value, _Pairs) else ():
            reader.report("S106", f"`{_encodable(name)}` occurs twice", place)
        for name, rows in value.items():
            if reader.is_table(_encodable(name), table, place, ".json"):
                _rows(rows, path, name, reader)
    elif table is not None:
        _rows(value, path, table, reader)
    elif value is not None:
        reader.not_tables(_kind_of(value), place)


def _rows(rows: object, path: str, table: str, reader: RawReader) -> None:
    reader.tables.add(table)
    if rows is None:
        return
    if not isinstance(rows, list | tuple):
        reader.not_rows(table, _kind_of(rows), RowLocation(path=path, table=table, row=0))
        return
    for number, row in enumerate(rows, start=1):
        _row(row, path, table, number, None, reader)


def _row(row: object, path: str, table: str, number: int, line: int | None, reader: RawReader) -> None:
    place = RowLocation(path=path, table=table, row=number, line=line)
    if not isinstance(row, Mapping):
        reader.not_rows(table, _kind_of(row), place)
    elif isinstance(row, _Pairs) and row.repeated:
        for name in row.repeated:
            reader.report("S106", f"column `{_encodable(name)}` occurs twice", place)
    else:
        reader.row(path, table, number, line, {_encodable(name): _cell(value) for name, value in row.items()})


def _pairs(pairs: list[tuple[str, object]]) -> _Pairs:
    found = _Pairs(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        found.repeated = tuple(sorted({name for name in names if names.count(name) > 1}))
    return found


def _constant(name: str) -> NotText:
    return NotText(f"a number ({name})")


def _cell(value: object) -> object:
    if isinstance(value, str) and not _is_unicode(value):
        return NotText("a lone surrogate")
    if value is None or isinstance(value, str | NotText) or type(value) is int:
        return value
    return NotText(_kind_of(value))


def _is_unicode(text: str) -> bool:
    r"""Return whether the text can be encoded in UTF-8: JSON allows lone surrogates such as `\ud800`."""
    return text.isascii() or text == _encodable(text)


def _encodable(text: object) -> str:
    return str(text).encode("utf-8", "replace").decode()


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, NotText):
        return value.what
    if value is None:
        return "null"
    names = ((str, "text"), (int | float, "a number"), (Mapping, "a mapping"), (list | tuple, "a list"))
    return next((name for kind, name in names if isinstance(value, cast("type", kind))), f"a {type(value).__name__}")
