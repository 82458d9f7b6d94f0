"""Read tables from YAML text, event by event: every row keeps its line, and no tree of nodes is held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from yaml import events

from privtab.base.lazy import pattern
from privtab.base.yaml_text import DEEPEST, check_line_breaks
from privtab.state.findings import RowLocation
from privtab.state.nodes import ALL_TABLES
from privtab.state.raw import NotText, RawReader

# YAML 1.2's core schema: `no`, `on` and `y` are text; numbers are taken as written.
_NULL = pattern(r"|~|null|Null|NULL")
_TRUTH = pattern(r"true|True|TRUE|false|False|FALSE")
_TEXT_TAGS = {None, "!"} | {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float")}


class _UnreadableFile(Exception):
    """The file cannot be read further: the reason, the line, and advice."""

    def __init__(self, message: str, line: int, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.advice = advice


def read(file: Path, reader: RawReader, table: str | None) -> None:
    """Read a file with all tables of a state, or with the one that `table` names."""
    text = reader.text(file, table)
    if text is not None:
        read_yaml_rows(text, str(file), reader, table)


def read_yaml_rows(text: str, path: str, reader: RawReader, table: str | None = None) -> None:
    """Read the tables of a state, or only the one that `table` names.

    For example:

        read_yaml_rows("owners: [{entity: lake:l, owner: user:ann}]", "state.yaml", reader)
    """
    try:
        check_line_breaks(text)
        _Tables(text, path, reader).read(table)
    except _UnreadableFile as stop:
        place = RowLocation(path=path, table=table or "", row=0, line=stop.line)
        reader.report("S002", stop.message, place, help=stop.advice)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = RowLocation(path=path, table=table or "", row=0, line=mark.line + 1 if mark else None)
        message = ": ".join(filter(None, (error.context, error.problem)))
        reader.report("S002", f"not YAML: {message}; nothing after this place was read", place)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else None
        place = RowLocation(path=path, table=table or "", row=0, line=line)
        reader.report("S002", f"not YAML: {error.reason}", place)


class _Tables:
    """Walks the events of one document and passes its rows on."""

    def __init__(self, text: str, path: str, reader: RawReader) -> None:
        # Uses libyaml if PyYAML was built with it: ten times faster, the same events.
        self.events: Iterator[events.Event] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self.path = path
        self.reader = reader
        self.depth = 0

    def read(self, table: str | None) -> None:
        """Read the only document; with `table`, it may be a list of rows without the table's name."""
        self.next()
        nowhere = RowLocation(path=self.path, table=table or "", row=0)
        if isinstance(self.next(), events.StreamEndEvent):
            if table is not None:
                self.reader.empty(nowhere)
            return
        event = self.next()
        if isinstance(event, events.MappingStartEvent):
            self.tables(table)
        elif table is not None and isinstance(event, events.ScalarEvent) and _scalar(event) is None:
            self.reader.empty(nowhere)
        elif table is not None:
            self.rows(table, event)
        elif not (isinstance(event, events.ScalarEvent) and _scalar(event) is None):
            self.reader.not_tables(_kind_of(event), self.place(event))
            self.skip(event)
        while not isinstance(event := self.next(), events.StreamEndEvent):
            if isinstance(event, events.DocumentStartEvent):
                raise _UnreadableFile("a second document begins here; a state is one document", _line(event))

    def tables(self, only: str | None) -> None:
        """Read `table: rows` pairs up to the end of the mapping."""
        names: set[str] = set()
        while not isinstance(key := self.next(), events.MappingEndEvent):
            name = self.key(key)
            value = self.next()
            place = self.place(key, name if name in ALL_TABLES else "")
            if name in names:
                self.reader.report("S106", f"table `{name}` occurs twice", place)
                self.skip(value)
            elif self.reader.is_table(name, only, place, ".yaml"):
                names.add(name)
                self.rows(name, value)
            else:
                self.skip(value)

    def rows(self, table: str, event: events.Event) -> None:
        """Read the rows of one table; `event` begins its value."""
        self.reader.tables.add(table)
        if isinstance(event, events.ScalarEvent) and _scalar(event) is None:
            return
        if not isinstance(event, events.SequenceStartEvent):
            self.reader.not_rows(table, _kind_of(event), self.place(event, table))
            self.skip(event)
            return
        number = 0
        while not isinstance(event := self.next(), events.SequenceEndEvent):
            number += 1
            if isinstance(event, events.MappingStartEvent):
                self.row(table, number, _line(event))
            else:
                self.reader.not_rows(table, _kind_of(event), self.place(event, table, number))
                self.skip(event)

    def row(self, table: str, number: int, line: int) -> None:
        """Read one row up to the end of its mapping."""
        cells: dict[str, object] = {}
        repeated = False
        while not isinstance(key := self.next(), events.MappingEndEvent):
            name = self.key(key)
            value = self.next()
            if name in cells:
                self.reader.report("S106", f"column `{name}` occurs twice", self.place(key, table, number))
                repeated = True
            cells[name] = _scalar(value) if isinstance(value, events.ScalarEvent) else NotText(_kind_of(value))
            self.skip(value)
        if not repeated:
            self.reader.row(self.path, table, number, line, cells)

    def next(self) -> events.Event:
        """The next event. Refuses anchors and aliases, since a row would have two positions."""
        event = next(self.events)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            sign = "alias `*" if isinstance(event, events.AliasEvent) else "anchor `&"
            raise _UnreadableFile(
                f"{sign}{anchor}`: a state has no anchors and aliases", _line(event), "write the rows out"
            )
        self.depth += isinstance(event, events.CollectionStartEvent) - isinstance(event, events.CollectionEndEvent)
        if self.depth > DEEPEST:
            raise _UnreadableFile(
                f"values are nested more than {DEEPEST} levels deep; nothing after this place was read", _line(event)
            )
        return event

    def key(self, event: events.Event) -> str:
        """The text of a key; a collection as a key stops the reading."""
        if not isinstance(event, events.ScalarEvent):
            raise _UnreadableFile(f"a key is {_kind_of(event)}, not text", _line(event))
        return str(event.value)

    def skip(self, event: events.Event) -> None:
        """Skip the value that begins with `event`."""
        depth = int(isinstance(event, events.CollectionStartEvent))
        while depth:
            event = self.next()
            depth += isinstance(event, events.CollectionStartEvent) - isinstance(event, events.CollectionEndEvent)

    def place(self, event: events.Event, table: str = "", row: int = 0) -> RowLocation:
        """The position of an event."""
        return RowLocation(path=self.path, table=table, row=row, line=_line(event))


def _scalar(event: events.ScalarEvent) -> object:
    """The text of a cell, or None for null; for other values, NotText."""
    value = str(event.value)
    if event.tag not in _TEXT_TAGS:
        return None if event.tag == "tag:yaml.org,2002:null" else NotText(f"a value with the tag {event.tag}")
    if event.implicit[0] and _NULL.fullmatch(value):
        return None
    if event.implicit[0] and _TRUTH.fullmatch(value):
        return NotText(f"the truth value {value}")
    return value


def _line(event: events.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _kind_of(event: events.Event) -> str:
    match event:
        case events.MappingStartEvent():
            return "a mapping"
        case events.SequenceStartEvent():
            return "a list"
        case events.ScalarEvent():
            value = _scalar(event)
            return "null" if value is None else str(value) if isinstance(value, NotText) else f"the text `{value}`"
        case events.DocumentEndEvent():
            return "the end of the document"
        case _:
            return "something else"
