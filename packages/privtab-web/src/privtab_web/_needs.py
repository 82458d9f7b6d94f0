"""Templates of requests, filled with the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, TypeAlias
from uuid import UUID

from privtab.base import NOT_SET, Entity, InvalidRequest, UsageError, encode_name
from privtab.client import EntityLike, as_entity

EntityTemplate: TypeAlias = str | tuple[str, str] | Callable[..., EntityLike]
"""An entity: `"table:{catalog}/{schema}/{table}"`, where each argument is one name of the path; `("table", "table_id")`, where
the argument is the whole path, a list of unencoded names or an Entity; or a function of arguments of the call, by name."""

Filler: TypeAlias = Callable[[Mapping[str, Any]], Entity]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledRequest:
    """The request for one call."""

    action: str
    resource: Entity
    with_: Mapping[str, Entity]
    flags: tuple[str, ...]

    def details(self) -> dict[str, Any]:
        """The objects and flags, as keyword arguments of a client's methods."""
        return {"with_": self.with_, "flags": self.flags}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTemplate:
    """A template of a request; `names` are the arguments it needs."""

    action: str
    names: frozenset[str]
    type_: str | None
    """The type of the resource; None if a function of the arguments gives it."""
    resource: Filler
    with_: Mapping[str, Filler]
    flags: tuple[str, ...]
    flags_by: Mapping[str, str]
    """Flags that are set if an argument is true."""

    def fill(self, values: Mapping[str, Any]) -> FilledRequest:
        """The request for these arguments; raises InvalidRequest for one that is not a name, path or entity."""
        flags = [flag if values[name] else f"{flag}{NOT_SET}" for flag, name in self.flags_by.items()]
        return FilledRequest(
            action=self.action,
            resource=self.resource(values),
            with_={name: filler(values) for name, filler in self.with_.items()},
            flags=(*self.flags, *flags),
        )


def request_template(
    action: str,
    resource: EntityTemplate,
    arg: str | None = None,
    with_: Mapping[str, EntityTemplate] | None = None,
    flags: Iterable[str] | Mapping[str, str] = (),
) -> RequestTemplate:
    """Build a template from the arguments of `requires`; raises UsageError if it can never be filled."""
    if not action:
        raise UsageError("the operation has no name")
    if isinstance(flags, str):
        raise UsageError(f"flags are a list of names, not `{flags}`")
    if arg is not None:
        if not isinstance(resource, str) or ":" in resource:
            raise UsageError(f"beside `arg`, the resource is a type alone, not {resource!r}")
        resource = (resource, arg)
    filler, names_of_resource, type_ = _filler(resource, "the resource")
    fillers: dict[str, Filler] = {}
    names = set(names_of_resource)
    for name, place in (with_ or {}).items():
        fillers[name], names_of_place, _ = _filler(place, f"with_[{name!r}]")
        names |= names_of_place
    flags_by = dict(flags) if isinstance(flags, Mapping) else {}
    return RequestTemplate(
        action=action,
        names=frozenset(names.union(flags_by.values())),
        type_=type_,
        resource=filler,
        with_=fillers,
        flags=() if flags_by else tuple(flags),
        flags_by=flags_by,
    )


def _filler(place: EntityTemplate, where: str) -> tuple[Filler, frozenset[str], str | None]:
    """Return the filler for the place of an entity, the arguments that the filler needs, and the type."""
    match place:
        case str():
            return _template(place, where)
        case (str(type_), str(name)):
            return (lambda values: _entity_from_argument(type_, values[name], name)), frozenset({name}), type_
        case _ if callable(place):
            return *_function(place), None
        case _:
            raise UsageError(f"{where} is {place!r}: write `type:{{argument}}`, a pair (type, argument) or a function")


def _template(text: str, where: str) -> tuple[Filler, frozenset[str], str]:
    """A template such as `table:{catalog}/{schema}/{table}`."""
    type_, colon, path = text.partition(":")
    if not type_ or not colon or "{" in type_:
        raise UsageError(f"{where} is `{text}`: write `type:{{argument}}`, or a type and `arg`")
    try:
        parts = [(literal, name) for literal, name, spec, conversion in Formatter().parse(path)]
        has_format = any(spec or conversion for _, name, spec, conversion in Formatter().parse(path))
    except ValueError as error:
        raise UsageError(f"{where} is `{text}`: {error}") from None
    names = [name for _, name in parts if name is not None]
    if has_format or not all(name.isidentifier() for name in names):
        raise UsageError(f"{where} is `{text}`: write the name of an argument between the braces")

    def fill(values: Mapping[str, Any]) -> Entity:
        path = "".join(
            literal + ("" if name is None else encode_name(_text(values[name], name))) for literal, name in parts
        )
        return Entity(type_, path)

    return fill, frozenset(names), type_


def _function(function: Callable[..., EntityLike]) -> tuple[Filler, frozenset[str]]:
    from inspect import Parameter, signature

    parameters = signature(function).parameters
    if any(
        parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        for parameter in parameters.values()
    ):
        raise UsageError("a function that gives the entity takes arguments of the call by their names")

    def fill(values: Mapping[str, Any]) -> Entity:
        return as_entity(function(**{name: values[name] for name in parameters}))

    return fill, frozenset(parameters)


def _entity_from_argument(type_: str, value: object, name: str) -> Entity:
    """The entity from an argument that is a path, a list of unencoded names, or an Entity of the type."""
    if isinstance(value, list | tuple):
        return as_entity((type_, value), f"`{name}`")
    if isinstance(value, Entity):
        if value.type != type_:
            raise InvalidRequest(f"`{name}` is the {value.type} {value}, not a `{type_}`")
        return value
    return Entity(type_, _text(value, name))


def _text(value: object, name: str) -> str:
    """An argument as text; raises InvalidRequest for an empty one, which would give another path."""
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"`{name}` is {value!r}; it must be a non-empty string")
    return value
