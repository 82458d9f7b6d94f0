"""The states in which cases are decided: from a file, from tables in the scenario file, or changed step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privtab.errors import FileError, UsageError
from privtab.ir.nodes import Program
from privtab.scenarios.tree import ScenarioReader
from privtab.state.load import load
from privtab.state.nodes import ALL_TABLES, RowLocation, State, StateFinding
from privtab.state.raw import RawReader, RawState
from privtab.state.validate import validate
from privtab.syntax.yaml_tree import Mapping, Node


class Worlds:
    """States of one policy, each read once."""

    def __init__(self, reader: ScenarioReader, program: Program, folder: Path) -> None:
        self.reader = reader
        self.program = program
        self.folder = folder
        self._files: dict[Path, State | None] = {}

    def state(self, node: Node | None) -> State | None:
        """The state that `state:` names or contains; empty without a node; None after a finding."""
        match node:
            case None:
                return State()
            case Mapping():
                return self.rows(node)
            case _:
                text = self.reader.text(node, "`state`")
                return None if text is None else self._file(node, self.folder / text.value)

    def rows(self, node: Node) -> State | None:
        """Read tables in the scenario file itself."""
        raw_reader = RawReader()
        mistakes_before = self.reader.mistakes
        for key, value in self.reader.entries(node, "a state"):
            place = RowLocation(path=self.reader.source.path, table=key.text, row=0, line=self._line(key))
            if key.text not in ALL_TABLES:
                raw_reader.unknown_table(key.text, place)
                continue
            for number, row in enumerate(self.reader.items(value, f"`{key.text}`"), start=1):
                cells = self.reader.pairs(row, f"a row of `{key.text}`")
                raw_reader.row(
                    place.path, key.text, number, self._line(row), {key_.value: cell.value for key_, cell in cells}
                )
        return None if self.reader.mistakes > mistakes_before else self._validated(raw_reader.done(), node)

    def _file(self, node: Node, path: Path) -> State | None:
        if path not in self._files:
            try:
                self._files[path] = self._validated(load(path), node)
            except (FileError, UsageError) as error:
                self.reader.report("T102", node, str(error))
                self._files[path] = None
        return self._files[path]

    def _validated(self, raw: RawState, node: Node) -> State | None:
        """The state, if all its rows are valid: a scenario on an incomplete state proves nothing."""
        state, found = validate(self.program, raw)
        errors = [finding for finding in found if finding.severity == "error"]
        for finding in errors:
            self._report(finding, node)
        if state.windows and not errors:
            advice = "a scenario proves the same every day: write the rows that hold then, without `from` and `until`"
            self.reader.report("T102", node, "the state has rows that hold only for a time", advice)
            return None
        return None if errors else state

    def _report(self, finding: StateFinding, node: Node) -> None:
        """Report a finding at its row in this file, or at the name of the other file."""
        place = finding.place
        if place.path == self.reader.source.path and place.line is not None:
            source = self.reader.source
            start = source.starts[place.line - 1]
            line = source.text[start:].partition("\n")[0]
            indent = len(line) - len(line.lstrip(" -"))
            self.reader.report("T102", source.span(start + indent, start + len(line)), finding.message, finding.help)
        else:
            line = "" if place.line is None else f":{place.line}"
            self.reader.report("T102", node, f"{place.path}{line}: {finding.message}", finding.help)

    def _line(self, node: Node) -> int:
        return self.reader.source.position(node.start)[0]


def without(state: State, removed: State) -> State:
    """The rows of a state without those in `removed`."""
    remaining: Any = {}
    for table in ALL_TABLES:
        dropped = set(getattr(removed, table))
        remaining[table] = tuple(row for row in getattr(state, table) if row not in dropped)
    return State(**remaining)
