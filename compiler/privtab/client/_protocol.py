"""Calls of OPA and their answers: pure functions, shared by every sender, that reject any unexpected shape.

A `Call` describes one HTTP exchange. Its sender passes the body of the answer to `read`, which returns a typed answer
and raises PolicyError for any other shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Generic, TypeVar

from privtab.base import strict_json
from privtab.base.errors import DecisionUnavailable, InvalidRequest, PolicyError, UsageError
from privtab.base.lazy import pattern
from privtab.base.moments import WINDOWED
from privtab.base.records import dataclass
from privtab.base.request import Decision, Entity, Request
from privtab.base.sql_text import FILTER_KINDS, AppliedFilter, denial
from privtab.base.vocabulary import Vocabulary
from privtab.client._observe import note_id

T = TypeVar("T")

HEALTH_PATH = "/health?bundles=true"
STATUS_PATH = "/v1/status"
SHARDED = "sharded"
"""The value of `state` in a program that reads a sharded state."""
SYSTEM = pattern(r"[a-z][a-z0-9_]*")
_JSON = ("application/json", "text/json")
_EXCERPT = 300
_PLAIN = {b'{"result":true}\n': True, b'{"result":false}\n': False}
"""OPA's most common answers; everything else is parsed as JSON."""
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One HTTP exchange: its path, the body to send (None for a GET), and the reader of the answer."""

    path: str
    body: bytes | None
    read: Callable[[bytes], T]


# --- calls -----------------------------------------------------------------------------------------------------------


def check_system(name: str) -> str:
    """Return the name unchanged; raises UsageError if it is not a valid name of a system."""
    if not SYSTEM.fullmatch(name):
        raise UsageError(f"`{name}` is not the name of a system: lower case letters, digits and `_`")
    return name


def allow(system: str, request: Request) -> Call[bool]:
    """Return the call that decides a request without an explanation; the fastest call."""
    return _asked(system, "check", request.to_json(), read_allow)


def decision(system: str, request: Request) -> Call[Decision]:
    """The decision on a request, with its explanation."""

    def read(body: bytes) -> Decision:
        result, decision_id = _result(body, "decision")
        return _decision(result, body, request, decision_id)

    return _asked(system, "decision", request.to_json(), read)


def decisions(system: str, requests: Sequence[Request]) -> Call[list[bool]]:
    """Return the call that decides each request, by position; operations and types may differ."""
    return _batch(system, _documents(requests), len(requests))


def explained(system: str, requests: Sequence[Request]) -> Call[list[Decision]]:
    """Decisions with explanations, by position; operations and types may differ."""

    def read(body: bytes) -> list[Decision]:
        result, decision_id = _listed(body, "explained", len(requests), "decisions")
        return [_decision(value, body, request, decision_id) for value, request in zip(result, requests, strict=True)]

    return _asked(system, "explained", _documents(requests), read)


def applied(system: str, requests: Sequence[Request]) -> Call[list[AppliedFilter]]:
    """The row filter or column mask that applies to each request, by position."""
    rule = "filters/applied_many"

    def read(body: bytes) -> list[AppliedFilter]:
        result, _ = _listed(body, rule, len(requests), "answers")
        return [_applied(value, body, request) for value, request in zip(result, requests, strict=True)]

    return _asked(system, rule, _documents(requests), read)


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
    return _asked(system, "visible", document, lambda body: read_visible(body, count))


def concern(system: str, request: Request) -> Call[dict[str, Any]]:
    """Return the call for the part of the state that concerns a request's caller, as `privtab.filters.concern.of_opa` reads it."""
    document = request.to_json()
    del document["resource"]["id"]
    return _asked(system, "concern", document, lambda body: _object(_result(body, "concern")[0], body, "concern"))


def programs() -> Call[dict[str, ActiveSystem]]:
    """All systems by name that the OPA has a policy for."""

    def read(found: Any, body: bytes) -> dict[str, ActiveSystem]:
        systems = {} if found is None else _object(found, body, "privtab_program")
        return {name: read_active_system(name, value) for name, value in systems.items()}

    return _data("privtab_program", read)


def program(system: str) -> Call[ActiveSystem]:
    """The vocabulary of one system; its reader raises DecisionUnavailable if OPA has no program of it."""

    def read(found: Any, _: bytes) -> ActiveSystem:
        if found is None:
            raise no_bundle(system)
        return read_active_system(system, found)

    return _data(f"privtab_program/{system}", read)


def policy_revision(system: str) -> Call[str | None]:
    """The revision of the active policy, or None."""
    return _data(f"privtab_program/{system}/revision", _revision)


def system_name(system: str) -> Call[str | None]:
    """The name of the system that a package was compiled from, or None."""
    return _data(f"privtab_program/{system}/system", _system)


def status() -> Call[dict[str, float]]:
    """The time when OPA last heard from its bundle server, by bundle."""
    return Call(path=STATUS_PATH, body=None, read=read_status)


def state_revision(active: ActiveSystem) -> Call[str | None]:
    """The revision of the active state, combined over its active shards if it is sharded, or None."""
    return combined_revision(active.system) if active.sharded else own_state_revision(active.vocabulary.system)


def own_state_revision(system: str) -> Call[str | None]:
    """The revision of an unsharded state, by the name of the system."""
    return _data(f"privtab_state/{system}/revision", _revision)


def windowed_revision(system: str) -> Call[str | None]:
    """The revision of a state in which rows hold for a time, by the name of the system, or None."""
    return _data(f"privtab_state/{system}/{WINDOWED}/revision", _revision)


def combined_revision(system: str) -> Call[str | None]:
    """The combined revision of the active shards of a state, by the name of the package."""
    return _data(f"privtab/{system}/state_revision", _revision)


def windowed(active: ActiveSystem) -> Call[bool]:
    """Return the call that tells whether rows of the active shards of a state hold for a time."""
    return _data(f"privtab/{active.system}/state_windowed", lambda found, _: found is True)


def layout(system: str) -> Call[bool]:
    """Return the call that tells whether the active policy reads a sharded state."""
    return _data(f"privtab_program/{system}/state", lambda found, _: found == SHARDED)


def inactive(system: str, body: bytes) -> Call[list[str]]:
    """The root entities whose shards the request `body`, a JSON body, needs and OPA lacks; empty if undefined."""
    return _data(f"privtab/{system}/inactive", _inactive, body)


def _data(path: str, read: Callable[[Any, bytes], T], body: bytes | None = None) -> Call[T]:
    """A call for a document; `read` gets None for one that is undefined."""
    return Call(path=f"/v1/data/{path}", body=body, read=lambda body: read(_document(body).get("result"), body))


def _documents(requests: Sequence[Request]) -> dict[str, Any]:
    return {"requests": [request.to_json() for request in requests]}


def _batch(system: str, document: dict[str, Any], count: int) -> Call[list[bool]]:
    return _asked(system, "decisions", document, lambda body: read_decisions(body, count))


def _asked(system: str, rule: str, document: dict[str, Any], read: Callable[[bytes], T]) -> Call[T]:
    return Call(path=f"/v1/data/privtab/{system}/{rule}", body=encode({"input": document}), read=read)


def encode(document: object) -> bytes:
    """Compact JSON in UTF-8; raises InvalidRequest for a lone surrogate.

    OPA would decode each of them to the same replacement character and so confuse names.
    """
    try:
        return _COMPACT(document).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"a name is not valid Unicode: {error.object!r:.80}") from None


# --- answers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The active revisions of a system's policy and state.

    >>> Revision(policy="9c1f0b6a2d3e4f50", state=None).state is None
    True
    """

    policy: str | None
    state: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveSystem:
    """An active system: the vocabulary that requests are checked against, and its revision."""

    system: str
    """The name of its package: the system's name, or the one given to the compiler."""
    vocabulary: Vocabulary
    """`vocabulary.system` is the name of the system, which is also the name of its state."""
    revision: str | None
    flags: frozenset[str]
    """The flags that any operation of the policy reads."""
    sharded: bool = False
    """True if the policy reads a sharded state, of which some shards may not be active."""
    program: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The policy's program."""


def check_status(
    status: int, body: bytes, url: str, *, retry_after: str | None = None, content_type: str | None = None
) -> None:
    """Raise for any status but 200: DecisionUnavailable for a 5xx or a 429 with Retry-After, PolicyError otherwise.

    Also raises PolicyError for a 200 that is not declared as JSON, since it does not come from OPA.
    """
    if status == 200:
        if content_type is None or content_type.partition(";")[0].strip().lower() in _JSON:
            return
        raise PolicyError(f"{url} answered with `{content_type:.80}`, not with JSON{excerpt(body)}")
    text = excerpt(body)
    pause = _seconds(retry_after)
    if status >= 500 or (status == 429 and pause is not None):
        raise DecisionUnavailable(f"{url} answered {status}{text}", retry_after=pause)
    if 300 <= status < 400:
        raise PolicyError(f"{url} answered {status}, a redirect: give the address of the decision point itself")
    raise PolicyError(f"{url} answered {status}{text}")


def _seconds(retry_after: str | None) -> float | None:
    """The value of a Retry-After header in seconds; None for a date or an invalid value."""
    if retry_after is None or not retry_after.strip().isdecimal():
        return None
    return float(retry_after)


class Inactive(DecisionUnavailable):
    """A request needs shards of the state that are not active."""


class Undefined(PolicyError):
    """A rule is undefined in OPA; a bundle may not be active yet."""


def _result(body: bytes, rule: str) -> tuple[Any, str | None]:
    """The `result` and OPA's id of the decision; raises PolicyError if it is undefined or not JSON."""
    document = _document(body)
    decision_id = document.get("decision_id")
    note_id(decision_id)
    if "result" not in document:
        raise Undefined(
            f"OPA has no `{rule}` for this request: undefined. Is the policy's bundle active, and the state's laid out as it expects (whole, or in shards)?"
        )
    return document["result"], decision_id if isinstance(decision_id, str) else None


def read_allow(body: bytes) -> bool:
    """A boolean; raises PolicyError for anything else."""
    if body in _PLAIN:
        return _PLAIN[body]
    result, _ = _result(body, "allow")
    if not isinstance(result, bool):
        raise PolicyError(f"`allow` is not a boolean{excerpt(body)}")
    return result


def read_status(body: bytes) -> dict[str, float]:
    """The time when OPA last heard from the server of each bundle, in seconds since 1970; PolicyError if the status lacks it."""
    try:
        bundles = _document(body)["result"]["bundles"]
        return {
            name: datetime.fromisoformat(status["last_successful_request"]).timestamp()
            for name, status in bundles.items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PolicyError(f"OPA's status does not tell how old its bundles are: {error!r}") from None


def _listed(body: bytes, rule: str, count: int, noun: str) -> tuple[list[Any], str | None]:
    """One value for each request, and OPA's id of the decision; raises PolicyError for anything else."""
    result, decision_id = _result(body, rule)
    if not isinstance(result, list) or len(result) != count:
        raise PolicyError(f"`{rule}` is not a list of {count} {noun}{excerpt(body)}")
    return result, decision_id


def _applied(value: object, body: bytes, request: Request) -> AppliedFilter:
    match value:
        case {"name": str(name), "sql": str(text), **others} if not others:
            return AppliedFilter(name, text)
        case {"denied": True, "sql": str(), **others} if not others:
            return denial(next(kind for kind in FILTER_KINDS if kind == request.action))
        case _:
            raise PolicyError(f"an answer of `filters/applied_many` is neither a filter nor a denial{excerpt(body)}")


def read_decisions(body: bytes, count: int) -> list[bool]:
    """One boolean for each request; raises PolicyError for anything else."""
    result, _ = _listed(body, "decisions", count, "answers")
    if not all(isinstance(answer, bool) for answer in result):
        raise PolicyError(f"`decisions` holds more than booleans{excerpt(body)}")
    return result


def _object(value: object, body: bytes, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PolicyError(f"`{name}` is not an object{excerpt(body)}")
    return value


def read_visible(body: bytes, count: int) -> list[int]:
    """Positions of a listing in ascending order; raises PolicyError for anything else."""
    result, _ = _result(body, "visible")
    if not isinstance(result, list) or not all(type(position) is int and 0 <= position < count for position in result):
        raise PolicyError(f"`visible` is not a list of positions below {count}{excerpt(body)}")
    if not all(a < b for a, b in pairwise(result)):
        raise PolicyError(f"`visible` is not in ascending order{excerpt(body)}")
    return result


def _revision(found: Any, body: bytes) -> str | None:
    if found is not None and not isinstance(found, str):
        raise PolicyError(f"a revision is not a text{excerpt(body)}")
    return found


def _inactive(found: Any, body: bytes) -> list[str]:
    if found is not None and not _texts(found):
        raise PolicyError(f"`inactive` is not a list of entities{excerpt(body)}")
    return found or []


def no_shard(system: str, roots: Iterable[str]) -> Inactive:
    """The error for requests on root entities whose shards are not active."""
    names = sorted(roots)
    text = ", ".join(f"`{root}`" for root in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Inactive(f"no state bundle is active for {text} of system `{system}`")


def no_bundle(system: str | None, kind: str = "") -> DecisionUnavailable:
    """The error for a system whose policy or state is not active."""
    if system is None:
        return DecisionUnavailable("no bundle is active: OPA has no privtab policy")
    return DecisionUnavailable(f"no {kind + ' ' if kind else ''}bundle is active for system `{system}`")


def excerpt(body: bytes) -> str:
    """`: ` and the start of an answer, for messages; empty for an empty answer."""
    text = " ".join(body[:_EXCERPT].decode(errors="replace").split())
    return f": {text}{'…' if len(body) > _EXCERPT else ''}" if text else ""


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = strict_json.strict_loads(body)
    except ValueError as error:
        raise PolicyError(f"OPA's answer is not JSON ({error}){excerpt(body)}") from None
    if not isinstance(document, dict):
        raise PolicyError(f"OPA's answer is not an object{excerpt(body)}")
    return document


def read_active_system(system: str, value: object) -> ActiveSystem:
    try:
        if not isinstance(value, dict):
            raise TypeError("not an object")
        vocabulary = Vocabulary.from_program(value)
        if not SYSTEM.fullmatch(vocabulary.system):
            raise TypeError("`system` is not a name")
        flags = frozenset(f for shapes in vocabulary.operations.values() for s in shapes.values() for f in s.flags)
        revision = value.get("revision")
    except (KeyError, TypeError, AttributeError) as error:
        raise PolicyError(f"data.privtab_program.{system} is not a program: {error!r}") from error
    return ActiveSystem(
        system=system,
        vocabulary=vocabulary,
        revision=revision if isinstance(revision, str) else None,
        flags=flags,
        sharded=value.get("state") == SHARDED,
        program=value,
    )


def _decision(value: object, body: bytes, request: Request, decision_id: str | None) -> Decision:
    try:
        answer = Decision.from_engine(value, request)
        ways = answer.context.get("missing", [])
        if not isinstance(ways, list) or not all(_texts(way) for way in ways):
            raise ValueError("`missing` is not a list of lists of texts")
    except ValueError as error:
        raise PolicyError(f"{error}{excerpt(body)}") from None
    return answer if decision_id is None else replace(answer, id=decision_id)


def _system(found: Any, body: bytes) -> str | None:
    if found is not None and not (isinstance(found, str) and SYSTEM.fullmatch(found)):
        raise PolicyError(f"`system` is not a name{excerpt(body)}")
    return found


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
