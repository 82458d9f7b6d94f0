"""Compute the matrix of a set of entities from arrays, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from privtab.arrow import Truth
from privtab.engines.conditions import RESOURCE, Condition, RequestShape
from privtab.engines.plan import beginnings
from privtab.spark.matrix.candidates import chunks
from privtab.spark.matrix.pairs import EntityBatch, Pairs
from privtab.spark.matrix.question import SCHEMA, Matrix, Question
from privtab.spark.matrix.ways import Way, links, way_of
from privtab.spark.matrix.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation, compiled for one form of request."""

    name: str
    condition: Condition
    ways: tuple[Way, ...]


class ArrayMatrix(Matrix):
    """The matrix of a world, computed for many pairs of an entity and a subject at once."""

    def __init__(self, world: World, question: Question) -> None:
        """Raises UsageError for a question with names that are unknown to the policy."""
        super().__init__(world.program, world.vocabulary, world.subjects.users, world.revision, question)
        self.world = world
        self._operations: dict[tuple[str, bool], tuple[Operation, ...]] = {}
        self._withs = {slot: beginnings(entity.id) for slot, entity in (question.withs or {}).items()}

    def of(self, keys: Iterable[str | None]) -> Iterator[pa.RecordBatch]:
        """As Matrix.of."""
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
        entity = self.entity(key)
        if entity is None:
            return None
        return entity.type, self.vocabulary.complete(entity)

    def operations(self, type_: str, *, named: bool) -> tuple[Operation, ...]:
        """The operations of the matrix on entities of a type."""
        found = self._operations.get((type_, named))
        if found is None:
            names = self.names(type_, named=named)
            found = self._operations[type_, named] = tuple(self._operation(type_, n, named=named) for n in names)
        return found

    def _operation(self, type_: str, name: str, *, named: bool) -> Operation:
        rule: Mapping[str, Any] = self.program["rules"][type_][name]
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
