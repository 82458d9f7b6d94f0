"""Prepare raw rows for the workers that build shards, and compute a fingerprint of each root's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.spark.frames import union
from privtab.spark.state.schemas import TABLES as ALL_TABLES
from privtab.spark.state.schemas import entity_column, windows_in
from privtab.spark.state.shards import ATTRIBUTE, ENTITY, NOT_TEXT, RAW, SCOPE, TABLES
from privtab.state.raw import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from privtab.spark.state.read import Read
    from privtab.spark.state.sources import TableSource

LOST = 64
"""Number of buckets for invalid rows whose root entity is unknown."""


def root(program: Program, column: str, *others: str) -> Column:
    """The key of the root entity of an entity cell, or a number below LOST, as text, if it has none."""
    by_root: dict[str, list[str]] = {}
    for type_, chain in vocabulary(program).chains.items():
        by_root.setdefault(chain[0][0], []).append(type_)
    type_of = fn.substring_index(column, ":", 1)
    known: Column | None = None
    for root_type, types in by_root.items():
        condition, value = type_of.isin(types), fn.lit(f"{root_type}:")
        known = fn.when(condition, value) if known is None else known.when(condition, value)
    assert known is not None
    first = fn.expr(f"substring_index(substr(`{column}`, instr(`{column}`, ':') + 1), '/', 1)")
    found = fn.when(fn.col(column).contains(":"), fn.concat(known, first))
    lost = fn.pmod(fn.xxhash64(column, *others), fn.lit(LOST)).cast("string")
    return fn.coalesce(found, lost)


def scanned(
    read: Read,
    assignments: DataFrame | None,
    attributes: DataFrame | None,
    roots: list[str] | None = None,
    *,
    prints: bool = False,
) -> DataFrame | None:
    """Rows for `shards.root_state`, with the columns of `shards.INPUT`; restricted to `roots` if given.

    `assignments`, `attributes`: the valid rows without duplicates; `prints`: add hashes of the raw rows, which the workers sum up.
    """
    program = read.program
    frames: list[DataFrame] = []
    window = read.sources.window(*TABLES)
    for table in TABLES:
        frames += [_rows(program, source, window, prints=prints) for source in read.sources.tables.get(table, ())]
    if assignments is not None:
        scopes = assignments.filter("scope_type is not null")
        key = fn.concat_ws(":", "scope_type", "scope_path")
        pairs = scopes.select(key.alias("a"), fn.col("role").alias("b")).distinct()
        frames.append(_plain(program, pairs, SCOPE, window, prints=prints))
    if attributes is not None:
        values = attributes.filter("type is not null")
        key = fn.concat_ws(":", "type", "path")
        triples = values.select(key.alias("a"), fn.col("attribute").alias("b"), fn.col("value").alias("c"))
        frames.append(_plain(program, triples, ATTRIBUTE, window, prints=prints))
    if read.sources.entities is not None:
        listed = read.sources.entities.select(fn.col("entity").alias("a"), fn.lit(None).cast("string").alias("b"))
        frames.append(_plain(program, listed, ENTITY, window, prints=prints))
    if not frames:
        return None
    all_rows = union(*frames)
    return all_rows if roots is None else all_rows.filter(fn.col("root").isin(roots))


def _rows(program: Program, source: TableSource, window: Sequence[str], *, prints: bool) -> DataFrame:
    """The raw rows of one source."""
    table, columns = source.table, TABLES[source.table]
    col, none = fn.col, fn.lit(None).cast("string")
    part = (NOT_TEXT if source.not_text else RAW) + list(TABLES).index(table)
    raw = [*map(col, columns), *[none] * (4 - len(columns))]
    cells = [cell.alias(name) for name, cell in zip("abcd", raw, strict=True)]
    edges = [(col(name) if name in source.rows.columns else none).alias(name) for name in window]
    names = COLUMNS[table].names
    hash_ = _hash(table, (*names, *windows_in(source.rows)))
    hashes = [hash_, fn.xxhash64(hash_).alias("g")] if prints else []
    key = root(program, columns[0], *(name for name in names if name != columns[0])).alias("root")
    return source.rows.select(key, fn.lit(part).cast("tinyint").alias("part"), *cells, *edges, *hashes)


def _plain(program: Program, pairs: DataFrame, part: int, window: Sequence[str], *, prints: bool) -> DataFrame:
    none = fn.lit(None).cast("string")
    nothing = [fn.lit(None).cast("bigint").alias(name) for name in ("h", "g")] if prints else []
    return pairs.select(
        root(program, "a").alias("root"), fn.lit(part).cast("tinyint").alias("part"), "a", "b",
        fn.col("c") if "c" in pairs.columns else none.alias("c"), none.alias("d"), *(none.alias(name) for name in window), *nothing,
    )  # fmt: skip


def fingerprints(read: Read, tables: Sequence[str] = ALL_TABLES) -> DataFrame | None:
    """For the raw rows of each root, and of each table without shards (`root` is the table's name): their number and four sums.

    The sums are over the halves of a 64-bit hash of every row, and of the hash of that hash, so that changes that cancel out in one
    do not in the other. They do not depend on the order of rows, and repeated rows count. `tables`: only these and the entities;
    returns None if there are none. Sums over other tables may be added.
    """
    program = read.program
    frames: list[DataFrame] = []
    for table in tables:
        for source in read.sources.tables.get(table, ()):
            frames += _hashed(program, table, source.rows)
    if read.sources.entities is not None:
        frames += _hashed(program, "entities", read.sources.entities)
    if not frames:
        return None
    hashed = union(*frames).withColumn("g", fn.xxhash64("h"))
    low, high = "{} & 4294967295", "shiftrightunsigned({}, 32)"
    sums = [fn.sum(fn.expr(half.format(h))).alias(f"{h}{n}") for h in ("h", "g") for n, half in enumerate((low, high))]
    counted = [fn.sum(fn.expr("case when counts then 1L else 0L end")).alias("rows")]
    return hashed.groupBy("root").agg(*counted, *sums)


def _hash(table: str, columns: Sequence[str]) -> Column:
    """The hash of a raw row."""
    cells = [fn.coalesce(fn.col(c), fn.lit("\x00")) for c in columns]
    return fn.xxhash64(fn.lit(table), *cells).alias("h")


def _hashed(program: Program, table: str, rows: DataFrame) -> list[DataFrame]:
    # The list of entities that exist is no table of the state: it does not say where they lie.
    columns = ("entity",) if table == "entities" else COLUMNS[table].names
    title, hash_ = fn.lit(table), _hash(table, (*columns, *windows_in(rows)))
    place = entity_column(table)
    found: list[DataFrame] = []
    counts = fn.lit(table in TABLES).alias("counts")
    if place is not None:
        relevant = rows if table not in ("assignments", "attributes") else rows.filter(f"coalesce({place}, '') != ''")
        others = [c for c in columns if c != place]
        found.append(relevant.select(root(program, place, *others).alias("root"), counts, hash_))
    if table not in TABLES and table != "entities":
        found.append(rows.select(title.alias("root"), counts, hash_))
    return found
