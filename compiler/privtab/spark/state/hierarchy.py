"""Groups in groups and roles held by roles, in Spark: the rows that follow.

The links between groups and between roles are few; they are collected on the driver and shipped to the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as fn

from privtab.ir.nodes import HierarchyKind
from privtab.moments import FIRST, LAST, Window, edge_texts, moment
from privtab.request import Entity
from privtab.spark.state.schemas import CANONICAL, schema, windows_in
from privtab.spark.state.together import collected_links
from privtab.state.chains import GROUP, ROLE, RoleLimits, TransitiveContainers, joined, roles_from

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
    derive = _assignments(links, keys) if table == "assignments" else _memberships(links)
    for batch in batches:
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        found = [(*cells, *edges) for row in rows for cells, edges in derive(row)]
        arrays = [pa.array([row[at] for row in found], pa.string()) for at in range(len(columns))]
        yield pa.RecordBatch.from_arrays(arrays, names=columns)


Derived = Iterator[tuple[tuple[str | None, ...], tuple[str | None, ...]]]
"""The cells of rows that follow, and the edges of their windows, if the table has any."""


def _memberships(links: list[tuple[Any, ...]]) -> Callable[[tuple[Any, ...]], Derived]:
    above: dict[str, list[tuple[str, Window]]] = {}
    for member, group, *edges in links:
        above.setdefault(member, []).append((f"{GROUP}{group}", _window(edges)))
    reach = TransitiveContainers(above, joined)

    def derive(row: tuple[Any, ...]) -> Derived:
        member, group, *edges = row
        for container, window in reach.through(f"{GROUP}{group}", _window(edges)):
            yield (member, container.removeprefix(GROUP)), edge_texts(window)[: len(edges)]

    return derive


def _assignments(links: list[tuple[Any, ...]], keys: Keys) -> Callable[[tuple[Any, ...]], Derived]:
    role_links = ((p, role, RoleLimits(_key(type_, path), _window(edges))) for p, role, type_, path, *edges in links)
    reach = roles_from(role_links, keys)

    def derive(row: tuple[Any, ...]) -> Derived:
        principal, outer, type_, path, *edges = row
        for role, how in reach.through(f"{ROLE}{outer}", RoleLimits(_key(type_, path), _window(edges))):
            place = (None, None) if how.scope is None else tuple(how.scope.split(":", 1))
            yield (principal, role.removeprefix(ROLE), *place), edge_texts(how.window)[: len(edges)]

    return derive


def _window(edges: Sequence[str | None]) -> Window:
    """The window of a row; always for a table without windows."""
    begin, end = edges or (None, None)
    return Window(FIRST if begin is None else moment(begin), LAST if end is None else moment(end))


def _key(type_: str | None, path: str | None) -> str | None:
    return None if type_ is None else f"{type_}:{path}"
