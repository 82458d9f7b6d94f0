"""The rows of a root entity in one worker: checked by the code for files (`row_checks`), compared with each other, as a state by columns.

Before, raw rows are prepared for these workers, and a fingerprint of each root's rows is computed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as fn

from privtab.base import WINDOW_COLUMNS, Window, array_truth
from privtab.ir import Program, vocabulary
from privtab.state import TABLE_COLUMNS, CodedColumn, ColumnIndex, ColumnRows, State
from privtab_spark.frames import union
from privtab_spark.state import row_checks
from privtab_spark.state.schemas import TABLES as ALL_TABLES
from privtab_spark.state.schemas import entity_column, windows_in
from privtab_spark.state.tables import windows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from privtab_spark.state.read import Read
    from privtab_spark.state.sources import TableSource


TABLES: Mapping[str, tuple[str, ...]] = {
    "grants": ("entity", "grantee", "privilege", "effect"),
    "owners": ("entity", "owner"),
    "members": ("of", "user"),
}
"""The tables whose rows are stored in shards, and their columns, that with the entity first."""
AT_ONCE = 1_000_000
"""Rows that are checked at once."""
SCOPE, ENTITY, ATTRIBUTE, RAW = range(4)
"""Kinds of input rows; an unchecked row of the n-th of TABLES is RAW + n."""
NOT_TEXT = RAW + len(TABLES)
"""The same of sources that have cells which are not text."""
INPUT = ("root", "part", "a", "b", "c", "d")
"""Scopes: entity, role; listed entities: entity; attributes: entity, name, value; unchecked rows: their raw cells."""


Findings: TypeAlias = list[dict[str, Any]]
"""The findings about the rows of a shard, by the columns of `schemas.FINDINGS` without `name` and `source`."""


def finding(
    table: str, code: str, severity: str, message: str, help_: str | None, row: str, rows: int = 1
) -> dict[str, Any]:
    """One of them; `row` is JSON text."""
    own = {"code": code, "severity": severity, "message": message, "help": help_}
    return {"table": table, **own, "row": row, "rows": rows}


def by_root(table: Any) -> Iterator[tuple[str, Any]]:
    """Split the rows of a partition by root, with names dictionary-encoded and the order of rows kept."""
    for position, field_ in enumerate(table.schema):
        if field_.name == "a":
            # Nearly all entities are distinct: encoding them for each root takes a fraction of the time of encoding all at once.
            entities = table.column(position).cast(pa.large_string()).combine_chunks()
            table = table.set_column(position, "a", entities)
        elif field_.type == pa.string():
            encoded = table.column(position).dictionary_encode()
            encoded = encoded.combine_chunks() if encoded.num_chunks > 1 else encoded
            table = table.set_column(position, field_.name, encoded)
    encoded = table.column("root").chunk(0) if table.num_rows else pa.array([], pa.string()).dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], table
        return
    # Sorting 16-bit numbers takes a third of the time.
    codes = np.asarray(encoded.indices).astype(np.int16 if len(names) < 2**15 else np.int32)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    table = table.combine_chunks()
    for number, name in enumerate(names):
        yield name, table.take(pa.array(order[bounds[number] : bounds[number + 1]]))


def root_state(
    program: Program, table: Any, not_text: Mapping[str, Mapping[str, str]], findings: Findings, orphans: str | None
) -> State:
    """The rows of one root without duplicates; `orphans`: `report` or `quarantine` unlisted entities; None: none are listed.

    Of the assignments only the roles and the scopes below the root are there, which is what its shard depends on.
    """
    part = np.asarray(table.column("part").combine_chunks())
    listed = None if orphans is None else table.filter(pa.array(part == ENTITY)).column("a")
    rows: dict[str, Any] = {}
    windows: dict[str, Any] = {}
    for number, name in enumerate(TABLES):
        columns = _checked(program, table, part, number, not_text.get(name, {}), findings)
        columns = _distinct(name, columns, listed, orphans, findings)
        edges = [columns.pop(edge, None) for edge in WINDOW_COLUMNS]
        if any(edges):
            rows_without = [None] * len(next(iter(columns.values())))
            windows[name] = windows_of(*(rows_without if edge is None else list(edge) for edge in edges))
        rows[name] = ColumnRows(name, columns)
    scopes, values = (_columns(table.filter(pa.array(part == kind)), "abc") for kind in (SCOPE, ATTRIBUTE))
    none = CodedColumn.without_texts(len(values["a"]))
    of_nobody = CodedColumn.repeated("user:", len(scopes["a"]))
    return State(
        **rows,
        assignments=ColumnRows("assignments", {"principal": of_nobody, "role": scopes["b"], "scope": scopes["a"]}),
        attributes=ColumnRows(
            "attributes", {"attribute": values["b"], "value": values["c"], "user": none, "entity": values["a"]}
        ),
        windows=windows,
    )


def granted(program: Program, state: State, findings: Findings) -> dict[str, int]:
    """The numbers of privileges that are allowed and denied at any time; privileges that are both are reported."""
    rows = state.only({t: [row for row, own in enumerate(of) if own == Window()] for t, of in state.windows.items()})
    written = {name: texts_of(rows, "grants", name) for name in TABLE_COLUMNS["grants"].names}
    names, effects, privileges, keys = ColumnIndex.given(program, written).values()
    numbers = CodedColumn.numbered_rows((privileges, keys, names))
    denied = effects.codes == next((code for code, name in enumerate(effects.names) if name == "deny"), -1)
    # With counts, numpy sorts; without, it builds a hash table first, which takes four to ten times as long.
    allowed_once, denied_once = (np.unique(numbers[of], return_counts=True)[0] for of in (~denied, denied))
    both = denied_once[np.isin(denied_once, allowed_once)]
    among = np.flatnonzero(denied & np.isin(numbers, both))
    first = among[np.unique(numbers[among], return_index=True)[1]].tolist()
    cells = (column.take(first) for column in (names, privileges, keys))
    for grantee, privilege, entity in zip(*cells, strict=True):
        row = {"grantee": grantee, "effect": "deny", "privilege": privilege, "entity": entity}
        message = f"`{grantee}` is allowed and denied `{privilege}` here"
        findings.append(
            finding("grants", "S163", "warning", message, "the denial counts: leave one of them out", _json(row))
        )
    return {"allow": len(allowed_once), "deny": len(denied_once)}


def texts_of(state: State, table: str, name: str) -> CodedColumn:
    """A column of a state that `root_state` made."""
    found = state.column(table, name)
    assert isinstance(found, CodedColumn)
    return found


def _checked(
    program: Program, table: Any, part: Any, number: int, not_text: Mapping[str, str], findings: Findings
) -> dict[str, CodedColumn]:
    """The columns of the valid rows of one of TABLES, by its number; findings are recorded."""
    name, names = list(TABLES.items())[number]
    window = TABLE_COLUMNS[name].window if WINDOW_COLUMNS[0] in table.column_names else ()
    found: list[Mapping[str, CodedColumn]] = []
    for first, kinds in ((RAW, {}), (NOT_TEXT, not_text)):
        rows = table.filter(pa.array(part == first + number))
        rows = rows.select([*"abcd"[: len(names)], *window]).rename_columns([*names, *window])
        for start in range(0, rows.num_rows, AT_ONCE):
            raw = rows.slice(start, AT_ONCE)
            checked = row_checks.check(
                program, name, kinds, {c: raw.column(c).combine_chunks() for c in raw.column_names}
            )
            _note(name, checked, findings)
            if checked.rows:
                found.append(checked.columns)
    present = [
        c for c in TABLE_COLUMNS[name].all if c in TABLE_COLUMNS[name].names or any(c in columns for columns in found)
    ]
    return {c: _joined([columns.get(c, len(columns[names[0]])) for columns in found]) for c in present}


def _joined(columns: Sequence[CodedColumn | int]) -> CodedColumn:
    """Columns one after the other; a number is a column of so many rows without a text."""
    listed = [CodedColumn.without_texts(c) if isinstance(c, int) else c for c in columns]
    return reduce(CodedColumn.followed_by, listed) if listed else CodedColumn.of_texts([])


def _note(table: str, checked: row_checks.CheckedBatch, findings: Findings) -> None:
    counted = Counter(
        (found.code, found.severity, found.message, found.help, cells)
        for cells, own in checked.findings
        for found in own
    )
    for (code, severity, message, advice, cells), rows in counted.items():
        findings.append(finding(table, code, severity, message, advice, cells, rows))


def _distinct(
    table: str, columns: dict[str, CodedColumn], listed: Any, orphans: str | None, findings: Findings
) -> dict[str, CodedColumn]:
    """The rows of a table without duplicates; duplicates and orphans are reported, quarantined orphans left out."""
    numbers = CodedColumn.numbered_rows(columns.values())
    ordered = np.sort(numbers)
    is_repeated = np.isin(numbers, ordered[1:][ordered[1:] == ordered[:-1]])
    among = np.flatnonzero(is_repeated)
    _, first, counts = np.unique(numbers[among], return_index=True, return_counts=True)
    first = among[first]
    count_of = dict(zip(first.tolist(), counts.tolist(), strict=True))
    kept = ~is_repeated
    kept[first] = True

    def note(rows: npt.NDArray[np.int64], code: str, severity: str, message: str, advice: str) -> None:
        taken = {name: column.take(rows.tolist()) for name, column in columns.items()}
        for position, row in enumerate(rows.tolist()):
            cells = {name: str(texts[position]) for name, texts in taken.items() if texts[position] is not None}
            count = count_of.get(row, 1) - (code == "S160")
            findings.append(finding(table, code, severity, message.format(**cells), advice, _json(cells), count))

    note(first, "S160", "warning", f"the row says the same as another of `{table}`", "leave it out")
    if listed is not None:
        entity = TABLES[table][0]
        is_lost = ~array_truth(pc.is_in(columns[entity].array, listed.cast(pa.string())))
        lost = kept & np.append(is_lost, False)[columns[entity].codes]
        severity = "error" if orphans == "quarantine" else "warning"
        message = f"`{{{entity}}}` is not among the entities"
        note(np.flatnonzero(lost), "S114", severity, message, "remove the row, or name the entity")
        if orphans == "quarantine":
            kept &= ~lost
    return columns if kept.all() else {name: column.rows(kept) for name, column in columns.items()}


def _columns(rows: Any, names: str) -> dict[str, CodedColumn]:
    return {name: CodedColumn.of(rows.column(name)) if len(rows) else CodedColumn.of_texts([]) for name in names}


def _json(row: Mapping[str, str | None]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


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
    names = TABLE_COLUMNS[table].names
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
    columns = ("entity",) if table == "entities" else TABLE_COLUMNS[table].names
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
