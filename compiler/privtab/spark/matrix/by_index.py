"""Compute a matrix by the index of a state, pair by pair, for policies whose features arrays do not support.

The engine of `Embedded` decides, so no feature of the language has a second implementation here. Only the subjects that something
on the path of an entity concerns are decided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from privtab.engines.attributes import RequestValues
from privtab.engines.index import Index
from privtab.engines.plan import Caller, Plan
from privtab.engines.rows import RowEngine
from privtab.names import last_name
from privtab.request import Entity, Request
from privtab.spark.matrix.entitlement import Entitlement
from privtab.spark.matrix.principals import Subject
from privtab.spark.matrix.question import SCHEMA, Matrix, Question
from privtab.vocabulary import Vocabulary

BATCH = 10_000
"""Number of rows in a batch."""
NOBODY = Subject(principal="", user=None, principals=(), scopes={}, through={})
KNOWN = 10_000
"""Number of paths whose holders are kept."""


class IndexMatrix(Matrix):
    """The matrix of some subjects, decided pair by pair."""

    def __init__(
        self, program: Mapping[str, Any], index: Index, subjects: Sequence[Subject], question: Question
    ) -> None:
        users = (subject.user for subject in subjects)
        super().__init__(program, Vocabulary.from_program(program), users, index.revision, question)
        self.engine = RowEngine(program, index)
        self.subjects = subjects
        self._by_principal: dict[str, list[int]] = defaultdict(list)
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._by_scope: dict[str, list[int]] = defaultdict(list)
        self._always: set[int] = set()
        """The subjects that every entity concerns: their memberships are assumed, or what they hold counts everywhere."""
        for number, subject in enumerate(subjects):
            if subject.user is None or subject.user in index.service_admins:
                self._always.add(number)
            names = {subject.user} - {None}
            for principal in subject.principals:
                self._by_principal[principal].append(number)
                role = index.role_of(principal)
                names.add(principal.partition(":")[2] if role is None else role)
                if principal in self.engine.semantics.roles:
                    self._always.add(number)
            for name in names:
                self._by_name[str(name)].append(number)
            for scope in subject.scopes:
                self._by_scope[scope].append(number)
        self._with_attributes = {n for n, subject in enumerate(subjects) if subject.user in index.user_attributes}
        self._holders: dict[str, frozenset[int]] = {}
        self._callers: dict[tuple[str, ...], list[Caller]] = {}

    def of(self, keys: Iterable[str | None]) -> Iterator[pa.RecordBatch]:
        """As Matrix.of."""
        rows: list[dict[str, Any]] = []
        for key in keys:
            entity = self.entity(key)
            if entity is None:
                continue
            for name in self.names(entity.type, named=self.vocabulary.complete(entity)):
                rows += self._entitlements(entity, name)
            if len(rows) >= BATCH:
                yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    def _entitlements(self, entity: Entity, operation: str) -> Iterator[dict[str, Any]]:
        slots = self.engine.shapes[entity.type, operation][1]
        withs = {slot: (self.question.withs or {})[slot] for slot in slots}
        request = Request(
            user="",
            action=operation,
            resource=entity,
            with_=withs,
            flags=self.question.flags,
            attributes=self.question.attributes,
        )
        located = self.engine.located(request)
        if located is None:  # no row of the state tells where the entity lies, so nothing is allowed
            return
        plan, paths = located
        rule = self.program["rules"][entity.type][operation]
        reader, semantics, index = self.engine.reader, self.engine.semantics, self.engine.index
        callers = self._callers_of(request, slots)
        for number in self._concerned(callers[-1], plan, paths):
            subject, caller = self.subjects[number], callers[number]
            if subject.user is not None and not plan.holds(caller, paths):
                continue
            entitlement = Entitlement(rule, plan.form, caller, paths, reader, semantics, index, subject)
            ways = entitlement.ways()
            if subject.user is not None and not ways:
                raise AssertionError(
                    f"{entity.type}/{operation}: allowed by its condition and by none of its minimal sets"
                )
            for way in ways[:1] if self.question.ways == "first" else ways:
                yield {
                    "principal": subject.principal,
                    "user": subject.user,
                    "operation": operation,
                    "type": entity.type,
                    "path": entity.id,
                    **entitlement.columns(way),
                }

    def _callers_of(self, request: Request, slots: tuple[str, ...]) -> list[Caller]:
        """Each subject as a caller, and as the last one, somebody who holds nothing. Given attributes depend on the objects, which are the same in all requests."""
        key = slots if request.attributes else ()
        if key not in self._callers:
            index, semantics = self.engine.index, self.engine.semantics
            values = RequestValues.of(request, slots, index)
            self._callers[key] = [
                Caller(
                    user=subject.user or "",
                    principals=subject.principals,
                    scopes=subject.scopes if semantics.roles else {},
                    active=subject.principals,
                    values=_of_user(values, index.user_attributes.get(subject.user or "")),
                )
                for subject in (*self.subjects, NOBODY)
            ]
        return self._callers[key]

    def _concerned(self, caller_without_rights: Caller, plan: Plan, paths: Mapping[str, list[str]]) -> Sequence[int]:
        """The subjects whose answer may differ from that of a user who holds nothing, or all if that user is allowed."""
        if plan.holds(caller_without_rights, paths):
            return range(len(self.subjects))
        found = set(self._always)
        if any(operand.of == "user" for _, comparison in plan.comparisons for operand in comparison.operands):
            found |= self._with_attributes
        for path in {path for beginnings in paths.values() for path in beginnings}:
            found |= self._holders_of(path)
        return sorted(found)

    def _holders_of(self, path: str) -> frozenset[int]:
        """The subjects that hold something on an entity with this path, or within it as a scope, belong to it, or bear its name."""
        known = self._holders.get(path)
        if known is None:
            if len(self._holders) >= KNOWN:
                self._holders.clear()
            known = self._holders[path] = frozenset(self._find_holders(path))
        return known

    def _find_holders(self, path: str) -> Iterator[int]:
        index = self.engine.index
        # A condition may look at any type that has the path: at a `single` one within the resource, too.
        for type_ in self.program["entities"]:
            key = f"{type_}:{path}"
            below = (entries[key] for entries in index.below.values() if key in entries)
            for holders in (index.table(type_).get(path, {}), index.owned_below.get(key, {}), *below):
                for principal in holders:
                    yield from self._by_principal.get(principal, ())
            for user in index.members.get(type_, {}).get(path, ()):
                yield from self._by_name.get(user, ())
            yield from self._by_scope.get(key, ())
        for name in {last_name(path), path}:
            yield from self._by_name.get(name, ())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_callers": {}, "_holders": {}}


def _of_user(values: RequestValues, of_user: Mapping[str, object] | None) -> RequestValues:
    return values if of_user is None else replace(values, of_user=of_user)
