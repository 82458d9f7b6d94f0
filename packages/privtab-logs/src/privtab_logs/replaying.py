"""Decide what was logged again: which decisions another policy or state would change, and which their own moment does not explain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab_logs.deciding import Decider, distinct_rows
from privtab_logs.moments import Moments, Unknown
from privtab_logs.schema import MASKED, OTHER_SYSTEM, SCHEMA, Reading

Kind: TypeAlias = Literal["lost", "gained", "unexplained"]
KINDS: tuple[Kind, ...] = ("lost", "gained", "unexplained")
"""Allowed then and denied now; denied then and allowed now; answered otherwise than the policy and the state of its moment do."""

REVISIONS = ("policy_revision", "state_revision")
_KEYS = ("kind", "recorded", "then", "now", "user", "action", "resource", "more", *REVISIONS)
_HOW = (("requests", "sum"), ("first", "min"), ("last", "max"), ("decision_id", "first"), ("position", "first"))
_MORE = ("subject_type", "groups", "active_roles", "with", "flags", "attributes")
_ANSWERS = ("recorded", "then", "now")
QUESTIONS = pa.schema(
    [
        *((name, pa.bool_() if name in _ANSWERS else pa.string()) for name in _KEYS),
        ("requests", pa.int64()),
        *((name, SCHEMA.field("time").type) for name in ("first", "last")),
        *((name, pa.string()) for name in ("decision_id", "position")),
    ]
)
"""The distinct questions whose answers differ: `state_revision` names the state of the moment, by a revision or the number of a change, `more` has the rest of the request as JSON, `decision_id` and `position` are of any of the `requests`."""
_PENDING = 1 << 16
MOST_REASONS = 100
"""Reasons for which decisions are not replayed; further ones are counted together."""


@dataclass(slots=True, kw_only=True)
class Replay:
    """The result of a replay."""

    reading: Reading
    replayed: int = 0
    allowed: int = 0
    """Replayed decisions that were recorded as allowed."""
    not_replayed: dict[str, int] = field(default_factory=dict)
    """Decisions that were not decided again, by why."""
    first: int | None = None
    last: int | None = None
    """The first and the last time of replayed decisions, in microseconds since 1970."""
    left_out: set[str] = field(default_factory=set)
    """Wrong rows of states that were left out, since they can only allow."""
    questions: pa.Table = field(default_factory=QUESTIONS.empty_table)
    """The differences, as QUESTIONS."""

    def count(self, kind: Kind) -> int:
        """Return the number of decisions that differ in this way."""
        found: int = pc.sum(self.of(kind)["requests"]).as_py() or 0
        return found

    def of(self, kind: Kind) -> pa.Table:
        """The differences of one kind, the most frequent first."""
        found = self.questions.filter(pc.equal(self.questions["kind"], kind))
        order = [("requests", "descending"), *((name, "ascending") for name in ("user", "action", "resource", "more"))]
        return found.sort_by(order)

    def account(self) -> dict[str, Any]:
        """All but the differences, as JSON."""
        counts = {name: getattr(self, name) for name in ("replayed", "allowed", "not_replayed", "first", "last")}
        return {"read": self.reading.to_json(), **counts, "left_out": sorted(self.left_out)}

    def take(self, parts: pa.Table, account: str) -> None:
        """Take over what was found in parts: their differences, and rows of the kind `account` with the JSON of the rest."""
        told = pc.equal(parts["kind"], account)
        for part in map(json.loads, parts["more"].filter(told).to_pylist()):
            self.reading.add(part["read"])
            self.replayed += part["replayed"]
            self.allowed += part["allowed"]
            self.left_out.update(part["left_out"])
            for why, number in part["not_replayed"].items():
                self.skip(why, number)
            self.cover(part["first"], part["last"])
        self.questions = grouped(parts.filter(pc.invert(told)), _KEYS, _HOW)

    def cover(self, first: int | None, last: int | None) -> None:
        """Extend the time of replayed decisions."""
        self.first = min((time for time in (self.first, first) if time is not None), default=None)
        self.last = max((time for time in (self.last, last) if time is not None), default=None)

    def skip(self, why: str, number: int) -> None:
        """Count decisions that are not decided again."""
        if number:
            if why not in self.not_replayed and len(self.not_replayed) >= MOST_REASONS:
                why = "for other reasons"
            self.not_replayed[why] = self.not_replayed.get(why, 0) + number


def replay(
    batches: Iterable[pa.RecordBatch], moments: Moments, *, system: str | None = None, reading: Reading | None = None
) -> Replay:
    """Decide batches of logged decisions again. `system`: the package in the log whose decisions count; default: the policy's name."""
    package = system or moments.new.program.system
    found = Replay(reading=reading or Reading())
    parts = (differences for batch in batches for differences in _of_batch(batch, moments, package, found))
    found.questions = merged(parts, QUESTIONS, _KEYS, _HOW, most=_PENDING)
    found.left_out |= moments.left_out
    return found


def usable(batch: pa.RecordBatch, package: str, skip: Callable[[str, int], None]) -> pa.RecordBatch:
    """The decisions of one system that can be decided again; `skip` gets the number of the others, and the reason."""
    ours = pc.equal(batch["system"], package).fill_null(fill_value=True)  # logs of other systems name none
    skip(OTHER_SYSTEM, len(batch) - (pc.sum(ours).as_py() or 0))
    for entry in pc.value_counts(batch["problem"].filter(ours).drop_null()):
        skip(entry["values"].as_py(), entry["counts"].as_py())
    chosen = pc.and_(ours, batch["problem"].is_null())
    return batch if pc.all(chosen).as_py() else batch.filter(chosen)


def _of_batch(batch: pa.RecordBatch, moments: Moments, package: str, found: Replay) -> Iterator[pa.Table]:
    rows = usable(batch, package, found.skip)
    if not len(rows):
        return
    states = moments.state_labels(rows)
    for (policy, state), positions in _moments_of(rows["policy_revision"], states):
        part = rows if len(positions) == len(rows) else rows.take(pa.array(positions))
        try:
            then, now = moments.then(policy, state), moments.now(policy, state)
        except Unknown as error:
            found.skip(f"unknown moment: {error}", len(part))
            continue
        deciders = [decider for decider in (then, now) if decider is not None]
        if any(decider.hidden_by_mask for decider in deciders):
            part = without(part, part["masked"].is_valid(), MASKED, found.skip)
        for decider in deciders:
            if decider.missing:
                part = without(part, decider.lacks_shards(part), "the shard of the state is not known", found.skip)
        if any(decider.timed for decider in deciders):
            part = without(part, part["time"].is_null(), "no time, and rows of the state hold for a time", found.skip)
        if len(part):
            yield _differences(part, state, then, now, found)


def without(rows: pa.RecordBatch, chosen: pa.Array, why: str, skip: Callable[[str, int], None]) -> pa.RecordBatch:
    """Rows without some that cannot be decided, which `skip` gets."""
    skip(why, pc.sum(chosen).as_py() or 0)
    return rows.filter(pc.invert(chosen)) if pc.any(chosen).as_py() else rows


def _moments_of(policies: pa.Array, states: pa.Array) -> Iterator[tuple[tuple[str | None, str | None], Any]]:
    """The pairs of revisions that occur, each with the positions of its rows."""
    encoded = [column.dictionary_encode(null_encoding="encode") for column in (policies, states)]
    names = [column.dictionary.to_pylist() for column in encoded]
    codes = [column.indices.to_numpy(zero_copy_only=False) for column in encoded]
    code = codes[0].astype(np.int64) * len(names[1]) + codes[1]
    for number in np.unique(code).tolist():
        yield (names[0][number // len(names[1])], names[1][number % len(names[1])]), np.flatnonzero(code == number)


def _differences(
    rows: pa.RecordBatch, state: str | None, then: Decider | None, now: Decider, found: Replay
) -> pa.Table:
    recorded: npt.NDArray[np.bool_] = rows["allowed"].to_numpy(zero_copy_only=False).astype(np.bool_)
    distinct = distinct_rows(rows)
    before = recorded if then is None else then.decide(rows, distinct)
    after = now.decide(rows, distinct)
    found.replayed += len(rows)
    found.allowed += int(recorded.sum())
    span = pc.min_max(rows["time"].cast(pa.int64())).as_py()
    found.cover(span["min"], span["max"])
    kinds = np.where(before != recorded, 2, np.where(before & ~after, 0, np.where(~before & after, 1, -1)))
    positions = np.flatnonzero(kinds >= 0)
    part = rows.take(pa.array(positions))
    columns = {
        "kind": pa.array(list(KINDS)).take(pa.array(kinds[positions])),
        "recorded": pa.array(recorded[positions]),
        "then": pa.array(before[positions]),
        "now": pa.array(after[positions]),
        "more": pa.array(more(part), pa.string()),
        "state_revision": pa.repeat(pa.scalar(state, pa.string()), len(positions)),
        "requests": pa.array(np.ones(len(positions), np.int64)),
        "first": part["time"],
        "last": part["time"],
    }
    arrays = [columns[name] if name in columns else part[name] for name in QUESTIONS.names]
    return grouped(pa.Table.from_arrays(arrays, schema=QUESTIONS), _KEYS, _HOW)


def more(rows: pa.RecordBatch) -> Iterator[str | None]:
    """Yield the rest of each request besides a user, an operation and a resource, as JSON."""
    names = [name for name in _MORE if rows[name].null_count < len(rows)]
    if not names:
        yield from repeat(None, len(rows))
        return
    for cells in zip(*(rows[name].to_pylist() for name in names), strict=True):
        given = {name: cell for name, cell in zip(names, cells, strict=True) if cell is not None}
        yield json.dumps(given, ensure_ascii=False, separators=(",", ":")) if given else None


def merged(
    parts: Iterable[pa.Table], schema: pa.Schema, keys: Sequence[str], how: Sequence[tuple[str, str]], *, most: int
) -> pa.Table:
    """Parts as `grouped` makes them one table, which is done whenever so many rows wait for it."""
    waiting, rows = [schema.empty_table()], 0
    for part in parts:
        waiting.append(part)
        rows += len(part)
        if rows > most:
            waiting, rows = [grouped(pa.concat_tables(waiting), keys, how)], 0
    return grouped(pa.concat_tables(waiting), keys, how)


def grouped(table: pa.Table, keys: Sequence[str], how: Sequence[tuple[str, str]]) -> pa.Table:
    """One row for each combination of keys that occurs; `how`: by which function the cells of each other column become one."""
    found = table.group_by(list(keys), use_threads=False).aggregate(list(how))
    return found.rename_columns([*keys, *(name for name, _ in how)])


def request_row(question: Mapping[str, Any]) -> dict[str, Any]:
    """A question as a row of a log, to decide it again by itself."""
    row: dict[str, Any] = dict.fromkeys(_MORE) | json.loads(question["more"] or "{}")
    return row | {name: question[name] for name in ("user", "action", "resource")} | {"time": question["last"]}
