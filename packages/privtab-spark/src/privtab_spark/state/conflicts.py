"""Rows that are wrong together with others, in Spark: links in a cycle, two places of an entity, two values of an attribute.

What must be compared is collected on the driver and judged by the code for files, so that findings are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as fn

from privtab.base import UsageError
from privtab.ir import Program
from privtab.state import LINK_COLUMNS, ColumnRows, RowProblem, State, conflicts
from privtab_spark.shipping import PackedState, ShippedBytes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_COLLECTED = 1_000_000
"""Limit on the rows that the driver collects: links between groups or roles, places, attributes with several values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictingRows:
    """Rows of a canonical table, by the columns that tell them apart, and their problems."""

    columns: tuple[str, ...]
    problems: Mapping[tuple[str | None, ...], RowProblem]
    """The problems of the rows; not empty."""

    @property
    def codes(self) -> list[str]:
        """The codes of the problems, sorted."""
        return sorted({problem.code for problem in self.problems.values()})

    def joined(self, rows: DataFrame, how: str) -> DataFrame:
        """The rows without the conflicting ones (`left_anti`), or the conflicting ones alone with `code`, `message` and `help` (`inner`)."""
        keys = [f"__{column}" for column in self.columns]
        names = ", ".join(f"`{name}` string" for name in (*keys, "code", "message", "help"))
        cells = [(*key, problem.code, problem.message, problem.help) for key, problem in self.problems.items()]
        equal = [fn.col(column).eqNullSafe(fn.col(key)) for column, key in zip(self.columns, keys, strict=True)]
        both = reduce(and_, equal)
        return rows.join(fn.broadcast(rows.sparkSession.createDataFrame(cells, names)), both, how)


def conflicting_rows(program: Program, table: str, rows: DataFrame) -> ConflictingRows | None:
    """The distinct valid rows of a table that are wrong together with others; None if there are none."""
    kind = next((kind for kind in program.semantics.hierarchy if LINK_COLUMNS[kind][0] == table), None)
    if kind is not None:
        return _rows(LINK_COLUMNS[kind][1:3], _links(program, kind, rows))
    if table == "entities":
        return _rows(("type", "path", "parent_type", "parent_path"), _places(program, rows))
    return _rows(("user", "type", "path", "attribute"), _values(program, rows)) if table == "attributes" else None


def shipped_places(spark: SparkSession, rows: DataFrame) -> ShippedBytes:
    """The places of entities with flat ids, from the valid rows of `entities`, for the executors."""
    return PackedState.holding(collected_places(rows)).ship(spark)


def collected_places(rows: DataFrame) -> dict[str, str]:
    """The container of each entity with a flat id, from the valid rows of `entities`."""
    return dict(sorted(_pairs(rows)))


def collected_links(rows: DataFrame, member: str, prefix: str) -> list[Any]:
    """The rows whose member is a group, or a role, as the prefix says."""
    return _collected(rows.filter(fn.col(member).startswith(prefix)), f"link {prefix[:-1]}s to each other")


def _rows(columns: tuple[str, ...], problems: Mapping[tuple[str | None, ...], RowProblem]) -> ConflictingRows | None:
    return ConflictingRows(columns=columns, problems=problems) if problems else None


def _problems(program: Program, table: str, cells: Sequence[tuple[str | None, ...]]) -> dict[int, RowProblem]:
    """The problems of rows of a table by number; `cells`: as `State` has them."""
    tables: dict[str, Any] = {table: ColumnRows.of(table, cells)}
    return conflicts(program, State(**tables), table)


def _links(
    program: Program, kind: Literal["groups", "roles"], rows: DataFrame
) -> dict[tuple[str | None, ...], RowProblem]:
    """The links that lie on a cycle or make a chain too long."""
    table, member, container, prefix = LINK_COLUMNS[kind]
    links = sorted({(row[member], row[container]) for row in collected_links(rows, member, prefix)})
    without_scope = (None,) * (table == "assignments")
    wrong = _problems(program, table, [(*link, *without_scope) for link in links])
    return {links[number]: problem for number, problem in wrong.items()}


def _places(program: Program, rows: DataFrame) -> dict[tuple[str | None, ...], RowProblem]:
    """The places that are none: of entities in two places, in themselves, or in something that lies nowhere."""
    pairs = sorted(_pairs(rows))
    wrong = _problems(program, "entities", [(*pair, None) for pair in pairs])
    return {(*_parts(pairs[at][0]), *_parts(pairs[at][1])): problem for at, problem in wrong.items()}


def _values(program: Program, rows: DataFrame) -> dict[tuple[str | None, ...], RowProblem]:
    """The values of attributes that have more than one, and are no sets."""

    def of_sets(kind: str) -> list[str]:
        declared = program.attributes.user if kind == "user" else program.attributes.entity
        return [name for name, attribute in declared.items() if attribute.type == "set"]

    of_user: Column = fn.col("user").isNotNull()
    name = fn.col("attribute")
    is_set = (of_user & name.isin(of_sets("user"))) | (~of_user & name.isin(of_sets("entity")))
    key = ("user", "type", "path", "attribute")
    several = rows.filter(~is_set).groupBy(*key).agg(fn.collect_set("value").alias("values")).filter("size(values) > 1")
    keys: list[tuple[str | None, ...]] = []
    cells: list[tuple[str | None, ...]] = []
    for row in _collected(several, "give an attribute two values"):
        entity = f"{row['type']}:{row['path']}" if row["user"] is None else None
        keys += [tuple(row[column] for column in key)] * len(row["values"])
        cells += [(row["attribute"], value, row["user"], entity) for value in row["values"]]
    return {keys[number]: problem for number, problem in _problems(program, "attributes", cells).items()}


def _pairs(rows: DataFrame) -> list[tuple[str, str]]:
    keys = [fn.concat_ws(":", f"{prefix}type", f"{prefix}path") for prefix in ("", "parent_")]
    return [(row[0], row[1]) for row in _collected(rows.select(*keys).distinct(), "tell where entities lie")]


def _parts(key: str) -> tuple[str, str]:
    type_, _, path = key.partition(":")
    return type_, path


def _collected(rows: DataFrame, what: str) -> list[Any]:
    found = rows.limit(MOST_COLLECTED + 1).collect()
    if len(found) > MOST_COLLECTED:
        raise UsageError(f"more than {MOST_COLLECTED:,} rows {what}; {MOST_COLLECTED:,} is the most")
    return found
