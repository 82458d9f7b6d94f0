"""Read logs as columns: batches of rows of one schema, with bounded memory, and an account of what else was there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import FileError, UsageError, no_collection, note_read, strict_loads
from privtab_logs import opa
from privtab_logs.schema import COLUMNS, MALFORMED, NO_ANSWER, SCHEMA, Reading, Row
from privtab_logs.values import values
from privtab_logs.wrapped import Unwrapper
from privtab_server.addresses import STORE

if TYPE_CHECKING:
    from privtab_logs.wrapped import Entries

ROWS = 1 << 16
"""Rows of a batch."""
_TIME, _PROBLEM = SCHEMA.get_field_index("time"), SCHEMA.get_field_index("problem")
_LISTS = ("groups", "active_roles", "flags")
_MORE = (*_LISTS, "with", "attributes")
_BACKWARDS = 1_000_000
_PARQUET = b"PAR1"


def read(*logs: str | os.PathLike[str], reading: Reading | None = None) -> pa.Table:
    """All decisions of logs as one Arrow table. `logs`: files, folders or `store:URL`, the journal of a store; `reading`: takes the account of what else was there.

    Raises FileError for a file that does not exist or cannot be opened, and for logs without any file.
    """
    return pa.Table.from_batches(batches(logs, Reading() if reading is None else reading), SCHEMA)


def batches(
    logs: Iterable[str | os.PathLike[str]], reading: Reading, entries: Entries = opa.rows
) -> Iterator[pa.RecordBatch]:
    """The decisions of logs in batches, file by file. `entries`: reads one entry. Raises as `read`."""
    listed = list(map(str, logs))
    for store in [location for location in listed if location.startswith(STORE)]:
        yield from _in_batches(_of_store(store, reading), reading)
    others = [location for location in listed if not location.startswith(STORE)]
    for path in files(others) if others or not listed else ():
        if path.name.startswith(".") and path.suffix == ".crc":
            reading.other["file of check sums"] += 1
            continue
        if not path.is_file() and path not in map(Path, others):  # only what is named may be a pipe
            reading.damage(f"{path}:0", "it is no file, or a link that leads to none")
            continue
        note_read(path)
        try:
            with path.open("rb") as file:
                yield from batches_of(file, str(path), reading, entries)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror or error}") from error


def _of_store(location: str, reading: Reading) -> Iterator[Row]:
    """The decisions of a store at `store:URL`, each of whose changes that somebody asked for was decided, and allowed.

    `state_revision` is the number of the change before which each was made.
    """
    from privtab_server.store.journal import Journal

    journal = Journal.open(location)
    reading.files += 1
    for entry in journal.log():
        if not {"subject", "action", "resource"} <= entry.request.keys():
            reading.other["change that was not decided"] += 1
            continue
        event = {
            "decision_id": entry.request_id or str(entry.number),
            "path": f"privtab/{journal.system}/decision",
            "input": entry.request,
            "result": entry.decision,
            "timestamp": entry.at,
        }
        for row in opa.rows(event, f"{location}:{entry.number}", reading) or ():
            cells = dict(zip(SCHEMA.names, row, strict=True))
            yield tuple((cells | {"origin": "store", "state_revision": str(entry.number - 1)}).values())


def files(logs: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the files of logs; files of a folder come by name. Raises FileError."""
    found: list[Path] = []
    for path in map(Path, logs):
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if not file.is_dir())
            if not inside:
                raise FileError(f"no log in the folder {path}")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise FileError(f"no such log: {path}")
    if not found:
        raise UsageError("no log is given")
    return found


def batches_of(
    file: BufferedReader, path: str, reading: Reading, entries: Entries = opa.rows
) -> Iterator[pa.RecordBatch]:
    """The decisions of one file in batches."""
    reading.files += 1
    if file.peek(len(_PARQUET)).startswith(_PARQUET):
        yield from _of_parquet(file, path, reading)
        return
    rows = Unwrapper(entries, reading).rows(values(file, path, reading), path)
    yield from _in_batches(rows, reading)


def _in_batches(rows: Iterator[Row], reading: Reading) -> Iterator[pa.RecordBatch]:
    while True:
        with no_collection():
            found = batch(islice(rows, ROWS))
        if not len(found):
            return
        yield _counted(found, reading)


def batch(rows: Iterator[Row]) -> pa.RecordBatch:
    """Rows as columns."""
    columns: list[list[Any]] = [[] for _ in COLUMNS]
    # Few rows at a time, which a processor keeps at hand.
    while part := list(islice(rows, 1000)):
        for column, cells in zip(columns, zip(*part, strict=True), strict=True):
            column.extend(cells)
    arrays = [pa.array(cells, type_) for cells, (_, type_, _) in zip(columns[1:], COLUMNS[1:], strict=True)]
    return pa.RecordBatch.from_arrays([_times(columns[0]), *arrays], schema=SCHEMA)


def _counted(found: pa.RecordBatch, reading: Reading) -> pa.RecordBatch:
    reading.decisions += len(found)
    wrong = found.column(_PROBLEM)
    if wrong.null_count < len(wrong):
        counts = pc.value_counts(wrong.drop_null())
        reading.problems.update({entry["values"].as_py(): entry["counts"].as_py() for entry in counts})
    reading.untimed += found.column(_TIME).null_count
    times = found.column(_TIME).drop_null().cast(pa.int64()).to_numpy()
    reading.backwards += int((times[1:] < times[:-1] - _BACKWARDS).sum())
    return found


def _times(cells: list[str | None]) -> pa.Array:
    """Texts of RFC 3339 as times; null for what is none."""
    texts = pa.array(cells, pa.string())
    try:
        return texts.cast(pa.timestamp("ns", "UTC")).cast(SCHEMA[_TIME].type, safe=False)
    except pa.ArrowInvalid:
        single = len(cells) == 1
        return pa.nulls(1, SCHEMA[_TIME].type) if single else pa.concat_arrays([_times([text]) for text in cells])


def _of_parquet(file: BinaryIO, path: str, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Rows that were read before and kept as Parquet."""
    import pyarrow.parquet as pq

    try:
        for found in pq.ParquetFile(file).iter_batches(ROWS):
            rows = pa.RecordBatch.from_arrays([found[name].cast(t) for name, t, _ in COLUMNS], schema=SCHEMA)
            yield _counted(_checked(rows), reading)
    except (KeyError, pa.ArrowException) as error:
        reading.damage(f"{path}:0", f"not Parquet of decisions: {error}")


def _checked(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that anything may have written: what cannot be decided again has a problem."""
    nameless = pc.or_(pc.is_null(rows["user"]), pc.is_null(rows["action"]))
    wrong = pc.or_(nameless, pc.invert(pc.match_substring(rows["resource"], ":")).fill_null(fill_value=True))
    more = [name for name in _MORE if rows[name].null_count < len(rows)]
    if more:
        bad = [not _well_formed(row) for row in rows.select(more).to_pylist()]
        wrong = pc.or_(wrong, pa.array(bad, pa.bool_()))
    unanswered = pc.if_else(pc.is_null(rows["allowed"]), NO_ANSWER, pa.scalar(None, pa.string()))
    problem = pc.coalesce(rows["problem"], pc.if_else(wrong, MALFORMED, unanswered))
    return rows.set_column(_PROBLEM, SCHEMA.field(_PROBLEM), problem)


def _well_formed(row: Mapping[str, Any]) -> bool:
    """Return whether the cells are what a request can say besides a user, an operation and an entity."""
    pairs = row.get("with") or []
    names = [name for column in _LISTS for name in row.get(column) or ()] + [cell for pair in pairs for cell in pair]
    try:
        more = strict_loads(row.get("attributes") or "{}")
    except ValueError:
        return False
    parts = [more] if not isinstance(more, dict) else [*more.values()]
    objects = more.get("with") if isinstance(more, dict) else None
    parts += objects.values() if isinstance(objects, dict) else ()
    return (
        all(isinstance(name, str) for name in names)
        and all(":" in entity for _, entity in pairs)
        and len(dict(pairs)) == len(pairs)
        and all(isinstance(part, dict) for part in parts)
        and not opa.is_deeper(more, opa.DEEPEST)
    )
