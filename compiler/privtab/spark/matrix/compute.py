"""Compute the matrix of a set of entities, batch by batch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from privtab.arrow import Truth
from privtab.engines.conditions import RESOURCE, Condition, RequestShape
from privtab.engines.plan import beginnings
from privtab.errors import InvalidRequest, UsageError
from privtab.hints import hint
from privtab.request import NOT_SET, Entity, flag_name
from privtab.spark.matrix.candidates import chunks
from privtab.spark.matrix.pairs import EntityBatch, Pairs
from privtab.spark.matrix.ways import LINKS, Way, links, way_of
from privtab.spark.matrix.world import World
from privtab.vocabulary import Vocabulary

LOG = logging.getLogger("privtab.spark")

Ways: TypeAlias = Literal["first", "all"]

COLUMNS: Mapping[str, pa.DataType] = {
    "principal": pa.string(),
    "user": pa.string(),
    "operation": pa.string(),
    "type": pa.string(),
    "path": pa.string(),
    "via_kind": pa.string(),
    "via_principal": pa.string(),
    "via_entity": pa.string(),
    "via": LINKS,
}
SCHEMA = pa.schema(list(COLUMNS.items()))
DDL = (
    "principal string, user string, operation string, type string, path string, "
    "via_kind string, via_principal string, via_entity string, "
    "via array<struct<atom: string, kind: string, principal: string, entity: string, group: string>>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation, compiled for one form of request."""

    name: str
    condition: Condition
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to compute for every entity. `operations`: names (`load`, `table/load`); None: all. `withs`: objects by slot."""

    operations: frozenset[str] | None = None
    withs: Mapping[str, Entity] | None = None
    flags: frozenset[str] = frozenset()
    ways: Ways = "first"


def check(question: Question, vocabulary: Vocabulary) -> None:
    """Raise UsageError for a question with names that are unknown to the policy."""
    if question.ways not in ("first", "all"):
        raise UsageError(f"unknown ways `{question.ways}`; there are: first, all")
    shapes = {f"{type_}/{n}": shape for type_, by_name in vocabulary.operations.items() for n, shape in by_name.items()}
    known = {*shapes, *(name.partition("/")[2] for name in shapes)}
    for name in sorted((question.operations or frozenset()) - known):
        raise UsageError(f"unknown operation `{name}`" + hint(name, sorted(known)))
    flags = {flag for shape in shapes.values() for flag in shape.flags}
    for flag in sorted({flag_name(flag) for flag in question.flags} - flags):
        raise UsageError(f"no operation uses the flag `{flag}`" + hint(flag, sorted(flags)))
    for name, shape in shapes.items():
        is_requested = question.operations is None or not question.operations.isdisjoint((name, name.partition("/")[2]))
        for flag in sorted(shape.missing_flags(question.flags)) if is_requested else ():
            raise UsageError(f"`{name}` needs the flag `{flag}`: add `{flag}` or `{flag}{NOT_SET}` to the flags")
    slots = {slot for shape in shapes.values() for slot in shape.withs}
    for slot, entity in (question.withs or {}).items():
        if slot not in slots:
            raise UsageError(f"no operation has a `with` object `{slot}`" + hint(slot, sorted(slots)))
        try:
            vocabulary.check_path(entity)
        except InvalidRequest as error:
            raise UsageError(f"`{slot}`: {error}") from error


class Matrix:
    """The matrix of a world, for one question."""

    def __init__(self, world: World, question: Question) -> None:
        """Raises UsageError for a question with names that are unknown to the policy."""
        self.world = world
        self.question = question
        check(question, world.vocabulary)
        self._operations: dict[tuple[str, bool], tuple[Operation, ...]] = {}
        self._pushed: frozenset[str] | None = None
        self._withs = {slot: beginnings(entity.id) for slot, entity in (question.withs or {}).items()}

    def of(self, keys: Iterable[str | None]) -> Iterator[pa.RecordBatch]:
        """The rows of entities (`type:path`); keys that are no entities of the policy are skipped."""
        by_form: dict[tuple[str, bool], list[list[str]]] = {}
        for key in keys:
            form = self.form(key)
            if form is not None and key is not None:
                by_form.setdefault(form, []).append(beginnings(key.partition(":")[2]))
        for (type_, named), paths in by_form.items():
            operations = self.operations(type_, named=named)
            if operations:
                entities = EntityBatch(self.world, paths, self._withs)
                yield from self._rows(type_, operations, entities)

    def form(self, key: str | None) -> tuple[str, bool] | None:
        """The type of an entity and whether its path is complete; None if the key is no valid entity."""
        type_, colon, path = (key or "").partition(":")
        if not colon or type_ not in self.world.vocabulary.chains:
            return None
        try:
            self.world.vocabulary.check_path(Entity(type_, path), unnamed=True)
        except InvalidRequest:
            return None
        return type_, len(beginnings(path)) > self.world.reader.depth(type_)

    def operations(self, type_: str, *, named: bool) -> tuple[Operation, ...]:
        """The operations of the matrix on entities of a type."""
        found = self._operations.get((type_, named))
        if found is None:
            shapes = self.world.vocabulary.operations.get(type_, {})
            found = self._operations[type_, named] = tuple(
                self._operation(type_, name, named=named)
                for name in shapes
                if self._is_requested(type_, name)
                and (named or shapes[name].unnamed)
                and not self.omission_reason(type_, name)
            )
        return found

    def omission_reason(self, type_: str, operation: str) -> str | None:
        """Why an operation is not in the matrix: an object is missing or of another type, or there are too many minimal sets."""
        shape = self.world.vocabulary.operations[type_][operation]
        for slot, types in shape.withs.items():
            object_ = (self.question.withs or {}).get(slot)
            if object_ is None:
                return f"needs an object `{slot}` of type {' or '.join(types)}"
            if object_.type not in types:
                return f"`{slot}` must be of type {' or '.join(types)}"
        rule: Mapping[str, Any] = self.world.program["rules"][type_][operation]
        # Entitlements are computed from minimal sets: if some are not listed, entitlements would be missing silently.
        if "minimal_cut" in rule:
            return "has more minimal sets than the policy's bundle lists"
        return None

    def left_out(self) -> dict[str, str]:
        """Requested operations (`type/operation`) that are not in the matrix, each with the reason."""
        return {
            f"{type_}/{name}": why
            for type_, shapes in self.world.vocabulary.operations.items()
            for name in shapes
            if self._is_requested(type_, name) and (why := self.omission_reason(type_, name))
        }

    def narrow(self, operations: frozenset[str]) -> None:
        """Keep only the operations with these names; unknown names are ignored."""
        self._pushed = operations

    def _is_requested(self, type_: str, name: str) -> bool:
        if self._pushed is not None and name not in self._pushed:
            return False
        requested = self.question.operations
        return requested is None or name in requested or f"{type_}/{name}" in requested

    def _operation(self, type_: str, name: str, *, named: bool) -> Operation:
        rule: Mapping[str, Any] = self.world.program["rules"][type_][name]
        withs = {slot: (self.question.withs or {})[slot].type for slot in rule["with"]}
        flags = self.question.flags & frozenset(rule["flags"])
        form = RequestShape(flags=flags, types={RESOURCE: type_, **withs}, named=named)
        kinds = [f"{slot}={withs[slot]}" for slot in sorted(withs) if len(rule["with"][slot]) > 1]
        sets = rule["minimal"]["item" if named else "call"][" ".join([*sorted(flags), *kinds])]
        depth = {link: len(chain) for link, chain in self.world.reader.chains.items()}
        return Operation(
            name=name,
            condition=self.world.reader.condition(type_, name, form),
            ways=tuple(way_of(numbers, rule["atoms"], depth) for numbers in sets),
        )

    def _rows(self, type_: str, operations: tuple[Operation, ...], entities: EntityBatch) -> Iterator[pa.RecordBatch]:
        paths = pa.array([path[-1] for path in entities.paths], pa.string())
        conditions = list(dict.fromkeys(operation.condition for operation in operations))
        for entity, subject in chunks(entities, conditions):
            pairs = Pairs(entities, entity, subject)
            answers = {condition: pairs.holds(condition) for condition in conditions}
            for operation in operations:
                yield from self._entitlements(type_, operation, pairs, paths, answers[operation.condition])

    def _entitlements(
        self, type_: str, operation: Operation, pairs: Pairs, paths: pa.Array, truth: Truth
    ) -> Iterator[pa.RecordBatch]:
        left = np.flatnonzero(truth)
        subjects = self.world.subjects
        for way in operation.ways:
            if not len(left):
                break
            by = np.ones(len(left), np.bool_)
            for atom in way.atoms:
                by &= pairs.known(atom).truth[left]
            rows = left[by]
            if self.question.ways == "first":
                left = left[~by]
            if not len(rows):
                continue
            via, kind, principal, on = links(pairs, way, rows)
            subject = pa.array(pairs.subject[rows])
            columns = [
                subjects.label_column.take(subject),
                subjects.user_column.take(subject),
                pa.repeat(operation.name, len(rows)),
                pa.repeat(type_, len(rows)),
                paths.take(pa.array(pairs.entity[rows])),
                kind,
                principal,
                on,
                via,
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        if len(left) and self.question.ways == "first":
            raise AssertionError(f"{type_}/{operation.name}: allowed by its condition and by none of its minimal sets")


def report_omitted(matrix: Matrix) -> None:
    """Log the operations that are left out of a matrix."""
    for name, why in matrix.left_out().items():
        LOG.info("entitlements: `%s` is left out: it %s", name, why)
