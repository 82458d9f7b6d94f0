"""A validated state as DataFrames, and the names of the policy by which its rows are valid."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as fn

from privtab.base import PRINCIPAL_KINDS, WINDOW_COLUMNS, HasWindows, UsageError, Window, parse_moment
from privtab.bundle import json_bytes
from privtab.ir import EntityType, Program, program_json
from privtab.state import (
    ENTITY_COLUMNS,
    TABLE_COLUMNS,
    CodedColumn,
    ColumnIndex,
    ColumnRows,
    State,
    UsedParts,
)
from privtab_spark.frames import row_counts, union
from privtab_spark.state.schemas import CANONICAL, FINDINGS, TABLES, program_of, schema, tables_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


PACKED = 1_000_000
"""Rows of a table above which it is collected compressed: Spark's driver holds all that it collects, by default in 1 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkState:
    """Valid rows by table without duplicates, with the columns of `CANONICAL`; aliases and sets of privileges are resolved."""

    tables: Mapping[str, DataFrame]
    """Has all of `tables_of(program)`; a table without rows is an empty frame."""
    quarantined: DataFrame
    """The findings about invalid rows, with the columns of `schemas.FINDINGS`."""
    system: str | None = None
    """The system that the rows are for; None if unknown."""
    names: Mapping[str, Any] | None = field(default=None, repr=False)
    """The names by which the rows were validated and resolved (`vocabulary.names_of`); None for a bundle, which lacks them."""
    _counts: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_state(cls, spark: SparkSession, program: Program | None, state: State) -> SparkState:
        """The rows of a validated state; without a program, its grants must not name aliases or sets."""
        state.plain("Spark")
        present = [table for table in CANONICAL if table in TABLES or getattr(state, table)]
        names = present if program is None else tables_of(program)
        rows = {table: arrow_table(table, state, program) for table in names}
        tables = {
            table: spark.createDataFrame(table_rows) if len(table_rows) else spark.createDataFrame([], schema(table))
            for table, table_rows in rows.items()
        }
        return cls(
            tables=tables,
            quarantined=spark.createDataFrame([], FINDINGS),
            system=None if program is None else program.system,
            names=None if program is None else names_of(program),
            _counts={table: len(table_rows) for table, table_rows in rows.items()},
        )

    def check_policy(self, policy: object) -> SparkState:
        """The state unchanged; raises UsageError if it was read for another system, or for a policy with other names.

        For such a policy, valid rows may have been left out or privileges resolved differently.
        """
        program = program_of(policy)
        if self.system is not None and self.system != program.system:
            raise UsageError(f"the state is for `{self.system}`, but the policy is for `{program.system}`")
        if self.names is not None:
            differing = differences(self.names, names_of(program))
            if differing:
                raise UsageError(
                    f"the state was read for another policy of `{program.system}`, with other {', '.join(differing)}: read it "
                    "with this one"
                )
        return self

    def counts(self) -> Mapping[str, int]:
        """The number of rows of each table, counted once."""
        missing = [table for table in self.tables if table not in self._counts]
        self._counts.update(row_counts({table: [self.tables[table]] for table in missing}))
        return dict(self._counts)

    def local(self, limit: int = 5_000_000) -> State | None:
        """The state collected in this process, or None if it has more than `limit` rows."""
        if sum(self.counts().values()) > limit:
            return None
        counts = self._counts
        rows = {t: collected(f) if counts[t] > PACKED else f.toArrow() for t, f in self.tables.items() if counts[t]}
        return from_arrow(rows)


def collected(rows: DataFrame) -> pa.Table:
    """The rows as `toArrow` gives them; each batch travels compressed, in a twelfth of the space or so."""
    found = unpacked(packed(rows))
    return rows.limit(0).toArrow() if found is None else found


def packed(rows: DataFrame, select: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter) -> DataFrame:
    """Compressed batches of the rows, or of the result of `select` for the batches of a task, each with its rows and bytes counted."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in select(batches):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
                writer.write_batch(batch)
            content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            counts = [pa.array([batch.num_rows]), pa.array([batch.nbytes])]
            yield pa.RecordBatch.from_arrays([*counts, content], ["rows", "bytes", "batch"])

    return rows.mapInArrow(pack, "rows bigint, bytes bigint, batch binary")


def unpacked(batches: DataFrame) -> pa.Table | None:
    """The rows of compressed batches; None if there are no batches."""
    parts = batches.select("batch").toArrow().column("batch")
    tables = [pa.ipc.open_stream(part.as_buffer()).read_all() for part in parts]
    return pa.concat_tables(tables) if tables else None


def whole(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    """The rows of a task; None if it has none."""
    found = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(found) if found else None


@dataclass(frozen=True, eq=False)
class TimedTables:
    """Valid rows of which some hold for a time: tables that have them also have `from` and `until`."""

    state: SparkState

    @staticmethod
    def without_windows(state: SparkState) -> SparkState:
        """The state itself; raises HasWindows, with all of it, if a table has `from` and `until`."""
        timed = [table for table, frame in state.tables.items() if set(WINDOW_COLUMNS) & set(frame.columns)]
        if timed:
            named = " and ".join(f"`{table}`" for table in timed)
            raise HasWindows(f"rows of {named} can hold for a time: say for which moment, `at=`", TimedTables(state))
        return state

    def at(self, moment: int) -> SparkState:
        """The rows that hold at a moment."""
        exact = fn.lit(moment).cast("decimal(38,0)")
        tables = {}
        for table, frame in self.state.tables.items():
            if not set(WINDOW_COLUMNS) & set(frame.columns):
                tables[table] = frame
                continue
            begin, end = (_nanoseconds(name) for name in WINDOW_COLUMNS)
            is_open = fn.coalesce(begin <= exact, fn.lit(True)) & fn.coalesce(exact < end, fn.lit(True))  # noqa: FBT003
            tables[table] = frame.filter(is_open).select(*CANONICAL[table]).distinct()
        return replace(self.state, tables=tables, _counts={})

    def edges(self) -> list[int]:
        """The moments at which the state changes, ascending."""
        return self._edges

    @cached_property
    def _edges(self) -> list[int]:
        texts = [
            frame.select(fn.explode(fn.array(*(fn.col(f"`{name}`") for name in WINDOW_COLUMNS))).alias("edge"))
            for frame in self.state.tables.values()
            if set(WINDOW_COLUMNS) & set(frame.columns)
        ]
        found = union(*texts).filter("edge is not null").distinct()
        return sorted(parse_moment(row["edge"]) for row in found.collect())


def _nanoseconds(column: str) -> Column:
    """The moment of a time in UTC as `moment_text` writes it; null for null. A decimal, since the first second is beyond a bigint."""
    seconds = f"cast(unix_seconds(to_timestamp(substr(`{column}`, 1, 19) || 'Z')) as decimal(20,0)) * 1000000000"
    fraction = f"cast(rpad(regexp_extract(`{column}`, '[.]([0-9]+)Z$', 1), 9, '0') as decimal(9,0))"
    return fn.expr(f"{seconds} + {fraction}")


def arrow_table(table: str, state: State, program: Program | None) -> pa.Table:
    """The distinct rows of a table, with the columns of `CANONICAL`; without a program, privileges are not resolved."""
    columns = {name: CodedColumn.of_column(state.column(table, name)) for name in TABLE_COLUMNS[table].names}
    if table == "grants" and program is not None and len(columns["privilege"]):
        columns = ColumnIndex.given(program, columns)
    _, first = np.unique(CodedColumn.numbered_rows(columns.values()), return_index=True)
    first.sort()
    once = {name: CodedColumn(column.codes[first], column.array) for name, column in columns.items()}
    return pa.table(canonical(table, once))


def canonical(table: str, columns: Mapping[str, CodedColumn]) -> dict[str, pa.Array]:
    """Rows with the columns of `CANONICAL`, and with their columns `from` and `until`; `columns`: as in `State`, in their order."""
    found: dict[str, pa.Array] = {}
    names = iter(CANONICAL[table])
    for name, column in columns.items():
        codes = pa.array(column.codes, mask=column.codes < 0)
        for texts in _entity(column.array) if name in ENTITY_COLUMNS else [column.array]:
            found[name if name in WINDOW_COLUMNS else next(names)] = texts.take(codes)
    return found


def _entity(entities: pa.Array) -> list[pa.Array]:
    """The types and the paths of entities."""
    parts = pc.split_pattern(entities, ":", max_splits=1)
    return [pc.list_element(parts, number) if len(parts) else pa.array([], pa.string()) for number in (0, 1)]


CELLS = ("a", "b", "c", "d", "e")
"""The columns of rows of several tables that are united."""


def cells(columns: Sequence[str]) -> list[Column]:
    """The columns of a table as CELLS."""
    found = [fn.col(f"`{column}`") for column in columns] + [fn.lit(None).cast("string")] * (len(CELLS) - len(columns))
    return [column.alias(name) for column, name in zip(found, CELLS, strict=True)]


def from_arrow(tables: Mapping[str, Any]) -> State:
    """A State from Arrow tables with the columns of `CANONICAL`, by columns."""

    def rows(table: str) -> ColumnRows:
        remaining_columns = iter(tables[table].select(CANONICAL[table]).columns)
        columns = {}
        for name in TABLE_COLUMNS[table].names:
            texts = next(remaining_columns)
            if name in ENTITY_COLUMNS:
                texts = pc.binary_join_element_wise(texts, next(remaining_columns), ":")
            columns[name] = CodedColumn.of(texts)
        return ColumnRows(table, columns)

    rows_by_table: dict[str, Any] = {table: rows(table) for table in CANONICAL if table in tables}
    windows = {
        t: windows_of(*(rows.column(name).to_pylist() for name in WINDOW_COLUMNS))
        for t, rows in tables.items()
        if WINDOW_COLUMNS[0] in rows.column_names
    }
    return State(**rows_by_table, windows=windows)


def windows_of(*edge_texts: Sequence[str | None]) -> list[Window]:
    """The windows of rows, from the texts of their `from` and `until`."""
    known: dict[str, int] = {}
    edges = []
    for texts, beyond in zip(edge_texts, Window(), strict=True):
        known |= {text: parse_moment(text) for text in {*texts} - known.keys() if text is not None}
        edges.append([beyond if text is None else known[text] for text in texts])
    return list(map(Window, *edges))


def names_of(program: Program) -> dict[str, Any]:
    """The names by which rows are validated and resolved, as JSON.

    If they are equal for two policies, a state of one is valid for the other, whatever their conditions.
    """
    owner = program.semantics.owner
    hierarchy = program.semantics.hierarchy
    given = program.attributes.from_origin("state").to_json()
    attributes = {f"{kind}.{name}": declared for kind, of_kind in given.items() for name, declared in of_kind.items()}
    implied = {name: sorted(p.implies) for name, p in sorted(program.privileges.items()) if p.implies}
    return {
        "system": program.system,
        "types": {name: _type(e) for name, e in sorted(program.entities.items())},
        "privileges": {name: sorted(p.on) for name, p in sorted(program.privileges.items())},
        **({"implied": implied} if implied else {}),
        "aliases": {name: alias.of for name, alias in sorted(program.aliases.items())},
        "sets": {name: sorted(members) for name, members in sorted(program.sets.items())},
        "roles": {name: role.scope for name, role in sorted(program.roles.items())},
        "denials": {"denials": program.semantics.deny},
        "owners": {"owners": None if owner is None else sorted(owner.kinds)},
        **({} if program.semantics.grantees == PRINCIPAL_KINDS else {"grantees": sorted(program.semantics.grantees)}),
        **(
            {} if program.semantics.assignees == PRINCIPAL_KINDS else {"assignees": sorted(program.semantics.assignees)}
        ),
        **({"hierarchy": dict.fromkeys(sorted(hierarchy), True)} if hierarchy else {}),
        **({"attributes": attributes} if attributes else {}),
    }


def _type(entity: EntityType) -> list[Any]:
    nested = [f"nested: {entity.nested}"] if entity.nested else []
    return [entity.parent, entity.single, *nested, *(["flat"] if entity.flat else [])]


def policy_digest(program: Program, orphans: str, format_: int) -> str:
    """Hash of everything a build depends on besides its rows: names and semantics of the policy, and how orphans are treated."""
    used = UsedParts.of(program)
    parts = [sorted(used.member_types), used.group_membership, used.holds, used.service_admins]
    document = {k: v for k, v in program_json(program).items() if k not in {"rules", "title"}}
    return hashlib.sha256(json_bytes([document, parts, orphans, format_])).hexdigest()[:16]


def differences(of_state: Mapping[str, Any], of_policy: Mapping[str, Any]) -> list[str]:
    """Descriptions of how the names by which a state was read differ from a policy's; empty if they are equal."""
    found = []
    for part in dict.fromkeys((*of_policy, *of_state)):
        values = [names.get(part, {}) for names in (of_state, of_policy)]
        in_state, in_policy = (value if isinstance(value, Mapping) else {part: value} for value in values)
        changed = sorted(
            name for name in {*in_state, *in_policy} if in_state.get(name, ...) != in_policy.get(name, ...)
        )
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            named = ", ".join(f"`{name}`" for name in changed[:3])
            found.append(part if changed == [part] else f"{part} ({named}{more})")
    return found
