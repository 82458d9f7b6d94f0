"""Files → rows: a YAML or JSON file with all tables, or a directory with one file for each table.

Rows and a policy → the state of valid rows, and a finding for every other row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from privtab.base.errors import FileError, UsageError
from privtab.base.files import (
    LOCAL_ENDINGS,
    READERS,
    WHOLE,
    ending_of,
    note_read,
    problem,
    read_content,
    state_location,
)
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state import raw as raw_rows
from privtab.state.attribute_rows import two_values
from privtab.state.checker import Checker
from privtab.state.findings import StateFinding
from privtab.state.folders import TableFiles
from privtab.state.links import LINK_COLUMNS, holding_roles, invalid_links
from privtab.state.located import wrong_places
from privtab.state.names import Places, RowProblem, SelectedRows
from privtab.state.nodes import ALL_TABLES, ENTITIES, Placement, State
from privtab.state.raw import LARGEST, RawReader, RawState
from privtab.state.read_json import read_value


def load_raw_state(path: Path | str) -> RawState:
    """Read the rows of a state with their positions; what cannot be read becomes findings, but for what `?accept=NAME` names.

    Raises FileError if the file does not exist. Raises UsageError if it is only one table of a state, or if there is no table at
    all: such a state would deny everything, which is surely a mistake.

        state, findings = validate(program, load_raw_state("state.yaml"))
    """
    path, accepted = state_location(path)
    if not path.exists():
        raise FileError(f"no such state: {path}")
    if not path.is_dir() and (why := problem(path)) is not None:
        raise FileError(f"cannot read `{path}`: {why}")
    note_read(path)
    reader = RawReader(accepted)
    if path.is_dir() and path.suffix != ".parquet":
        for table, files in TableFiles.in_folder(path, reader, LOCAL_ENDINGS, ALL_TABLES).items():
            _table(files, reader, table)
    elif ending_of(path.name)[1] in set(LOCAL_ENDINGS) - set(WHOLE):
        raise UsageError(f"{path} is one table; give the directory that holds one file for each table")
    else:
        import_module(READERS.get(ending_of(path.name)[1]) or _by_content(path)).read(path, reader, None)
    if not reader.tables and not reader.findings:
        tables = ", ".join(ALL_TABLES)
        raise UsageError(f"{path} has no table of a state; the tables are {tables}, and one may be empty: `grants: []`")
    return reader.done()


def from_tables(tables: object, path: str) -> RawState:
    """Rows from a mapping of tables to lists of mappings, as in JSON, or those of a State, to be checked; `path` is their source.

    >>> from_tables({"memberships": [{"user": "ann", "group": "hr"}]}, "rows").rows["memberships"][0].cells["group"]
    'hr'
    """
    if isinstance(tables, State):
        return replace(from_tables(tables.to_tables(), path), lacks=tables.lacks)
    reader = RawReader()
    read_value(tables, path, reader)
    return reader.done()


def _table(files: TableFiles, reader: RawReader, table: str) -> None:
    """Read the rows of a table from its file, or from the files of its folder, whose rows are numbered on."""
    read = import_module(READERS[files.ending]).read
    if len(files.parts) < 2 or files.ending == ".parquet":
        read(files.path if files.ending == ".parquet" else files.parts[0], reader, table)
        return
    before, findings = 0, list[StateFinding]()
    for file in files.parts:
        part = RawReader(reader.accept)
        read(file, part, table)
        found = part.done()
        for row in found.rows.get(table, ()):
            reader.take(replace(row, number=row.number + before))
        for finding in found.findings:
            number = finding.place.row + before if finding.place.row else 0
            findings.append(replace(finding, place=replace(finding.place, row=number)))
        before = max(before, *(row.number for row in reader.rows.get(table, ())[-1:]), *(f.place.row for f in findings))
    told = [f for f in findings if f.code != "S008"]  # Spark also writes files without rows
    reader.findings += told if told or reader.rows.get(table) else findings


def _by_content(file: Path) -> str:
    """The reader of a file with an unknown ending: JSON begins with a bracket, anything else is read as YAML."""
    with suppress(OSError, FileError):
        if read_content(file, LARGEST)[: 1 << 10].decode("utf-8-sig", "replace").lstrip()[:1] in {"{", "["}:
            return READERS[".json"]
    return READERS[".yaml"]


def validate(program: Program, raw: RawState, *, notes: bool = True) -> tuple[State, tuple[StateFinding, ...]]:
    """Check every row against the policy. A row with an error is in the findings, any other row is in the state.

    A row that repeats an earlier one is reported and used once. The findings include those from reading. `notes`: whether to look
    for names that no other row uses.

        state, findings = validate(program, load_raw_state("state.yaml"))
    """
    state, _, findings = validate_with_places(program, raw, notes=notes)
    return state, findings


def validate_with_places(
    program: Program, raw: RawState, *, notes: bool = True
) -> tuple[State, Places, tuple[StateFinding, ...]]:
    """As `validate`, with the position of each row of the state.

    For example:

        state, places, findings = validate_with_places(program, raw)
        places.of("grants", 0)
    """
    checker = Checker(program, raw)
    table: Callable[[str], Any] = checker.table
    if sum(map(len, raw.rows.values())) >= raw_rows.LARGE:
        from privtab.state.large import ColumnChecker

        table = ColumnChecker(checker).table
    state = _state(checker, table)
    state = without_conflicts(checker, state, "memberships", "assignments", "attributes")
    if notes:
        checker.note_unused_names(state)
    checker.report_omitted()
    return state, Places(rows=checker.valid_rows), tuple(sorted(checker.findings))


def _state(checker: Checker, table: Callable[[str], Any]) -> State:
    """The state of the valid rows; `table` gives those of one table, one by one or by columns."""
    entities = placements(checker)
    grants, owners = table("grants"), table("owners")
    checker.grantees = State(grants=grants, owners=owners).distinct(("grants", "grantee"), ("owners", "owner"))
    checker.grantees |= holding_roles(checker.program, checker.raw)
    others = ("members", "memberships", "assignments", "service_admins", "attributes")
    rows: Any = {name: table(name) for name in others} | {"windows": checker.windows, "lacks": checker.raw.lacks}
    return State(grants=grants, owners=owners, entities=entities, **rows)


def placements(checker: Checker) -> Sequence[Placement]:
    """The valid rows of `entities`; from then on, rows about entities that lie nowhere are wrong."""
    state = State(entities=checker.table(ENTITIES))
    if not checker.program.flat:
        return state.entities
    state = without_conflicts(checker, state, ENTITIES)
    checker.names.places = dict(state.texts(ENTITIES, "entity", "parent"))
    return state.entities


def conflicts(program: Program, state: State, table: str) -> dict[int, RowProblem]:
    """The rows of a table that are wrong together with others of it, by number, and why.

    For example:

        conflicts(program, state, "memberships")  # {0: RowProblem("S186", …)}
    """
    if table == ENTITIES:
        rows = list(state.texts(ENTITIES, "entity", "parent"))
        return wrong_places(vocabulary(program), rows) if program.flat else {}
    if table == "attributes":
        return two_values(program, state)
    found: dict[int, RowProblem] = {}
    for kind in program.semantics.hierarchy:
        linked, member, container, prefix = LINK_COLUMNS[kind]
        if linked == table:
            members = state.column(table, member)
            numbers = members.where(name for name in members.names if name.startswith(prefix))
            links = [(m, f"{prefix}{c}") for m, c in state.texts(table, member, container, rows=numbers)]
            problems = invalid_links(kind, links)
            found |= {row: problems[link] for row, link in zip(numbers, links, strict=True) if link in problems}
    return found


def without_conflicts(checker: Checker, state: State, *tables: str) -> State:
    """The state without the rows of some tables that are wrong together with others, after reporting them."""
    for table in tables:
        wrong = conflicts(checker.program, state, table)
        if not wrong:
            continue
        rows = checker.valid_rows[table]
        for number, row_problem in wrong.items():
            checker.error(rows[number], row_problem)
        remaining = [number for number in range(len(rows)) if number not in wrong]
        checker.valid_rows[table] = SelectedRows(rows, remaining)
        windows = dict(state.windows)
        if table in windows:
            windows[table] = [windows[table][row] for row in remaining]
        some: dict[str, Any] = {table: state.table(table).some(remaining)}
        state = replace(state, windows=windows, **some)
    return state
