"""The states in which cases are decided: from a file, from tables in the scenario file, or changed step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from privtab.errors import FileError, UsageError
from privtab.ir.nodes import OwnerKind, Program
from privtab.names import encode_name
from privtab.request import Entity
from privtab.scenarios.tree import ScenarioReader
from privtab.state.load import load
from privtab.state.nodes import TABLES, RowLocation, State, StateFinding
from privtab.state.raw import RawReader, RawState
from privtab.state.validate import validate
from privtab.syntax.yaml_tree import Mapping, Node

T = TypeVar("T")


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
        reading = RawReader()
        before = self.reader.mistakes
        for key, value in self.reader.entries(node, "a state"):
            place = RowLocation(path=self.reader.source.path, table=key.text, row=0, line=self._line(key))
            if key.text not in TABLES:
                reading.unknown_table(key.text, place)
                continue
            for number, row in enumerate(self.reader.items(value, f"`{key.text}`"), start=1):
                cells = self.reader.pairs(row, f"a row of `{key.text}`")
                reading.row(place.path, key.text, number, self._line(row), {k.value: v.value for k, v in cells})
        return None if self.reader.mistakes > before else self._checked(reading.done(), node)

    def _file(self, node: Node, path: Path) -> State | None:
        if path not in self._files:
            try:
                self._files[path] = self._checked(load(path), node)
            except (FileError, UsageError) as error:
                self.reader.report("T102", node, str(error))
                self._files[path] = None
        return self._files[path]

    def _checked(self, raw: RawState, node: Node) -> State | None:
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


def merged(*states: State) -> State:
    """The rows of all states, each once."""
    return State(
        members=_once(s.members for s in states),
        memberships=_once(s.memberships for s in states),
        assignments=_once(s.assignments for s in states),
        grants=_once(s.grants for s in states),
        owners=_once(s.owners for s in states),
        service_admins=_once(s.service_admins for s in states),
    )


def without(state: State, gone: State) -> State:
    """The rows of a state without those in `gone`."""
    return State(
        members=_rest(state.members, gone.members),
        memberships=_rest(state.memberships, gone.memberships),
        assignments=_rest(state.assignments, gone.assignments),
        grants=_rest(state.grants, gone.grants),
        owners=_rest(state.owners, gone.owners),
        service_admins=_rest(state.service_admins, gone.service_admins),
    )


def about_principal(state: State, table: str, principal: Entity, program: Program) -> State:
    """The rows of one table about a principal that is itself an entity, as far as they concern what contains it.

    Rows that name no entity (memberships, assignments without a scope) always count.
    """
    kind = program.entities[principal.type].principal
    *container, _ = program.chain(principal.type)
    *above, last = principal.names

    def named(name: str, as_: OwnerKind | None = kind) -> bool:
        return as_ == kind and encode_name(name) == last

    def written(text: str) -> bool:
        of, _, name = text.partition(":")
        return of == kind and named(name)

    def inside(entity: Entity | None) -> bool:
        if entity is None or not container:
            return True
        return container[-1] in program.chain(entity.type) and list(entity.names[: len(above)]) == above

    match table:
        case "members":
            return State(members=tuple(row for row in state.members if named(row[0], "user") and inside(row[1])))
        case "memberships":
            rows = tuple(row for row in state.memberships if named(row[0], "user") or named(row[1], "group"))
            return State(memberships=rows)
        case "assignments":
            held = (row for row in state.assignments if written(row.principal) or named(row.role, "role"))
            return State(assignments=tuple(row for row in held if inside(row.scope)))
        case "grants":
            return State(grants=tuple(row for row in state.grants if written(row.grantee) and inside(row.entity)))
        case "owners":
            return State(owners=tuple(row for row in state.owners if written(row[1]) and inside(row[0])))
        case _:
            raise AssertionError(f"`{table}` is not one of PRINCIPAL_TABLES")


def _once(tables: Iterable[Sequence[T]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(row for table in tables for row in table))


def _rest(rows: Sequence[T], gone: Sequence[T]) -> tuple[T, ...]:
    leaving = set(gone)
    return tuple(row for row in rows if row not in leaving)
