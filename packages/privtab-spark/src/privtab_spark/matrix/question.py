"""The question that a matrix answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from privtab.base import (
    NOT_SET,
    Entity,
    GivenAttributes,
    InvalidRequest,
    UsageError,
    Vocabulary,
    hint,
)

Ways: TypeAlias = Literal["first", "all"]

AttributesLike: TypeAlias = "GivenAttributes | Mapping[str, Any] | None"
"""As the attributes of a request: `{"request": {NAME: VALUE}, "with": {SLOT: {NAME: VALUE}}}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question about every entity. `operations`: names (`load`, `table/load`); None: all. `withs`: objects by slot."""

    operations: frozenset[str] | None = None
    withs: Mapping[str, Entity] | None = None
    flags: frozenset[str] = frozenset()
    attributes: GivenAttributes = GivenAttributes.NONE
    """The attributes that every request gives: of the request itself and of `with` objects."""
    ways: Ways = "first"

    @classmethod
    def of(
        cls,
        operations: Iterable[str] | None,
        with_: Mapping[str, str | Entity] | None,
        flags: Iterable[str],
        attributes: AttributesLike,
        ways: Ways = "first",
    ) -> Question:
        """The question by the arguments of `entitlements`. Raises UsageError."""
        return cls(
            operations=None if operations is None else frozenset(listed(operations, "operations")),
            withs=objects(with_),
            flags=frozenset(listed(flags, "flags")),
            attributes=given(attributes),
            ways=ways,
        )


def listed(names: Iterable[str], what: str) -> list[str]:
    """Names as a list; raises UsageError for a string, which would be split into letters."""
    if isinstance(names, str):
        raise UsageError(f"{what} is the text `{names}`: give a list of names")
    return list(names)


def objects(with_: Mapping[str, str | Entity] | None) -> dict[str, Entity]:
    """The `with` objects by slot; raises UsageError for a string that is no entity."""
    return {slot: e if isinstance(e, Entity) else _entity(slot, e) for slot, e in (with_ or {}).items()}


def _entity(slot: str, text: str) -> Entity:
    try:
        return Entity.parse(text)
    except ValueError as error:
        raise UsageError(f"with_ `{slot}`: {error}") from error


def given(attributes: AttributesLike) -> GivenAttributes:
    """Read the argument `attributes`. Raises UsageError."""
    try:
        return GivenAttributes.read(attributes or {})
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
    for flag in sorted({flag.removesuffix(NOT_SET) for flag in question.flags} - flags):
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
        for name, value in given.request.items():
            declared.requested("request", name, value)
        for slot, values in given.with_.items():
            object_ = withs.get(slot)
            if object_ is None:
                raise UsageError(f"the attributes of `{slot}` are those of an object that is not given: `with_`")
            for name, value in values.items():
                declared.requested("entity", name, value, of_type=object_.type, what=f"`{slot}`")
    except InvalidRequest as error:
        raise UsageError(str(error)) from error
