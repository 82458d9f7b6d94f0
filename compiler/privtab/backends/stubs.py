"""Typed Python for the callers of one policy: wrong names, types and `with` objects are errors for their type checker."""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, assert_never

from privtab._resources import environment
from privtab.attributes import Attribute, Attributes
from privtab.backends import Compilation
from privtab.ir.names import filter_lists, filter_of
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.ir.support import Tool, check_support
from privtab.names import LEFT_OUT
from privtab.request import NOT_SET
from privtab.sql_text import FILTER_KINDS
from privtab.vocabulary import OperationShape

if TYPE_CHECKING:
    from jinja2 import Environment


def render(program: Program) -> str:
    """The typed module for callers of a policy; the same policy gives the same text."""
    check_support(program, Tool.STUBS)
    text = _environment().get_template("module.py.j2").render(module=view(program))
    return text.rstrip("\n") + "\n"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    templates = environment("stubs")
    templates.filters["quoted"] = quoted
    return templates


def quoted(value: str) -> str:
    """A text as a Python literal, which cannot contain line breaks."""
    return json.dumps(value) if value.isascii() else ascii(value)


_RESERVED = (
    *("Any", "Asker", "AsyncAsker", "Decision", "Entity", "EntityType", "Final", "Iterable", "Literal", "Request"),
    *("Sequence", "StrEnum", "SYSTEM", "TYPE_CHECKING", "TypeAlias", "TypedDict", "TypedEntity", "VERSION"),
    *("bool", "cast", "classmethod", "final", "list", "overload", "path_of", "str", "tuple"),
)
_RESERVED_PARAMETERS = ("cls", "self")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member of an enum."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WithView:
    """A `with` object: its key, and the classes that it may have."""

    name: str
    classes: tuple[str, ...]
    optional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesView:
    """A mapping of the attributes that requests give: its alias, and the annotation of each key."""

    alias: str
    keys: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """Operations of one type whose requests have the same form."""

    alias: str
    entity: str
    """The class of the resource."""
    operations: tuple[MemberView, ...]
    enum: str
    with_alias: str | None
    withs: tuple[WithView, ...]
    flags: tuple[str, ...]
    flags_required: bool
    """Whether a request must state some of them."""
    all_optional: bool
    """Whether a request may leave out all objects."""
    values: tuple[ValuesView, ...] = ()
    """The attributes that a request gives, that of the whole request last; empty if it gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterView:
    """A name of a path or, of a type that nests, the names of all its levels."""

    name: str
    nested: bool = False
    optional: bool = False

    @property
    def declared(self) -> str:
        """As a parameter. A tuple is asked for since a text would pass for an iterable of its letters."""
        return f"{self.name}: {'tuple[str, ...]' if self.nested else 'str'}{' = ()' if self.optional else ''}"

    @property
    def argument(self) -> str:
        """As an argument."""
        return f"*{self.name}" if self.nested else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityView:
    """An entity type."""

    name: str
    class_name: str
    path: str
    """For documentation: `catalog/schema`."""
    parameters: tuple[ParameterView, ...]
    """The names of a path, from the root down."""
    within: tuple[ParameterView, ...] | None
    """Those without the last one, if some operation allows its omission."""
    containers: tuple[str, ...]
    """The classes of what contains an entity, if its id is flat: `within` takes one of these."""
    ending: str
    """What follows them: `/` if a type on the path nests."""
    enum: str
    operations: tuple[MemberView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleView:
    """The module."""

    system: str
    version: str
    client: str
    async_client: str
    request_groups: bool
    """Whether groups in requests count."""
    active_roles: bool
    """Whether requests may name active roles."""
    types: tuple[MemberView, ...]
    entities: tuple[EntityView, ...]
    values: tuple[ValuesView, ...]
    """The attributes of users, of requests and of each type that requests give."""
    groups: tuple[GroupView, ...]
    filtered: Mapping[str, tuple[str, ...]]
    """The classes of the types that have row filters, and of those that have column masks, by the kind."""

    @property
    def optional_objects(self) -> bool:
        """Whether some request may leave out an object."""
        return any(slot.optional for group in self.groups for slot in group.withs)


def view(program: Program) -> ModuleView:
    """The view of a program; entities, operations and groups in the order of the policy."""
    names = _UniqueNames(_RESERVED)
    client = names.take(_pascal(program.system))
    async_client = names.take(f"Async{client}")
    classes = {name: names.take(_pascal(name)) for name in program.entities}
    enums = {name: names.take(f"{classes[name]}Operation") for name in program.entities}
    known = vocabulary(program)
    given = _GivenValues(program.attributes.from_origin("request"), classes)
    entities: list[EntityView] = []
    all_groups: list[GroupView] = []
    for name in program.entities:
        shapes = {
            operation: shape
            for operation, shape in known.operations.get(name, {}).items()
            if filter_of(program, name, operation) is None  # asked by `row_filter` and `column_masks`
        }
        members = dict(zip(shapes, _members(shapes), strict=True))
        groups = _groups(classes[name], enums[name], shapes, members, classes, given)
        parameters = _parameters(program, name)
        entities.append(
            EntityView(
                name=name,
                class_name=classes[name],
                path=known.shapes[name].example()
                if known.shapes[name].nested is not None or known.shapes[name].flat is not None
                else "/".join(_named(program, name)),
                parameters=parameters,
                within=_within(parameters) if any(shape.unnamed for shape in shapes.values()) else None,
                containers=tuple(classes[type_] for type_ in known.containers(name)) if name in known.flat else (),
                ending="" if known.shapes[name].nested is None or known.shapes[name].flat is not None else "/",
                enum=enums[name],
                operations=tuple(members.values()),
            )
        )
        all_groups += groups
    return ModuleView(
        system=program.system,
        version=program.version,
        client=client,
        async_client=async_client,
        request_groups=known.request_groups,
        active_roles=known.active_roles,
        types=tuple(_members(program.entities)),
        entities=tuple(entities),
        values=given.all,
        groups=tuple(all_groups),
        filtered={
            kind: tuple(classes[type_] for type_, of_kind in filter_lists(program) if of_kind == kind)
            for kind in FILTER_KINDS
        },
    )


def _groups(
    class_name: str,
    enum: str,
    shapes: dict[str, OperationShape],
    members: dict[str, MemberView],
    classes: dict[str, str],
    given: _GivenValues,
) -> tuple[GroupView, ...]:
    """Group the operations of a type by the `with` objects and flags of their requests."""
    by_shape: dict[tuple[object, ...], list[str]] = {}
    for operation, shape in shapes.items():
        key = (tuple(sorted(shape.withs.items())), tuple(sorted(shape.flags)), shape.required_flags)
        by_shape.setdefault(key, []).append(operation)
    found: list[GroupView] = []
    for number, operations in enumerate(by_shape.values(), 1):
        shape = shapes[operations[0]]
        found.append(
            GroupView(
                alias=f"_{class_name}Asked{number}",
                entity=class_name,
                operations=tuple(members[operation] for operation in operations),
                enum=enum,
                with_alias=f"_{class_name}Beside{number}" if shape.withs else None,
                withs=tuple(
                    WithView(
                        name=slot,
                        classes=tuple(classes[type_] for type_ in types if type_ != LEFT_OUT),
                        optional=LEFT_OUT in types,
                    )
                    for slot, types in sorted(shape.withs.items())
                ),
                flags=tuple(sorted((*shape.flags, *(f"{flag}{NOT_SET}" for flag in shape.required_flags)))),
                flags_required=bool(shape.required_flags),
                all_optional=all(LEFT_OUT in types for types in shape.withs.values()),
                values=given.of(f"_{class_name}Values{number}", class_name, shape.withs),
            )
        )
    return tuple(found)


class _GivenValues:
    """The mappings of the attributes that requests give."""

    def __init__(self, declared: Attributes, classes: Mapping[str, str]) -> None:
        self._classes = classes
        of_types = {classes[type_]: declared.declared_on(type_) for type_ in classes}
        named = {"_Values_user": declared.user, "_Values_request": declared.request}
        named |= {f"_ValuesOf{class_name}": attributes for class_name, attributes in of_types.items()}
        self.all = tuple(
            ValuesView(alias=alias, keys=tuple((name, _annotation(a)) for name, a in attributes.items()))
            for alias, attributes in named.items()
            if attributes
        )
        self._known = {values.alias for values in self.all}

    def of(self, alias: str, class_name: str, withs: Mapping[str, Iterable[str]]) -> tuple[ValuesView, ...]:
        """Those of a group of requests about entities of a class; empty if it gives none."""
        keys = [("user", "_Values_user"), ("entity", f"_ValuesOf{class_name}"), ("request", "_Values_request")]
        keys = [(key, values) for key, values in keys if values in self._known]
        of_slots: list[tuple[str, str]] = []
        for slot, types in sorted(withs.items()):
            options = [f"_ValuesOf{self._classes[type_]}" for type_ in types if type_ != LEFT_OUT]
            of_slots += [(slot, " | ".join(found))] if (found := [o for o in options if o in self._known]) else []
        views = [ValuesView(alias=f"{alias}With", keys=tuple(of_slots))] if of_slots else []
        keys += [("with", f"{alias}With")] if of_slots else []
        return (*views, ValuesView(alias=alias, keys=tuple(keys))) if keys else ()


def _annotation(attribute: Attribute) -> str:
    """The type of the values of an attribute."""
    words = f"Literal[{', '.join(json.dumps(value) for value in attribute.values)}]"
    match attribute.type:
        case "text":
            return "str"
        case "bool":
            return "bool"
        case "integer":
            return "int"
        case "enum":
            return words
        case "set":
            return f"Sequence[{words}]"
        case _:
            assert_never(attribute.type)


def _named(program: Program, name: str) -> list[str]:
    """The types that add a name to a path; a type that is single per parent adds none."""
    found: list[str] = []
    for link in program.chain(name):
        if program.depth(link) > len(found):
            found.append(link)
    # An id that is flat begins the path anew.
    last_flat = max((position for position, link in enumerate(found) if program.entities[link].flat), default=0)
    return found[last_flat:]


def _parameters(program: Program, name: str) -> tuple[ParameterView, ...]:
    names = _UniqueNames(_RESERVED_PARAMETERS)
    return tuple(
        ParameterView(
            name=names.take(f"{type_}_" if keyword.iskeyword(type_) else type_),
            nested=bool(program.entities[type_].nested and not program.entities[type_].flat),
        )
        for type_ in _named(program, name)
    )


def _within(parameters: tuple[ParameterView, ...]) -> tuple[ParameterView, ...]:
    """The parameters without the last name; what a type that nests lies in may have any number of levels."""
    if not parameters:
        return ()
    *others, last = parameters
    return (*others, replace(last, optional=True)) if last.nested else tuple(others)


def _members(values: Iterable[str]) -> list[MemberView]:
    names = _UniqueNames(())
    return [MemberView(name=names.take(value.upper()), value=value) for value in values]


class _UniqueNames:
    """Issues each name once; a repeated name gets a trailing `_`."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._used = {*reserved, *keyword.kwlist}

    def take(self, name: str) -> str:
        """The name, or the next free one."""
        while name in self._used:
            name += "_"
        self._used.add(name)
        return name


def _pascal(name: str) -> str:
    """`job_group` → `JobGroup`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def files(policy: Compilation) -> Mapping[str, str]:
    """One module, which imports only privtab's base install."""
    return {f"{policy.name}.py": render(policy.program)}
