"""Build requests to OPA and read its answers: pure functions, shared by every sender.

A `Call` describes one HTTP exchange. Its sender passes the body of the answer to `read`, which returns a typed answer
and raises PolicyError for any other shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack

from privtab.attributes import NONE_GIVEN, GivenAttributes, given_attributes
from privtab.client import _answers as answers
from privtab.client._answers import (
    ActiveSystem,
    Inactive,
    Revision,
    check_status,
    excerpt,
    no_bundle,
    no_shard,
    read_active_system,
    read_allow,
    read_decision,
    read_decisions,
    read_explained,
    read_inactive,
    read_layout,
    read_program,
    read_programs,
    read_result,
    read_revision,
    read_status,
    read_system,
    read_truth,
    read_visible,
)
from privtab.errors import InvalidRequest, UsageError
from privtab.moments import WINDOWED
from privtab.request import NOT_SET, Decision, Entity, Request, exact, flag_name
from privtab.typed import path_of
from privtab.vocabulary import Vocabulary

T = TypeVar("T")

__all__ = [  # re-exported from `_answers`
    "ActiveSystem",
    "Inactive",
    "Revision",
    "check_status",
    "excerpt",
    "no_bundle",
    "no_shard",
    "read_active_system",
    "read_allow",
    "read_decision",
    "read_decisions",
    "read_explained",
    "read_inactive",
    "read_layout",
    "read_program",
    "read_programs",
    "read_result",
    "read_revision",
    "read_status",
    "read_system",
    "read_visible",
]

EntityLike: TypeAlias = Entity | str | tuple[str, str | Sequence[str]]
"""An entity as callers pass it: `Entity`, `"table:m/c/s/t"`, `("table", "m/c/s/t")` or, with unencoded names,
`("table", ["m", "c", "s", "t"])`."""

HEALTH_PATH = "/health?bundles=true"
STATUS_PATH = "/v1/status"
_NOTHING_MORE: tuple[Any, ...] = ((), {}, frozenset(), NONE_GIVEN)
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One HTTP exchange: its path, the body to send (None for a GET), and the reader of the answer."""

    path: str
    body: bytes | None
    read: Callable[[bytes], T]


# --- arguments → request ---------------------------------------------------------------------------------------------


def entity(value: object, where: str = "resource") -> Entity:
    """Read an EntityLike; raises InvalidRequest."""
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
    return Entity(type_, path_of(*names))  # type: ignore[arg-type]


class Details(TypedDict, total=False):
    """What a request can say beside user, action and resource: the keyword arguments of the clients' methods."""

    with_: Mapping[str, EntityLike] | None
    """Further objects, by the names that the operation gives them."""
    groups: Iterable[str]
    """The caller's groups, beside those of the state."""
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
            resource=entity(resource),
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
        "with_": {name: entity(value, f"with_[{name!r}]") for name, value in with_.items()} if with_ else {},
        "flags": frozenset(_names(_flag_names(flags), "flags")) if flags != () else frozenset(),
        "active_roles": None if active_roles is None else _names(active_roles, "active_roles"),
        **({"attributes": given_attributes(attributes)} if attributes else {}),
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
        if flag_name(flag) not in active.flags:
            names = ", ".join(f"`{name}`" for name in sorted(active.flags)) or "none"
            raise InvalidRequest(f"unknown flag `{flag}`; flags of system `{active.system}`: {names}")


def _entity(value: object, where: str) -> None:
    if not isinstance(value, Entity):
        raise InvalidRequest(f"{where} of a Request is {value!r}; it must be an Entity")
    entity(value, where)


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


# --- calls -----------------------------------------------------------------------------------------------------------


def check_system(name: str) -> str:
    """Return the name unchanged; raises UsageError if it is not a valid name of a system."""
    if not answers.SYSTEM.fullmatch(name):
        raise UsageError(f"`{name}` is not the name of a system: lower case letters, digits and `_`")
    return name


def allow(system: str, request: Request) -> Call[bool]:
    """Whether a request is allowed, without an explanation; the fastest call."""
    return Call(path=f"/v1/data/privtab/{system}/check", body=encode({"input": request.to_json()}), read=read_allow)


def decision(system: str, request: Request) -> Call[Decision]:
    """The decision on a request, with its explanation."""
    return Call(
        path=f"/v1/data/privtab/{system}/decision",
        body=encode({"input": request.to_json()}),
        read=lambda body: read_decision(body, request),
    )


def decisions(system: str, requests: Sequence[Request]) -> Call[list[bool]]:
    """Whether each request is allowed, by position; operations and types may differ."""
    return _batch(system, {"requests": [request.to_json() for request in requests]}, len(requests))


def explained(system: str, requests: Sequence[Request]) -> Call[list[Decision]]:
    """Decisions with explanations, by position; operations and types may differ."""
    return Call(
        path=f"/v1/data/privtab/{system}/explained",
        body=encode({"input": {"requests": [request.to_json() for request in requests]}}),
        read=lambda body: read_explained(body, requests),
    )


def item_decisions(system: str, requests: Sequence[Request], vocabulary: Vocabulary) -> Call[list[bool]]:
    """The faster form of `decisions`, for requests of one operation and type without objects, groups or flags."""
    first = requests[0]
    keys = vocabulary.item_keys
    document = {
        "action": {"name": first.action},
        "resource": {"type": first.resource.type},
        "items": [[request.user, keys(request.resource)] for request in requests],
    }
    return _batch(system, document, len(requests))


def visible(system: str, request: Request, items: Sequence[Entity], vocabulary: Vocabulary) -> Call[list[int]]:
    """The positions of the allowed items; of the request's resource only the type counts."""
    document = request.to_json()
    del document["resource"]["id"]
    document["items"] = [vocabulary.keys(item) for item in items]
    count = len(items)
    return Call(
        path=f"/v1/data/privtab/{system}/visible",
        body=encode({"input": document}),
        read=lambda body: read_visible(body, count),
    )


def programs() -> Call[dict[str, ActiveSystem]]:
    """All systems that the OPA has a policy for."""
    return Call(path="/v1/data/privtab_program", body=None, read=read_programs)


def program(system: str) -> Call[ActiveSystem]:
    """The vocabulary of one system."""
    return Call(path=f"/v1/data/privtab_program/{system}", body=None, read=lambda body: read_program(body, system))


def policy_revision(system: str) -> Call[str | None]:
    """The revision of the active policy, or None."""
    return Call(path=f"/v1/data/privtab_program/{system}/revision", body=None, read=read_revision)


def system_name(system: str) -> Call[str | None]:
    """The name of the system that a package was compiled from, or None."""
    return Call(path=f"/v1/data/privtab_program/{system}/system", body=None, read=read_system)


def status() -> Call[dict[str, float]]:
    """When OPA last heard from its bundle server, by bundle."""
    return Call(path=STATUS_PATH, body=None, read=read_status)


def state_revision(active: ActiveSystem) -> Call[str | None]:
    """The revision of the active state, combined over its active shards if it is sharded, or None."""
    return combined_revision(active.system) if active.sharded else own_state_revision(active.vocabulary.system)


def own_state_revision(system: str) -> Call[str | None]:
    """The revision of an unsharded state, by the name of the system."""
    return Call(path=f"/v1/data/privtab_state/{system}/revision", body=None, read=read_revision)


def windowed_revision(system: str) -> Call[str | None]:
    """The revision of a state in which rows hold for a time, by the name of the system, or None."""
    return Call(path=f"/v1/data/privtab_state/{system}/{WINDOWED}/revision", body=None, read=read_revision)


def combined_revision(system: str) -> Call[str | None]:
    """The combined revision of the active shards of a state, by the name of the package."""
    return Call(path=f"/v1/data/privtab/{system}/state_revision", body=None, read=read_revision)


def windowed(active: ActiveSystem) -> Call[bool]:
    """Whether rows of the active shards of a state hold for a time."""
    return Call(path=f"/v1/data/privtab/{active.system}/state_windowed", body=None, read=read_truth)


def layout(system: str) -> Call[bool]:
    """Whether the active policy reads a sharded state."""
    return Call(path=f"/v1/data/privtab_program/{system}/state", body=None, read=read_layout)


def inactive(system: str, body: bytes) -> Call[list[str]]:
    """Which shards needed by the request `body`, a JSON body, are not active."""
    return Call(path=f"/v1/data/privtab/{system}/inactive", body=body, read=read_inactive)


def _batch(system: str, document: dict[str, Any], count: int) -> Call[list[bool]]:
    return Call(
        path=f"/v1/data/privtab/{system}/decisions",
        body=encode({"input": document}),
        read=lambda body: read_decisions(body, count),
    )


def encode(document: object) -> bytes:
    """Compact JSON in UTF-8; raises InvalidRequest for a lone surrogate.

    OPA would decode each of them to the same replacement character and so confuse names.
    """
    try:
        return _COMPACT(document).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"a name is not valid Unicode: {error.object!r:.80}") from None
