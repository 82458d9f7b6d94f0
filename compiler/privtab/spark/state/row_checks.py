"""Check on executors, one by one, the rows that the expressions of `checks` do not accept, by the code for rows of files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa

from privtab.ir.nodes import Program
from privtab.moments import ALWAYS, WINDOW, Window, edge_texts
from privtab.request import Entity
from privtab.spark.shipping import ShippedBytes, WorkerCache, contents
from privtab.spark.state.schemas import CANONICAL, FINDING
from privtab.state.nodes import Assignment, AttributeRow, Grant, Placement, StateFinding
from privtab.state.raw import COLUMNS, NotText, RawReader
from privtab.state.row_checker import RowChecker
from privtab.state.uses import uses

_PLACES: WorkerCache[str, Mapping[str, str]] = WorkerCache()


def examined_schema(table: str, window: Sequence[str] = ()) -> str:
    """The columns of `examine`: canonical columns of a valid row, whether it is valid, its findings, its cells."""
    columns = ", ".join(f"`{name}` string" for name in (*CANONICAL[table], *window))
    return f"{columns}, `__good` boolean, `__findings` array<struct<{FINDING}>>, `__row` string"


def examine(
    program: Program, table: str, not_text: Mapping[str, str], places: ShippedBytes | None, batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow`: validate raw rows; the result has the columns of `examined_schema`.

    `places`: where entities with flat ids lie; rows about others are wrong.
    """
    _checker(_ProgramKey(program)).places = (
        None if places is None else _PLACES.get(places.digest, lambda: contents(places))
    )
    for batch in batches:
        columns = {name: cells_of(batch.column(i)) for i, name in enumerate(batch.schema.names)}
        rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        window = [name for name in columns if name in WINDOW]
        yield examined(program, table, not_text, rows, window)


def examined(
    program: Program,
    table: str,
    not_text: Mapping[str, str],
    rows: Sequence[Mapping[str, object]],
    window: Sequence[str] = (),
) -> Any:
    """Validate the rows of one batch; `not_text`: columns whose cells are not text, with their types."""
    checker = _checker(_ProgramKey(program))
    names = (*CANONICAL[table], *window)
    out: dict[str, list[Any]] = {name: [] for name in (*names, "__good", "__findings", "__row")}
    for cells in rows:
        optional = (*COLUMNS[table].optional, *WINDOW)
        row_cells: dict[str, object] = {
            name: NotText(f"a {not_text[name]}") if name in not_text and value is not None else value
            for name, value in cells.items()
            if value is not None or name not in optional
        }
        value, holds, findings = check_row(checker, table, row_cells)
        canonical_texts: Mapping[str, str | None] = {} if value is None else canonical_cells(table, value)
        canonical_texts = {**canonical_texts, **dict(zip(WINDOW, edge_texts(holds), strict=True))}
        for name in names:
            out[name].append(canonical_texts.get(name))
        out["__good"].append(value is not None)
        out["__findings"].append(
            [{"code": f.code, "severity": f.severity, "message": f.message, "help": f.help} for f in findings]
        )
        out["__row"].append(_json(cells))
    arrays = [pa.array(out[name], pa.string()) for name in names]
    struct = pa.struct([(n, pa.string()) for n in ("code", "severity", "message", "help")])
    arrays += [
        pa.array(out["__good"], pa.bool_()),
        pa.array(out["__findings"], pa.list_(struct)),
        pa.array(out["__row"], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, "__good", "__findings", "__row"])


def check_row(checker: RowChecker, table: str, cells: dict[str, object]) -> tuple[object, Window, list[StateFinding]]:
    """The value of a row, or None if it is invalid, its window, and all findings about it."""
    reading = RawReader()
    reading.row("", table, 1, None, cells)
    findings = list(reading.findings)
    value: object = None
    window = ALWAYS
    for row in reading.rows.get(table, ()):
        value, window, more = checker.check(row)
        findings += more
    return value, window, findings


def canonical_cells(table: str, value: object) -> dict[str, str | None]:
    """The canonical columns of a valid row, from its value as returned by `RowChecker`."""
    match value:
        case Grant():
            return {
                "grantee": value.grantee, "effect": value.effect, "privilege": value.privilege,
                "type": value.entity.type, "path": value.entity.id,
            }  # fmt: skip
        case Assignment():
            scope = value.scope
            return {
                "principal": value.principal, "role": value.role,
                "scope_type": None if scope is None else scope.type, "scope_path": None if scope is None else scope.id,
            }  # fmt: skip
        case str():
            return {"user": value}
        case AttributeRow():
            on = value.entity
            return {
                "attribute": value.attribute, "value": value.value, "user": value.user,
                "type": None if on is None else on.type, "path": None if on is None else on.id,
            }  # fmt: skip
        case Placement():
            return {
                "type": value.entity.type, "path": value.entity.id,
                "parent_type": value.parent.type, "parent_path": value.parent.id, "name": value.name,
            }  # fmt: skip
        case _:
            first, second = cast("tuple[Any, Any]", value)
            match table:
                case "members":
                    return {"user": first, "type": second.type, "path": second.id}
                case "owners":
                    entity: Entity = first
                    return {"type": entity.type, "path": entity.id, "owner": second}
                case _:
                    return {"user": first, "group": second}


def cells_of(array: Any) -> list[object]:
    """The cells of a column; invalid UTF-8 becomes a NotText that says so."""
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        found: list[object] = []
        for value in array.cast(pa.binary()).to_pylist():
            try:
                found.append(value if value is None else value.decode())
            except UnicodeDecodeError:
                found.append(NotText("a run of bytes that are not UTF-8"))
        return found


def _json(cells: Mapping[str, object]) -> str:
    return json.dumps(
        {name: str(value) for name, value in cells.items() if value is not None and value != ""},
        ensure_ascii=False,
        separators=(",", ":"),
    )


class _ProgramKey:
    """A program as a cache key, equal for equal policies, so that a worker creates one checker for all batches."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.key = repr((program.system, program.version, program.entities, program.privileges, program.aliases,
                         program.sets, program.roles, program.semantics, program.attributes, uses(program)))  # fmt: skip

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ProgramKey) and other.key == self.key


@lru_cache(maxsize=4)
def _checker(known: _ProgramKey) -> RowChecker:
    return RowChecker(known.program)
