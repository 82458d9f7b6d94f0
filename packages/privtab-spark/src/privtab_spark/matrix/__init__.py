"""The entitlement matrix: the operations of principals on entities, and the grants behind them.

One row for each operation that a subject may do on an entity, as Arrow batches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from privtab.base import LEFT_OUT, Entity, InvalidRequest, Request, Vocabulary, base_type
from privtab.engines import Condition, Index, RowEngine
from privtab.ir import RESOURCE
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.request_forms import KINDS, EntityQuestion, RequestForms, Source
from privtab_analysis.entitlements.rows import NOT_ON_ENTITIES, SatisfiedSet, satisfied_sets
from privtab_analysis.entitlements.subjects import Concerns, Subject, Subjects
from privtab_spark.matrix.question import Question, check

LOG = logging.getLogger("privtab.spark")
BATCH = 16_384
"""Number of rows in a batch, or a few more."""
MOST_RUNS = 2_000_000
"""Number of rows that are kept to be repeated for other entities."""
ANYONE = "anyone"
LINK = pa.struct([(name, pa.string()) for name in ("atom", "kind", "principal", "entity", "group")])
"""One atom of a way: the atom, its kind of source, the principal and entity of the source, and the group through which a role is held."""
_TEXTS = ("principal", "user", "operation", "type", "path", "via_kind", "via_principal", "via_entity")
SCHEMA = pa.schema([*((name, pa.string()) for name in _TEXTS), ("via", pa.list_(LINK))])
DDL = ", ".join(f"{name} string" for name in _TEXTS) + f", via array<{LINK}>"


class Matrix:
    """The matrix of one question: the rows of any entities, and the omissions."""

    def __init__(
        self, program: Mapping[str, Any], index: Index, subjects: Sequence[Subject], question: Question
    ) -> None:
        """`program`: the program's JSON, as in the policy bundle. Raises UsageError for a question with names that are unknown to the policy."""
        self.program = program
        self.vocabulary = Vocabulary.from_program(program)
        self.users = [subject.user for subject in subjects if subject.user is not None]
        self.revision = index.revision
        self.question = question
        check(question, self.vocabulary)
        self.evaluator = Evaluator(RequestForms(RowEngine(program, index)), index, Subjects(subjects, index))
        self._open()

    def _open(self) -> None:
        given = self.question.attributes.with_
        withs = self.question.withs or {}
        self._given = {
            (str(withs[slot]), name): value for slot, values in given.items() for name, value in values.items()
        }
        self._kept = 0
        self.names_of_principals = {"": 0}
        self._groups: dict[tuple[str, bool, int], list[_Group]] = {}
        self._concerns = Concerns(self.evaluator.subjects, self.evaluator.index)
        subjects = self.evaluator.subjects.all
        self.sources = _Sources(self.names_of_principals)
        number = self.names_of_principals.setdefault
        own = (number(subject.principal, len(self.names_of_principals)) for subject in subjects)
        self.labels_numbers: npt.NDArray[np.int64] = np.fromiter(own, np.int64, len(subjects))
        self.labels = pa.array([subject.principal for subject in subjects], pa.string())
        self.user_names = pa.array([subject.user for subject in subjects], pa.string())

    def __getstate__(self) -> dict[str, Any]:
        kept = ("program", "vocabulary", "users", "revision", "question", "evaluator")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def of(self, keys: Iterable[str | None]) -> Iterator[pa.RecordBatch]:
        """The rows of entities (`type:path`); keys that are no entities of the policy are skipped."""
        rows = _Rows(self)
        for key in keys:
            entity = self.entity(key)
            place = None if entity is None else self.evaluator.engine.place(entity)
            if entity is None or place is None:
                continue
            concerns = self._concerns.on(place.path, self._given)
            for group in self._groups_on(entity, place.levels):
                # Entities below the same one get the same answers if no row concerns what lies between.
                depth = next((depth for depth in range(len(concerns) - 1, 0, -1) if concerns[depth] & group.bits), 0)
                runs = group.runs.get((depth, place.path[depth]))
                if runs is None:
                    runs = self._runs_on(entity, group, (depth, place.path[depth]))
                for run in runs:
                    rows.add(run, group.operations, entity, place.path)
                    if rows.count >= BATCH:
                        yield rows.batch()
        if rows.count:
            yield rows.batch()

    def _groups_on(self, entity: Entity, levels: int) -> list[_Group]:
        """The operations on entities of a type with so many levels, grouped by equal answers."""
        key = entity.type, self.vocabulary.complete(entity), levels
        found = self._groups.get(key)
        if found is None:
            by_meaning: dict[object, _Group] = {}
            for operation in self.names(entity.type, named=key[1]):
                question = self._question_about(entity, operation)
                if question is not None:
                    meaning = question.form.meaning
                    by_meaning.setdefault(meaning, _Group(question.form.bits, [], {})).operations.append(operation)
            found = self._groups[key] = list(by_meaning.values())
        return found

    def _runs_on(self, entity: Entity, group: _Group, nearest: tuple[int, str]) -> list[_Run]:
        question = self._question_about(entity, group.operations[0])
        assert question is not None
        by = satisfied_sets(self.evaluator, question, self.evaluator.who(question), every=self.question.ways == "all")
        runs = [_Run(way, self.evaluator, question, self.names_of_principals) for way in by]
        self._kept += 1 + sum(len(run.subjects) * (1 + run.width) for run in runs)
        if self._kept > MOST_RUNS:
            self._kept = 0
            for known in self._groups.values():
                for other in known:
                    other.runs.clear()
        group.runs[nearest] = runs
        return runs

    def conditions(self, type_: str, *, named: bool) -> list[Condition]:
        """The conditions of the matrix's operations on entities of a type."""
        withs = {slot: entity.type for slot, entity in (self.question.withs or {}).items()}
        engine, flags = self.evaluator.engine, self.question.flags
        names = list(self.names(type_, named=named))
        all_slots = {slot: LEFT_OUT for name in names for slot in engine.shapes[type_, name][1]} | withs
        return [engine.plan_of(type_, name, flags, all_slots, named=named).condition for name in names]

    def _question_about(self, entity: Entity, operation: str) -> EntityQuestion | None:
        slots = self.evaluator.engine.shapes[entity.type, operation][1]
        request = Request(
            user="",
            action=operation,
            resource=entity,
            with_={slot: of for slot, of in (self.question.withs or {}).items() if slot in slots},
            flags=self.question.flags,
            attributes=self.question.attributes,
        )
        return self.evaluator.question(request)

    def entity(self, key: str | None) -> Entity | None:
        """The entity with a key, perhaps without its last name; None if the key is no valid entity."""
        type_, colon, path = (key or "").partition(":")
        if not colon or type_ not in self.vocabulary.chains:
            return None
        entity = Entity(type_, path)
        try:
            self.vocabulary.check_path(entity, unnamed=True)
        except InvalidRequest:
            return None
        return entity

    def names(self, type_: str, *, named: bool) -> Iterator[str]:
        """The names of the matrix's operations on entities of a type."""
        for name, shape in self.vocabulary.operations.get(type_, {}).items():
            if self._is_requested(type_, name) and (named or shape.unnamed) and not self.omission_reason(type_, name):
                yield name

    def omission_reason(self, type_: str, operation: str) -> str | None:
        """The reason why an operation is not in the matrix: an object is missing or of another type, or there are too many minimal sets."""
        shape = self.vocabulary.operations[type_][operation]
        for slot, types in shape.withs.items():
            object_ = (self.question.withs or {}).get(slot)
            if object_ is None and LEFT_OUT in types:
                continue
            if object_ is None:
                return f"needs an object `{slot}` of type {' or '.join(types)}"
            if object_.type not in types:
                return f"`{slot}` must be of type {' or '.join(types)}"
        rule: Mapping[str, Any] = self.program["rules"][type_][operation]
        # Entitlements are computed from minimal sets: if some are not listed, entitlements would be missing silently.
        if "minimal_cut" in rule:
            return "has more minimal sets than the policy's bundle lists"
        return None

    def left_out(self) -> dict[str, str]:
        """Requested operations (`type/operation`) that are not in the matrix, each with the reason."""
        return {
            f"{type_}/{name}": why
            for type_, shapes in self.vocabulary.operations.items()
            for name in shapes
            if self._is_requested(type_, name) and (why := self.omission_reason(type_, name))
        }

    def _is_requested(self, type_: str, name: str) -> bool:
        requested = self.question.operations
        return requested is None or name in requested or f"{type_}/{name}" in requested


def report_omitted(matrix: Matrix) -> None:
    """Log the operations that are left out of a matrix."""
    for name, why in matrix.left_out().items():
        LOG.info("entitlements: `%s` is left out: it %s", name, why)


class _Group(NamedTuple):
    """Operations with equal answers, with their runs by the nearest entity that concerns them."""

    bits: int
    operations: list[str]
    runs: dict[tuple[int, str], list[_Run]]


class _Run:
    """A minimal set as numbers that are the same for all entities with equal answers. Links lie row by row."""

    def __init__(
        self, way: SatisfiedSet, evaluator: Evaluator, question: EntityQuestion, names: dict[str, int]
    ) -> None:
        """`names`: numbers for the names of groups, to which new ones are added."""
        form = question.form
        self.main, self.width = way.main, len(way.numbers)
        self.form, self.numbers, self.withs = form, way.numbers, question.paths
        self.places: list[tuple[str, str, int]] = []
        """The places of the entities on the paths of all atoms, one atom after the other."""
        ends: list[int] = []
        for part in (form.parts[number] for number in way.numbers):
            chain = evaluator.reader.chains[part.type] if part.type else ()
            self.places += [(part.slot, base_type(type_), depth) for type_, depth in chain]
            ends.append(len(self.places) - 1)
        self.subjects: npt.NDArray[np.int64] = np.array(way.subjects, np.int64)
        count = len(way.subjects)
        self.sources: npt.NDArray[np.int64] = np.array(way.sources, np.int64).reshape(self.width, count).T.ravel()
        self.positions: npt.NDArray[np.int64] = np.tile(np.arange(self.width), count)
        self.ends: npt.NDArray[np.int64] = np.tile(np.array(ends, np.int64), count)
        self.groups: npt.NDArray[np.int64] = np.full(count * self.width, -1)
        for position, groups in enumerate(way.groups):
            for row, group in groups.items():
                self.groups[row * self.width + position] = names.setdefault(group, len(names))


class _Rows:
    """Rows that are collected until they make a batch."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self._runs: list[tuple[_Run, int, int]] = []
        self._on: list[tuple[str, str, str]] = []
        self._texts: list[str] = []
        self._keys: list[str] = []

    def add(self, run: _Run, operations: Sequence[str], entity: Entity, path: list[str]) -> None:
        """Add the rows of a way for an entity with this path."""
        for operation in operations:
            self._runs.append((run, len(self._texts), len(self._keys)))
            self._on.append((operation, entity.type, entity.id))
        paths = {**run.withs, RESOURCE: path}
        self._texts += [run.form.text(number, paths) for number in run.numbers]
        self._keys += [f"{type_}:{paths[slot][depth]}" for slot, type_, depth in run.places]
        self.count += len(run.subjects) * len(operations)

    def batch(self) -> pa.RecordBatch:
        """The rows, which are no longer kept."""
        runs, matrix = self._runs, self._matrix
        counts = np.array([len(run.subjects) for run, _, _ in runs])
        subjects = np.concatenate([run.subjects for run, _, _ in runs])
        sources = np.concatenate([run.sources for run, _, _ in runs])
        groups = np.concatenate([run.groups for run, _, _ in runs])
        texts = np.concatenate([run.positions + base for run, base, _ in runs])
        ends = np.concatenate([run.ends + base for run, _, base in runs])
        widths = np.repeat([run.width for run, _, _ in runs], counts)
        offsets = np.append(0, np.cumsum(widths))
        matrix.sources.extend(matrix.evaluator.found)
        kinds, principals, distances = (column[sources] for column in matrix.sources.columns)
        own = np.repeat(matrix.labels_numbers[subjects], widths)
        principals = np.where(principals == 0, own, principals)
        on_entities = ~np.isin(kinds, NOT_ON_ENTITIES)
        names, words = matrix.sources.names, pa.array((*KINDS, ANYONE), pa.string())
        keys = pa.array(self._keys, pa.string())
        columns = [
            pa.array(self._texts, pa.string()).take(pa.array(texts)),
            words.take(pa.array(kinds)),
            names.take(pa.array(principals)),
            keys.take(pa.array(ends - distances, mask=~on_entities)),
            names.take(pa.array(groups, mask=groups < 0)),
        ]
        main = offsets[:-1] + np.repeat([run.main for run, _, _ in runs], counts)
        taken = pa.array(main, mask=widths == 0)
        of_run = pa.array(np.repeat(np.arange(len(runs)), counts))
        found = [
            matrix.labels.take(pa.array(subjects)),
            matrix.user_names.take(pa.array(subjects)),
            *(pa.array(column, pa.string()).take(of_run) for column in zip(*self._on, strict=True)),
            words.take(pa.array(np.append(kinds, len(KINDS))[np.where(widths == 0, -1, main)])),
            columns[2].take(taken),
            columns[3].take(taken),
            pa.ListArray.from_arrays(
                pa.array(offsets.astype(np.int32)), pa.StructArray.from_arrays(columns, fields=list(LINK))
            ),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(found, schema=SCHEMA)


class _Sources:
    """The sources that were found, as columns: kind, number of the principal's name, distance; and the names."""

    def __init__(self, names: dict[str, int]) -> None:
        """`names`: numbers for the names of principals, to which new ones are added."""
        self._numbers = names
        self.names = pa.array([], pa.string())
        self.columns: tuple[npt.NDArray[np.int64], ...] = tuple(np.zeros(0, np.int64) for _ in range(3))

    def extend(self, found: Sequence[Source]) -> None:
        """Add the new sources."""
        new = found[len(self.columns[0]) :]
        if new:
            number, names = self._numbers.setdefault, self._numbers
            rows = [(kind, number(principal, len(names)), distance) for distance, principal, kind in new]
            columns = np.array(rows, np.int64).T
            self.columns = tuple(np.append(old, more) for old, more in zip(self.columns, columns, strict=True))
        if len(self.names) < len(self._numbers):
            more = pa.array(list(islice(self._numbers, len(self.names), None)), pa.string())
            self.names = pa.concat_arrays([self.names, more])
