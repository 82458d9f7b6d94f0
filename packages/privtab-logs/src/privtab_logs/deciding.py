"""Decide rows of logs by a policy and a state, by columns: each as the policy's own rules would read the logged request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import NOT_SET, Decision, InvalidRequest, Request, Vocabulary, Window, encode_name
from privtab.engines import OpenEngine, Opener
from privtab.ir import Program
from privtab_spark.distinct import distinct_requests

_ENTITY = r"(?s)^(?P<type>[^:]*):(?P<path>.*)$"
_MORE = ("groups", "active_roles", "with", "flags", "attributes")
_NANOSECONDS = 1000

Distinct: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""The first row of each question, and the number of each row's question."""


def distinct_rows(rows: pa.RecordBatch) -> Distinct | None:
    """Find the questions of rows; None if too few repeat, or any has more parts."""
    if any(rows[name].null_count < len(rows) for name in ("subject_type", *_MORE)):
        return None
    return distinct_requests([rows[name] for name in ("user", "action", "resource")])


def document(row: Mapping[str, Any]) -> dict[str, Any]:
    """The AuthZEN request of a row."""
    attributes = json.loads(row["attributes"] or "{}")
    context: dict[str, Any] = {flag.removesuffix(NOT_SET): not flag.endswith(NOT_SET) for flag in row["flags"] or ()}
    context |= attributes.get("context", {})
    if row["active_roles"] is not None:
        context["active_roles"] = row["active_roles"]
    properties = attributes.get("with", {})
    if row["with"]:
        context["with"] = {slot: _entity(text, properties.get(slot)) for slot, text in row["with"]}
    of_user = dict(attributes.get("subject", {})) | ({"groups": row["groups"]} if row["groups"] else {})
    return {
        "subject": {"type": row["subject_type"] or "user", "id": row["user"], **_properties(of_user)},
        "action": {"name": row["action"], **_properties(attributes.get("action"))},
        "resource": _entity(row["resource"], attributes.get("resource")),
        "context": context,
    }


def request_of(row: Mapping[str, Any], vocabulary: Vocabulary) -> Request:
    """The request of a row. Raises InvalidRequest if it is none of the policy."""
    request = Request.from_json(document(row), vocabulary)
    vocabulary.check(request)
    return request


def _entity(text: str, properties: Mapping[str, Any] | None) -> dict[str, Any]:
    type_, _, id_ = text.partition(":")
    return {"type": type_, "id": id_, **_properties(properties)}


def _properties(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"properties": values} if values else {}


def hidden_by_mask(program: Program) -> bool:
    """Return whether a policy reads parts of a request that a mask of the whole request may have left out."""
    semantics = program.semantics
    return bool(program.attributes) or semantics.active_roles == "request" or "request" in semantics.groups


@dataclass(frozen=True, kw_only=True)
class Decider:
    """Decides by one policy and one state, each row at its time."""

    program: Mapping[str, Any]
    """The JSON of the program."""
    state: Any
    """The document of the state's index, as `Opener.keep` keeps it."""
    missing: frozenset[str] = frozenset()
    """The root entities of which nothing is known: their shards are missing."""

    hidden_by_mask: bool = False
    """As the function says it of the policy."""

    @classmethod
    def of(
        cls, program: Program, json: Mapping[str, Any], state: Mapping[str, Any], missing: frozenset[str] = frozenset()
    ) -> Decider:
        """Make a decider from a policy with its JSON, and from the content of a state's bundles."""
        kept = Opener().keep(state)
        return cls(program=json, state=kept, missing=missing, hidden_by_mask=hidden_by_mask(program))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The names of the policy."""
        return Vocabulary.from_program(self.program)

    @property
    def timed(self) -> bool:
        """Return whether rows of the state hold for a time, so that a decision depends on when it is made."""
        return self.opened(0).window != Window()

    def lacks_shards(self, rows: pa.RecordBatch) -> pa.Array:
        """Return, for each row, whether it is about a root entity of which nothing is known."""
        roots = {type_: chain[0][0] for type_, chain in self.vocabulary.chains.items()}

        def lacking(entities: pa.Array) -> list[bool]:
            pairs = zip(*(part.to_pylist() for part in self._split(entities)), strict=True)
            return [f"{roots.get(type_)}:{(path or '').partition('/')[0]}" in self.missing for type_, path in pairs]

        found = lacking(rows["resource"])
        for number in pc.indices_nonzero(rows["with"].is_valid()).to_pylist():
            found[number] |= any(lacking(pa.array([entity for _, entity in rows["with"][number].as_py()], pa.string())))
        return pa.array(found)

    def decide(self, rows: pa.RecordBatch, distinct: Distinct | None) -> npt.NDArray[np.bool_]:
        """Return whether each row is allowed; a row that is no valid request of the policy is denied, as the rules deny it.

        `distinct`: as `distinct_rows` finds them.
        """
        if not self.timed and distinct is not None:
            first, number = distinct
            found: npt.NDArray[np.bool_] = self._decide(self.opened(0), rows.take(pa.array(first)))[number]
            return found
        allowed = np.zeros(len(rows), np.bool_)
        times = rows["time"].cast(pa.int64()).fill_null(0).to_numpy() * _NANOSECONDS
        remaining = np.arange(len(rows))
        while len(remaining):
            opened = self.opened(int(times[remaining[0]]))
            inside = (times[remaining] >= opened.window.begin) & (times[remaining] < opened.window.end)
            inside[0] = True
            positions = remaining[inside]
            part = rows if len(positions) == len(rows) else rows.take(pa.array(positions))
            allowed[positions] = self._decide(opened, part)
            remaining = remaining[~inside]
        return allowed

    def opened(self, moment: int) -> OpenEngine:
        """The engine for a moment; the last one is kept."""
        last: OpenEngine | None = self.__dict__.get("_last")
        if last is None or not last.window.holds(moment):
            last = self.__dict__["_last"] = Opener().open(self.program, [self.state], moment)
        return last

    def explain(self, row: Mapping[str, Any]) -> Decision:
        """The decision on one row, with its reasons."""
        try:
            request = request_of(row, self.vocabulary)
        except InvalidRequest as error:
            return Decision(allowed=False, context={"error": {"kind": "invalid_request", "message": str(error)}})
        moment = 0 if row["time"] is None else int(row["time"].timestamp() * 1_000_000) * _NANOSECONDS
        return self.opened(moment).engine.decide(request)

    def _decide(self, opened: OpenEngine, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        kinds = pc.fill_null(rows["subject_type"], "user")
        allowed = np.zeros(len(rows), np.bool_)
        callers = pc.is_in(kinds, pa.array(self.vocabulary.subjects)).to_numpy(zero_copy_only=False)
        special = np.zeros(len(rows), np.bool_)
        for name in _MORE:
            special |= rows[name].is_valid().to_numpy(zero_copy_only=False)
        for positions, shared in self._row_groups(rows, callers, special):
            part = rows if len(positions) == len(rows) else rows.take(pa.array(positions))
            if shared is None:
                allowed[positions] = [self._allow(opened, row) for row in part.to_pylist()]
            else:
                allowed[positions] = self._columns(opened, part, shared)
        return allowed

    def _row_groups(
        self, rows: pa.RecordBatch, callers: npt.NDArray[np.bool_], special: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[npt.NDArray[np.int64], Mapping[str, Any] | None]]:
        """Positions of rows that state the same flags and have the same objects; None: rows to decide one by one."""
        plain = np.flatnonzero(callers & ~special)
        if len(plain):
            yield plain, {}
        found: dict[Any, list[int]] = {}
        positions = np.flatnonzero(callers & special)
        if not len(positions):
            return
        part = rows.select([*_MORE]).take(pa.array(positions))
        declared = self.vocabulary.attributes
        cells = (part[name].to_pylist() for name in _MORE)
        for position, (groups, roles, with_, flags, attributes) in zip(
            positions.tolist(), zip(*cells, strict=True), strict=True
        ):
            if roles is not None or (declared and (attributes or flags)):
                key = None
            else:
                key = groups is not None, tuple(slot for slot, _ in with_ or ()), tuple(flags or ())
            found.setdefault(key, []).append(position)
        for key, of_form in found.items():
            shared = None if key is None else {"groups": key[0], "with": key[1], "flags": key[2]}
            yield np.array(of_form), shared

    def _columns(self, opened: OpenEngine, rows: pa.RecordBatch, shared: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        types, paths = self._split(rows["resource"])
        withs = {}
        if slots := shared.get("with"):
            objects = [dict(cell) for cell in rows["with"].to_pylist()]
            for slot in slots:
                withs[slot] = self._split(pa.array([cell[slot] for cell in objects], pa.string()))
        answers = opened.engine.batches().decide_columns(
            rows["user"],
            paths,
            action=rows["action"],
            type=types,
            with_=withs,
            flags=shared.get("flags", ()),
            groups=rows["groups"] if shared.get("groups") else None,
        )
        return answers.allowed

    def _split(self, entities: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The types and the paths of entities."""
        parts = pc.extract_regex(entities, _ENTITY)
        types, paths = pc.struct_field(parts, "type"), pc.struct_field(parts, "path")
        if opaque := self.vocabulary.opaque:
            written = pc.and_(pc.is_in(types, pa.array(sorted(opaque))), pc.match_substring(paths, "/"))
            written = pc.and_not(written, pc.match_substring(paths, "%")).fill_null(fill_value=False)
            if pc.any(written).as_py():
                spelt = [encode_name(path) for path in paths.filter(written).to_pylist()]
                paths = pc.replace_with_mask(paths, written, pa.array(spelt, pa.string()))
        return types, paths

    def _allow(self, opened: OpenEngine, row: Mapping[str, Any]) -> bool:
        try:
            return opened.engine.allow(request_of(row, self.vocabulary))
        except InvalidRequest:
            return False
