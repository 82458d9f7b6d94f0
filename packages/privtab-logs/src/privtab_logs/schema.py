"""The schema of logged decisions: one row for each decision, whatever wrote the log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa

from privtab.base import count, printable_text

Row: TypeAlias = tuple[Any, ...]
"""The cells of a row, in the order of the schema; the time as text."""
SharedRow: TypeAlias = tuple[Row, tuple[str | None, ...], str | None]
"""A row that several entries may share, and what one entry has instead: texts for VARYING, and its position; None: as in the row.

The texts are put behind the `resource` of the row, which may be its type alone, and are nanoseconds for `latency_us`.
"""
VARYING = ("time", "decision_id", "user", "resource", "latency_us")
_NOTHING = (None,) * len(VARYING)

COLUMNS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("time", pa.timestamp("us", "UTC"), "When it was decided, by the clock of the decision point."),
    ("decision_id", pa.string(), "The decision point's id of the call; decisions of one call share it."),
    ("system", pa.string(), "The package of the policy that decided: the system, or the name given to the compiler."),
    ("subject_type", pa.string(), "The type of the subject; null for `user`."),
    ("user", pa.string(), "The id of the subject."),
    ("groups", pa.list_(pa.string()), "The groups that the request gave; null if none."),
    ("active_roles", pa.list_(pa.string()), "The active roles that the request named; null if it named none."),
    ("action", pa.string(), "The operation."),
    ("resource", pa.string(), "The entity, `type:path`."),
    ("with", pa.map_(pa.string(), pa.string()), "Further objects of the request: name → `type:path`; null if none."),
    ("flags", pa.list_(pa.string()), "What the context stated: `pii`, it is set; `pii=false`, it is not; null if nothing."),
    ("attributes", pa.string(), "JSON: other properties, of `subject`, `action`, `resource`, `with` by name, and `context`."),
    ("allowed", pa.bool_(), "The answer; null if there was none, or it is masked."),
    ("rule", pa.string(), "The rule that decided, `system/type/operation`, if the answer names it."),
    ("policy_revision", pa.string(), "The revision of the policy that decided."),
    ("state_revision", pa.string(), "The revision of the state that decided; of one in shards, those of all its bundles, with `+` between them."),
    ("latency_us", pa.int64(), "Microseconds that the call took in the decision point."),
    ("origin", pa.string(), "What wrote the log: `opa`, `store`, or the name of a mapping document."),
    ("masked", pa.list_(pa.string()), "JSON pointers to what was erased or replaced before it was logged; null if nothing."),
    ("problem", pa.string(), "Why the row cannot be replayed, as the schema lists it; null if it can."),
    ("position", pa.string(), "Where it was read: `file:line`."),
)  # fmt: skip
"""Name, type and meaning of each column."""

SCHEMA = pa.schema([(name, type_) for name, type_, _ in COLUMNS])

MASKED = "masked"
MALFORMED = "malformed request"
NO_ANSWER = "no answer"
FAILED = "error"
WRONG_ANSWER = "malformed answer"
DAMAGED = "damaged"
UNREAD = "of a door or a filter"
PROBLEMS = (MASKED, MALFORMED, NO_ANSWER, FAILED, WRONG_ANSWER, UNREAD, DAMAGED)
"""Part of the request or the answer was masked; the request is none; no rule answered; the call failed; the answer is none; the policy was
asked in another form, which does not tell what it decided.

On Spark also an entry that cannot be read, of which the row has the place alone.
"""

OTHER_SYSTEM = "of another system"
"""Reason for leaving out another policy's decision: for any other reason, an answer does not cover the whole log."""
PARTS = "+"
"""Separator of the revisions of a sharded state's bundles."""
MOST_KEPT = 100
"""Damaged entries whose places are kept; all are counted."""
_LONGEST = 200
_DROPPED = re.compile(
    r"(decision_logs_dropped\w*|decision_logs_encoding_failure\w*|enc_log_exceeded\w*)(?:\{[^}\n]*\})?(?:\"\s*:)?\s*([0-9.e+]+)"
)


@dataclass(slots=True)
class Reading:
    """Counts of everything read so far besides the rows: nothing in a log is left out without being counted here."""

    files: int = 0
    decisions: int = 0
    other: Counter[str] = field(default_factory=Counter)
    """Entries that are no decisions of a policy, by what they are instead."""
    problems: Counter[str] = field(default_factory=Counter)
    """Decisions that cannot be replayed, by PROBLEMS."""
    damaged: int = 0
    """Entries, or rests of files, that cannot be read."""
    places: list[str] = field(default_factory=list)
    """`file:line: what is wrong` of the first ones."""
    most_places: int | None = MOST_KEPT
    """The most places that are kept; None: all."""
    backwards: int = 0
    """Decisions that are more than a second older than the one before them in their file."""
    untimed: int = 0
    """Decisions whose time is not known."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Entries that decision points say they dropped, by their counters."""
    searches: Counter[str] = field(default_factory=Counter)
    """Entries in the answers of searches, by how many a search found: its pages have the same number."""

    @classmethod
    def beside(cls, metrics: Iterable[str]) -> Reading:
        """Nothing so far, beside what OPAs answer at `/v1/status` or `/metrics`."""
        found = cls()
        for name, number in (match for text in metrics for match in _DROPPED.findall(text)):
            found.dropped[name] += int(float(number))
        return found

    def damage(self, position: str, why: str) -> None:
        """Note an entry that cannot be read, or that is none."""
        self.damaged += 1
        if self.most_places is None or len(self.places) < self.most_places:
            self.places.append(f"{position}: {printable_text(why, one_line=True)[:_LONGEST]}")

    def add(self, other: Mapping[str, Any]) -> None:
        """Add what was read elsewhere, in its JSON form."""
        for name, found in other.items():
            own = getattr(self, name)
            if isinstance(own, Counter):
                own.update(found)
            else:
                setattr(self, name, own + (found[: MOST_KEPT - len(own)] if isinstance(own, list) else found))

    def gaps(self, skipped: Mapping[str, int], samples: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """Return the parts of the logs that an answer does not cover. `skipped`: decisions not used, by reason, with `samples` of some."""
        read = count(self.damaged, "entry or rest of a file", "entries or rests of files")
        found = [f"{read} cannot be read, such as {self.places[0]}"] if self.damaged else []
        for why, number in sorted(skipped.items()):
            if why != OTHER_SYSTEM:
                sample = f", such as: {samples[why]}" if why in samples else ""
                found.append(f"{count(number, 'decision')} not used: {why}{sample}")
        for total, number in sorted(self.searches.items()):
            if number < int(total):
                found.append(f"a search found {int(total):,} or more entries, and {number:,} are here")
        return found + [
            f"{number:,} dropped by decision points: {name}" for name, number in self.dropped.items() if number
        ]

    def notes(self, skipped: Mapping[str, int]) -> Iterator[str]:
        """Yield the other things in the logs. `skipped`: as for `gaps`."""
        yield from (f"no decisions: {number:,} of the kind `{what}`" for what, number in sorted(self.other.items()))
        if others := skipped.get(OTHER_SYSTEM):
            yield f"no decisions of the policy: {others:,} {OTHER_SYSTEM}"
        if self.untimed:
            yield f"{count(self.untimed, 'decision')} without a time that can be read"
        if self.backwards:
            yield f"the clock went back {count(self.backwards, 'time')}"

    def to_json(self) -> dict[str, Any]:
        """As in reports."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "most_places"}
        return {name: dict(sorted(v.items())) if isinstance(v, Counter) else v for name, v in values.items()}


def alone(row: Row) -> SharedRow:
    """A row that no other entry shares."""
    return row, _NOTHING, None


def log_schema() -> dict[str, Any]:
    """The JSON Schema of a row."""
    properties: dict[str, Any] = {}
    for name, type_, meaning in COLUMNS:
        properties[name] = {"description": meaning, **_json_type(type_)}
    properties["problem"]["enum"] = [*PROBLEMS, None]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A logged decision",
        "type": "object",
        "properties": properties,
        "required": [name for name, _, _ in COLUMNS],
        "additionalProperties": False,
    }


def _json_type(type_: pa.DataType) -> dict[str, Any]:
    if pa.types.is_timestamp(type_):
        return {"type": ["string", "null"], "format": "date-time"}
    if pa.types.is_list(type_):
        return {"type": ["array", "null"], "items": {"type": "string"}}
    if pa.types.is_map(type_):
        return {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
    if pa.types.is_boolean(type_):
        return {"type": ["boolean", "null"]}
    return {"type": ["integer" if pa.types.is_integer(type_) else "string", "null"]}
