"""Requests from the arguments of the clients' methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

from privtab.base.attributes import GivenAttributes
from privtab.base.errors import InvalidRequest
from privtab.base.names import encode_name
from privtab.base.request import NOT_SET, Entity, Request, exact
from privtab.client._protocol import ActiveSystem, read_active_system

Item = TypeVar("Item")
EntityLike: TypeAlias = Entity | str | tuple[str, str | Sequence[str]]
"""An entity as callers pass it: `Entity`, `"table:m/c/s/t"`, `("table", "m/c/s/t")` or, with unencoded names,
`("table", ["m", "c", "s", "t"])`: `resource: EntityLike`."""

_NOTHING_MORE: tuple[Any, ...] = ((), {}, frozenset(), GivenAttributes.NONE)


def as_entity(value: object, where: str = "resource") -> Entity:
    """Read an EntityLike; raises InvalidRequest. `where`: what messages call the entity.

    >>> as_entity("table:m/t") == as_entity(("table", ["m", "t"])) == Entity("table", "m/t")
    True
    """
    match value:
        case Entity(type=str(), id=str()):
            is_exact = type(value) is Entity and type(value.type) is type(value.id) is str
            return value if is_exact else exact(value)
        case str():
            try:
                return Entity.parse(exact(value))
            except ValueError as error:
                raise InvalidRequest(f"{where}: {error}") from None
        case (str(type_), str(id_)):
            return Entity(exact(type_), exact(id_))
        case (str(type_), list() | tuple() as names):
            return named(exact(type_), exact(names), where)
        case _:
            raise InvalidRequest(
                f"{where} is {value!r}: write `type:path`, a pair (type, path), a pair (type, list of names) or an Entity"
            )


def named(type_: str, names: Sequence[object], where: str) -> Entity:
    """The entity with these unencoded names, from the root down; raises InvalidRequest unless each is a non-empty string."""
    for name in names:
        _text(name, f"a name of {where}")
    return Entity(type_, "/".join(map(encode_name, names)))  # type: ignore[arg-type]


class Details(TypedDict, total=False):
    """The parts of a request beside user, action and resource: the keyword arguments of the clients' methods.

    >>> details: Details = {"groups": ["hr"], "flags": {"force": True}}
    """

    with_: Mapping[str, EntityLike] | None
    """Further objects, by the names that the operation gives them."""
    groups: Iterable[str]
    """The caller's groups, beside the state's."""
    flags: Iterable[str] | Mapping[str, bool]
    """The flags that are set, or each with its value."""
    active_roles: Iterable[str] | None
    """The roles to which the caller's are narrowed; None: all count."""
    attributes: Mapping[str, Any] | None
    """Values of attributes: `{"user": {NAME: VALUE}, "entity": {…}, "request": {…}, "with": {OBJECT: {…}}}`."""


def request(user: object, action: object, resource: object, **details: Unpack[Details]) -> Request:
    """Build a request from the arguments of a call; raises InvalidRequest if one is missing or of the wrong type."""
    if isinstance(user, Request):
        if action is not None or resource is not None or (details and request_details(**details) != _NO_DETAILS):
            raise InvalidRequest(
                "a Request takes no further arguments: it holds action, resource, with_, groups, flags, active_roles and "
                "attributes already"
            )
        return well_formed(user)
    return well_formed(
        Request(
            user=user,  # type: ignore[arg-type]
            action=action,  # type: ignore[arg-type]
            resource=as_entity(resource),
            **request_details(**details),
        )
    )


def request_details(
    *,
    with_: Mapping[str, EntityLike] | None = None,
    groups: Iterable[str] = (),
    flags: Iterable[str] | Mapping[str, bool] = (),
    active_roles: Iterable[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The objects, groups, flags, active roles and attributes of a request; raises InvalidRequest."""
    if with_ is not None and not isinstance(with_, Mapping):
        raise InvalidRequest(f"with_ is a {type(with_).__name__}; it must be a mapping of names to entities")
    return {
        "groups": _names(groups, "groups") if groups != () else (),
        "with_": {name: as_entity(value, f"with_[{name!r}]") for name, value in with_.items()} if with_ else {},
        "flags": frozenset(_names(_flag_names(flags), "flags")) if flags != () else frozenset(),
        "active_roles": None if active_roles is None else _names(active_roles, "active_roles"),
        **({"attributes": GivenAttributes.read(attributes)} if attributes else {}),
    }


_NO_DETAILS = request_details()


def _flag_names(flags: Iterable[str] | Mapping[str, bool]) -> Iterable[str]:
    """Flags as in a request, false ones with a suffix; raises InvalidRequest for a value other than True or False."""
    if not isinstance(flags, Mapping):
        return flags
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidRequest(f"the flag `{name}` is {value!r}; say True or False")
    return [name if value else f"{name}{NOT_SET}" for name, value in flags.items()]


def well_formed(value: object) -> Request:
    """Return the request unchanged; raises InvalidRequest if a part is null, empty or of the wrong type."""
    if not isinstance(value, Request):
        raise InvalidRequest(f"{value!r} is not a Request")
    resource = value.resource
    if (
        type(resource) is Entity
        and type(value.user) is type(value.action) is type(resource.type) is type(resource.id) is str
        and value.user
        and value.action
        and (value.groups, value.with_, value.flags, value.attributes) == _NOTHING_MORE
        and value.active_roles is None
    ):
        return value  # the common case; the rest finds out what is wrong
    _text(value.user, "user")
    _text(value.action, "action")
    _entity(value.resource, "resource")
    _names(value.groups, "groups")
    if not isinstance(value.with_, Mapping):
        raise InvalidRequest(f"with_ is a {type(value.with_).__name__}; it must be a mapping of names to entities")
    for name, entity_value in value.with_.items():
        _text(name, "a name in with_")
        _entity(entity_value, f"with_[{name!r}]")
    if not isinstance(value.flags, AbstractSet):
        raise InvalidRequest(f"flags are a {type(value.flags).__name__}; they must be a frozenset of names")
    _names(value.flags, "flags")
    if value.active_roles is not None:
        _names(value.active_roles, "active_roles")
    if not isinstance(value.attributes, GivenAttributes):
        raise InvalidRequest(f"attributes are a {type(value.attributes).__name__}; they must be GivenAttributes")
    return value


def check_context(request: Request, active: ActiveSystem) -> None:
    """Raise InvalidRequest for a flag that no operation reads, and for active roles if the policy does not read them.

    Both only narrow what is allowed, so ignoring one would allow more than the caller intended.
    """
    if request.active_roles is not None and not active.vocabulary.active_roles:
        raise InvalidRequest(
            f"system `{active.system}` does not let requests name active roles: its policy needs `semantics: {{active_roles: request}}`"
        )
    for flag in request.flags:
        if flag.removesuffix(NOT_SET) not in active.flags:
            names = ", ".join(f"`{name}`" for name in sorted(active.flags)) or "none"
            raise InvalidRequest(f"unknown flag `{flag}`; flags of system `{active.system}`: {names}")


def checked_request(
    program: Mapping[str, Any], user: object, action: object, resource: object, **details: Unpack[Details]
) -> Request:
    """Build a request, and check the request against the program of a policy bundle; raises InvalidRequest, PolicyError.

    Ask an engine in process as a client does:

        checked_request(artifacts.program, "alice", "load", "table:m/c/s/t")
    """
    found = request(user, action, resource, **details)
    active = read_active_system(str(program.get("system")), program)
    active.vocabulary.check(found)
    check_context(found, active)
    return found


def _entity(value: object, where: str) -> None:
    if not isinstance(value, Entity):
        raise InvalidRequest(f"{where} of a Request is {value!r}; it must be an Entity")
    as_entity(value, where)


def _text(value: object, where: str) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{where} is {value!r}; it must be a non-empty string")


def _names(values: object, where: str) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidRequest(f"{where} is a {type(values).__name__}; it must be a list of names")
    names = tuple(values)
    for name in names:
        _text(name, f"a name in {where}")
    return names


def items_of(type_or_items: str | Iterable[Item], items: Iterable[Item] | None) -> list[Item]:
    """The items of a listing, as given."""
    if isinstance(type_or_items, str):
        if items is None:
            raise InvalidRequest("visible needs the items of the listing")
        return list(items)
    if items is not None:
        raise InvalidRequest("visible takes a type and its items, or items alone")
    return list(type_or_items)


def entities(type_or_items: str | Iterable[Item], items: Sequence[Item]) -> tuple[str | None, list[Entity]]:
    """The type of a listing, None where it has neither items nor type, and the items as entities."""
    if isinstance(type_or_items, str):
        return type_or_items, [_item(item, type_or_items, index) for index, item in enumerate(items)]
    entities = [as_entity(item, f"item {index}") for index, item in enumerate(items)]
    return entities[0].type if entities else None, entities


def _item(item: object, type_: str, index: int) -> Entity:
    """An item of a listing of a known type: a string is a path, a list holds unencoded names."""
    if isinstance(item, list):
        return named(type_, item, f"item {index}")
    if not isinstance(item, str):
        return as_entity(item, f"item {index}")
    if item.startswith(f"{type_}:"):
        raise InvalidRequest(f"item {index} is `{item}`: beside a type, write paths alone")
    return exact(Entity(type_, item))  # type: ignore[no-any-return]


def item_request(
    user: object,
    action: object,
    item: Item,
    key: Callable[[Item], EntityLike] | None,
    details: Mapping[str, Any],
    index: int,
) -> Request:
    try:
        return request(user, action, item if key is None else key(item), **details)
    except InvalidRequest as error:
        raise InvalidRequest(f"item {index}: {error}") from None
