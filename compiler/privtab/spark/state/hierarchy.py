"""Groups in groups and roles held by roles, in Spark: the rows that follow.

The links between groups and between roles are few; they are collected on the driver and shipped to the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as fn

from privtab.ir.semantics import HierarchyKind
from privtab.moments import FIRST, LAST, Window, edge_texts, moment
from privtab.request import Entity
from privtab.spark.state.schemas import CANONICAL, schema, windows_in
from privtab.spark.state.together import collected_links
from privtab.state.chains import GROUP, ROLE
from privtab.state.hierarchy import Texts, following

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Keys: TypeAlias = Callable[[Entity], list[str]]


def closed(kinds: Sequence[HierarchyKind], keys: Keys, tables: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The tables with the rows that follow. A table may be missing.

    `kinds`: the hierarchy of the policy. `keys`: the keys on the path of an entity; it is sent to the workers.
    """
    found = dict(tables)
    if "groups" in kinds and "memberships" in tables:
        links = collected_links(tables["memberships"], "user", GROUP)
        found["memberships"] = _longer("memberships", tables["memberships"], "group", links, keys)
    if "roles" in kinds and "assignments" in tables:
        links = collected_links(tables["assignments"], "principal", ROLE)
        found["assignments"] = _longer("assignments", tables["assignments"], "role", links, keys)
    return found


def _longer(table: str, rows: DataFrame, container: str, links: list[Any], keys: Keys) -> DataFrame:
    if not links:
        return rows
    prefix = ROLE if table == "assignments" else GROUP
    inner = sorted({str(link[0]).removeprefix(prefix) for link in links})
    window = windows_in(rows)
    columns = [*CANONICAL[table], *window]
    linked = [tuple(link[name] for name in columns) for link in links]
    worker = partial(_derived, table, linked, keys, columns)
    own = rows.select(*(f"`{name}`" for name in columns))
    some = own.filter(fn.col(container).isin(inner))
    return own.unionAll(some.mapInArrow(worker, schema(table, window))).distinct()


def _derived(
    table: str, links: list[tuple[Any, ...]], keys: Keys, columns: list[str], batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow`: the rows that follow from the rows of a table."""
    read = partial(_row, table)
    follow = following(table, map(read, links), keys)
    for batch in batches:
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        found = [_cells(table, cells, window, len(columns)) for cells, window in follow(map(read, rows))]
        arrays = [pa.array([row[at] for row in found], pa.string()) for at in range(len(columns))]
        yield pa.RecordBatch.from_arrays(arrays, names=columns)


def _row(table: str, row: tuple[Any, ...]) -> tuple[Texts, Window]:
    """A row as `State` has it, from canonical columns, and from `from` and `until` if the table has them."""
    width = len(CANONICAL[table])
    begin, end = row[width:] or (None, None)
    window = Window(FIRST if begin is None else moment(begin), LAST if end is None else moment(end))
    if table == "memberships":
        return row[:width], window
    principal, role, type_, path = row[:width]
    return (principal, role, None if type_ is None else f"{type_}:{path}"), window


def _cells(table: str, cells: Texts, window: Window, columns: int) -> tuple[str | None, ...]:
    """A row with canonical columns, in as many columns as its table has."""
    if table == "assignments":
        scope = cells[-1]
        cells = (*cells[:-1], *((None, None) if scope is None else scope.split(":", 1)))
    return (*cells, *edge_texts(window)[: columns - len(CANONICAL[table])])
