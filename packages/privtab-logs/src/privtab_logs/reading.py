"""Read logs as columns: batches of rows of one schema, with bounded memory, and an account of what else was there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import FileError, UsageError, no_collection, note_read, strict_loads
from privtab_logs import opa
from privtab_logs.repeated import Repeats
from privtab_logs.schema import COLUMNS, MALFORMED, NO_ANSWER, SCHEMA, VARYING, Reading, Row, SharedRow, alone
from privtab_logs.values import values
from privtab_logs.wrapped import Unwrapper
from privtab_server.addresses import STORE

if TYPE_CHECKING:
    from privtab_logs.wrapped import Entries

ROWS = 1 << 16
"""Rows of a batch."""
_PART = 1 << 13
"""Rows that become columns together: so few that a processor keeps them at hand."""
_TIME, _PROBLEM = SCHEMA.get_field_index("time"), SCHEMA.get_field_index("problem")
_LISTS = ("groups", "active_roles", "flags")
_MORE = (*_LISTS, "with", "attributes")
_READ_AS = {"time": pa.string()}
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
        yield from _in_batches(map(alone, _of_store(store, reading)), reading)
    repeats = Repeats()
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
                yield from batches_of(file, str(path), reading, entries, repeats)
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
    file: BufferedReader, path: str, reading: Reading, entries: Entries = opa.rows, repeats: Repeats | None = None
) -> Iterator[pa.RecordBatch]:
    """The decisions of one file in batches. `repeats`: entries of other files, which this one may repeat."""
    reading.files += 1
    if file.peek(len(_PARQUET)).startswith(_PARQUET):
        yield from _of_parquet(file, path, reading)
        return
    found = values(file, path, reading, (repeats or Repeats()) if entries is opa.rows else None)
    yield from _in_batches(chain.from_iterable(Unwrapper(entries, reading).rows(found, path)), reading)


def _in_batches(rows: Iterator[SharedRow], reading: Reading) -> Iterator[pa.RecordBatch]:
    while True:
        with no_collection():
            parts = [batch(part) for _ in range(ROWS // _PART) if (part := [*islice(rows, _PART)])]
        if not parts:
            return
        yield _counted(pa.concat_batches(parts), reading)


def batch(rows: Sequence[SharedRow]) -> pa.RecordBatch:
    """Rows as columns."""
    shared, own, positions = zip(*rows, strict=True)
    distinct = {id(row): row for row in shared}
    cells = zip(*distinct.values(), strict=True)
    arrays = {
        name: pa.array(column, _READ_AS.get(name, type_))
        for (name, type_, _), column in zip(COLUMNS, cells, strict=True)
    }
    if len(distinct) < len(rows):
        numbers = dict(zip(distinct, range(len(distinct)), strict=True))
        places = pa.array([numbers[id(row)] for row in shared])
        arrays = {name: array.take(places) for name, array in arrays.items()}
    for name, column in zip((*VARYING, "position"), (*zip(*own, strict=True), positions), strict=True):
        texts = pa.array(column, pa.string())
        if texts.null_count < len(texts):
            arrays[name] = _with_own(name, texts, arrays[name])
    arrays["time"] = _times(arrays["time"])
    return pa.RecordBatch.from_arrays([*arrays.values()], schema=SCHEMA)


def _with_own(name: str, own: pa.Array, shared: pa.Array) -> pa.Array:
    """The cells of a column whose rows share some of it."""
    if name == "resource":
        own = pc.binary_join_element_wise(shared, own, "")
    elif name == "latency_us":
        own = pc.divide(own.cast(pa.int64()), 1000)
    return pc.coalesce(own, shared)


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


def _times(texts: pa.Array) -> pa.Array:
    """Texts of RFC 3339 as times; null for what is none."""
    try:
        return texts.cast(pa.timestamp("ns", "UTC")).cast(SCHEMA[_TIME].type, safe=False)
    except pa.ArrowInvalid:
        single = len(texts) == 1
        alone = [] if single else [_times(texts.slice(at, 1)) for at in range(len(texts))]
        return pa.nulls(1, SCHEMA[_TIME].type) if single else pa.concat_arrays(alone)


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
