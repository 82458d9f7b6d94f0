"""The question that a matrix answers, and what every matrix of it has in common."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from privtab.attributes import NONE_GIVEN, GivenAttributes, check_given, given_attributes
from privtab.errors import InvalidRequest, UsageError
from privtab.hints import hint
from privtab.request import NOT_SET, Entity, flag_name
from privtab.spark.matrix.ways import LINKS
from privtab.vocabulary import Vocabulary

LOG = logging.getLogger("privtab.spark")

Ways: TypeAlias = Literal["first", "all"]

AttributesLike: TypeAlias = "GivenAttributes | Mapping[str, Any] | None"
"""As the attributes of a request: `{"request": {NAME: VALUE}, "with": {SLOT: {NAME: VALUE}}}`."""

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
class Question:
    """What to compute for every entity. `operations`: names (`load`, `table/load`); None: all. `withs`: objects by slot."""

    operations: frozenset[str] | None = None
    withs: Mapping[str, Entity] | None = None
    flags: frozenset[str] = frozenset()
    attributes: GivenAttributes = NONE_GIVEN
    """Those that every request gives: of the request itself and of `with` objects."""
    ways: Ways = "first"


def given(attributes: AttributesLike) -> GivenAttributes:
    """Read the argument `attributes`. Raises UsageError."""
    try:
        return given_attributes(attributes or {})
    except InvalidRequest as error:
        raise UsageError(str(error)) from error


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
        if is_requested and shape.needs_active_role:
            raise UsageError(f"`{name}` needs an active role in each request: name the other operations")
    slots = {slot for shape in shapes.values() for slot in shape.withs}
    for slot, entity in (question.withs or {}).items():
        if slot not in slots:
            raise UsageError(f"no operation has a `with` object `{slot}`" + hint(slot, sorted(slots)))
        try:
            vocabulary.check_path(entity)
        except InvalidRequest as error:
            raise UsageError(f"`{slot}`: {error}") from error
    check_attributes(question.attributes, question.withs or {}, vocabulary)


def check_attributes(given: GivenAttributes, withs: Mapping[str, Entity], vocabulary: Vocabulary) -> None:
    """Raise UsageError for attributes that requests with these objects do not give alike."""
    declared = vocabulary.attributes
    if given.user or given.entity:
        what = "users" if given.user else "resources"
        raise UsageError(f"a matrix is about many {what}: their attributes come from the state alone")
    try:
        check_given(given.request, declared.request, "the request")
        for slot, values in given.with_.items():
            object_ = withs.get(slot)
            if object_ is None:
                raise UsageError(f"the attributes of `{slot}` are those of an object that is not given: `with_`")
            check_given(values, declared.declared_on(object_.type), f"`{slot}`")
    except InvalidRequest as error:
        raise UsageError(str(error)) from error


class Matrix:
    """The matrix of one question: the rows of any entities, and what is not among them."""

    def __init__(
        self,
        program: Mapping[str, Any],
        vocabulary: Vocabulary,
        users: Iterable[str | None],
        revision: str,
        question: Question,
    ) -> None:
        """`program`: the program's JSON, as in the policy bundle. `users`: by subject; None for a group or a role. `revision`: the state's.

        Raises UsageError for a question with names that are unknown to the policy.
        """
        self.program = program
        self.vocabulary = vocabulary
        self.users = [user for user in users if user is not None]
        self.revision = revision
        self.question = question
        check(question, vocabulary)

    def of(self, keys: Iterable[str | None]) -> Iterator[pa.RecordBatch]:
        """The rows of entities (`type:path`); keys that are no entities of the policy are skipped."""
        raise NotImplementedError

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
        """Why an operation is not in the matrix: an object is missing or of another type, or there are too many minimal sets."""
        shape = self.vocabulary.operations[type_][operation]
        for slot, types in shape.withs.items():
            object_ = (self.question.withs or {}).get(slot)
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
