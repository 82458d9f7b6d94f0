"""What is sent to OPA and how answers are read: pure functions, shared by every sender.

A `Call` is one HTTP exchange that has not happened yet. Whoever sends it hands the bytes of the answer to `read`, which
returns the typed answer or raises PolicyError: nothing that is not exactly the expected shape passes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Generic, TypeAlias, TypeVar

from privtab.client._observe import note_id
from privtab.errors import DecisionUnavailable, InvalidRequest, PolicyError, UsageError
from privtab.request import Decision, Entity, Request, Vocabulary

T = TypeVar("T")

EntityLike: TypeAlias = Entity | str | tuple[str, str]
"""An entity as callers write it: `Entity`, `"table:m/c/s/t"` or `("table", "m/c/s/t")`."""

HEALTH_PATH = "/health?bundles=true"
STATUS_PATH = "/v1/status"
_SYSTEM = re.compile(r"[a-z][a-z0-9_]*")
_JSON = ("application/json", "text/json")
_EXCERPT = 300
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_PLAIN = {b'{"result":true}\n': True, b'{"result":false}\n': False}
"""What OPA answers as a rule; everything else is read as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One exchange to be: where to, what to send (None: a GET), and how to read the answer's body."""

    path: str
    body: bytes | None
    read: Callable[[bytes], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The revisions that an OPA has of a system's policy and state."""

    policy: str | None
    state: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of an active system: the names that a request is checked by."""

    system: str
    """The name of its package: the system's, or another that it was compiled as."""
    vocabulary: Vocabulary
    """`vocabulary.system` is the system's own name; the state goes by it."""
    revision: str | None
    flags: frozenset[str]
    """Every flag that some operation of the policy reads."""


# --- what the caller wrote → a request -------------------------------------------------------------------------------


def entity(value: object, where: str = "resource") -> Entity:
    """Read an EntityLike; raises InvalidRequest."""
    match value:
        case Entity(type=str(), id=str()):
            return value
        case str():
            try:
                return Entity.parse(value)
            except ValueError as error:
                raise InvalidRequest(f"{where}: {error}") from None
        case (str(type_), str(id_)):
            return Entity(type_, id_)
        case _:
            raise InvalidRequest(f"{where} is {value!r}: write `type:path`, a pair (type, path) or an Entity")


def request(
    user: object,
    action: object,
    resource: object,
    *,
    with_: Mapping[str, EntityLike] | None = None,
    groups: Iterable[str] = (),
    flags: Iterable[str] = (),
) -> Request:
    """A request from the arguments of a call; raises InvalidRequest for what is missing or of a wrong type."""
    if isinstance(user, Request):
        if action is not None or resource is not None or with_ or tuple(groups) or tuple(flags):
            raise InvalidRequest("a Request stands alone: it holds action, resource, with_, groups and flags already")
        return well_formed(user)
    return well_formed(
        Request(
            user=user,  # type: ignore[arg-type]
            action=action,  # type: ignore[arg-type]
            resource=entity(resource),
            **beside(with_=with_, groups=groups, flags=flags),
        )
    )


def beside(
    *, with_: Mapping[str, EntityLike] | None = None, groups: Iterable[str] = (), flags: Iterable[str] = ()
) -> dict[str, Any]:
    """What a request has beside user, action and resource; raises InvalidRequest."""
    return {
        "groups": _names(groups, "groups") if groups != () else (),
        "with_": {name: entity(value, f"with_[{name!r}]") for name, value in with_.items()} if with_ else {},
        "flags": frozenset(_names(flags, "flags")) if flags != () else frozenset(),
    }


def well_formed(asked: object) -> Request:
    """The request itself; raises InvalidRequest where a part is null, empty or of a wrong type."""
    if not isinstance(asked, Request):
        raise InvalidRequest(f"{asked!r} is not a Request")
    _text(asked.user, "user")
    _text(asked.action, "action")
    entity(asked.resource)
    if asked.groups:
        _names(asked.groups, "groups")
    for name, value in asked.with_.items():
        entity(value, f"with_[{name!r}]")
    return asked


def check_flags(flags: Iterable[str], known: Known) -> None:
    """Raise InvalidRequest for a flag that no operation reads.

    A flag can only ask for more, so a misspelt one would ask for less than the caller meant.
    """
    for flag in flags:
        if flag not in known.flags:
            names = ", ".join(f"`{name}`" for name in sorted(known.flags)) or "none"
            raise InvalidRequest(f"unknown flag `{flag}`; flags of system `{known.system}`: {names}")


def _text(value: object, where: str) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{where} is {value!r}; it must be a non-empty string")


def _names(values: object, where: str) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidRequest(f"{where} is {values!r}; it must be a list of names")
    names = tuple(values)
    for name in names:
        _text(name, f"a name in {where}")
    return names


# --- calls -----------------------------------------------------------------------------------------------------------


def check_system(name: str) -> str:
    """The name itself; raises UsageError where it cannot be a system's."""
    if not _SYSTEM.fullmatch(name):
        raise UsageError(f"`{name}` is not the name of a system: lower case letters, digits and `_`")
    return name


def allow(system: str, asked: Request) -> Call[bool]:
    """The fast path: yes or no."""
    return Call(path=f"/v1/data/privtab/{system}/allow", body=encode({"input": asked.to_json()}), read=read_allow)


def decision(system: str, asked: Request) -> Call[Decision]:
    """The answer with its explanation."""
    return Call(path=f"/v1/data/privtab/{system}/decision", body=encode({"input": asked.to_json()}), read=read_decision)


def decisions(system: str, asked: Sequence[Request]) -> Call[list[bool]]:
    """Requests of any mix, answered by position."""
    return _batch(system, {"requests": [r.to_json() for r in asked]}, len(asked))


def explained(system: str, asked: Sequence[Request]) -> Call[list[Decision]]:
    """Requests of any mix, answered with explanations by position."""
    return Call(
        path=f"/v1/data/privtab/{system}/explained",
        body=encode({"input": {"requests": [r.to_json() for r in asked]}}),
        read=lambda body: read_explained(body, len(asked)),
    )


def item_decisions(system: str, asked: Sequence[Request], vocabulary: Vocabulary) -> Call[list[bool]]:
    """Requests that share operation and entity type and have nothing beside them; the faster form."""
    first = asked[0]
    keys = vocabulary.keys
    document = {
        "action": {"name": first.action},
        "resource": {"type": first.resource.type},
        "items": [[r.user, keys(r.resource)] for r in asked],
    }
    return _batch(system, document, len(asked))


def visible(system: str, asked: Request, items: Sequence[Entity], vocabulary: Vocabulary) -> Call[list[int]]:
    """Which items of a listing pass; the request's resource gives the type alone."""
    document = asked.to_json()
    del document["resource"]["id"]
    document["items"] = [vocabulary.keys(item) for item in items]
    count = len(items)
    return Call(
        path=f"/v1/data/privtab/{system}/visible",
        body=encode({"input": document}),
        read=lambda body: read_visible(body, count),
    )


def programs() -> Call[dict[str, Known]]:
    """Every system that the OPA has a policy of."""
    return Call(path="/v1/data/privtab_program", body=None, read=read_programs)


def program(system: str) -> Call[Known]:
    """The names of one system."""
    return Call(path=f"/v1/data/privtab_program/{system}", body=None, read=lambda body: read_program(body, system))


def policy_revision(system: str) -> Call[str | None]:
    """The revision of the active policy; None where there is none."""
    return Call(path=f"/v1/data/privtab_program/{system}/revision", body=None, read=read_revision)


def system_name(system: str) -> Call[str | None]:
    """The own name of the system that a package is of; None where there is none."""
    return Call(path=f"/v1/data/privtab_program/{system}/system", body=None, read=_read_system)


def status() -> Call[dict[str, float]]:
    """How fresh the bundles are."""
    return Call(path=STATUS_PATH, body=None, read=read_status)


def state_revision(system: str) -> Call[str | None]:
    """The revision of the active state; None where there is none."""
    return Call(path=f"/v1/data/privtab_state/{system}/revision", body=None, read=read_revision)


def _batch(system: str, document: dict[str, Any], count: int) -> Call[list[bool]]:
    return Call(
        path=f"/v1/data/privtab/{system}/decisions",
        body=encode({"input": document}),
        read=lambda body: read_decisions(body, count),
    )


def encode(document: object) -> bytes:
    """Compact JSON in UTF-8; raises InvalidRequest for text that is not Unicode (a lone surrogate).

    OPA would read each of those as the same replacement character, and take one name for another.
    """
    try:
        return _COMPACT(document).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"a name is not valid Unicode: {error.object!r:.80}") from None


# --- answers ---------------------------------------------------------------------------------------------------------


def check_status(
    status: int, body: bytes, url: str, *, retry_after: str | None = None, content_type: str | None = None
) -> None:
    """Raise for any answer but 200: DecisionUnavailable for a 5xx and a 429 that says when, PolicyError for the rest.

    A 200 that says it is something else than JSON comes from somebody else than OPA: PolicyError too.
    """
    if status == 200:
        if content_type is None or content_type.partition(";")[0].strip().lower() in _JSON:
            return
        raise PolicyError(f"{url} answered with `{content_type:.80}`, not with JSON{excerpt(body)}")
    said = excerpt(body)
    after = _seconds(retry_after)
    if status >= 500 or (status == 429 and after is not None):
        raise DecisionUnavailable(f"{url} answered {status}{said}", retry_after=after)
    if 300 <= status < 400:
        raise PolicyError(f"{url} answered {status}, a redirect; a decision point is asked directly")
    raise PolicyError(f"{url} answered {status}{said}")


def _seconds(retry_after: str | None) -> float | None:
    """A Retry-After header in seconds, which is how sidecars and gateways write it; None for a date or nonsense."""
    if retry_after is None or not retry_after.strip().isdecimal():
        return None
    return float(retry_after)


def read_result(body: bytes, what: str) -> Any:
    """The `result` of a data document; raises PolicyError where it is undefined or not JSON."""
    document = _document(body)
    note_id(document.get("decision_id"))
    if "result" not in document:
        raise PolicyError(f"OPA has no `{what}` for this request: undefined. Is the policy's bundle active?")
    return document["result"]


def read_allow(body: bytes) -> bool:
    """A boolean and nothing else."""
    if body in _PLAIN:
        return _PLAIN[body]
    result = read_result(body, "allow")
    if not isinstance(result, bool):
        raise PolicyError(f"`allow` is not a boolean{excerpt(body)}")
    return result


def read_decision(body: bytes) -> Decision:
    """A decision whose explanation has the shape that its readers rely on."""
    return _decision(read_result(body, "decision"), body)


def read_status(body: bytes) -> dict[str, float]:
    """For each bundle when OPA last heard from its server, in seconds since 1970; PolicyError where OPA does not say."""
    try:
        bundles = _document(body)["result"]["bundles"]
        return {
            name: datetime.fromisoformat(status["last_successful_request"]).timestamp()
            for name, status in bundles.items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PolicyError(f"OPA's status does not tell how old its bundles are: {error!r}") from None


def read_explained(body: bytes, count: int) -> list[Decision]:
    """One decision for each request, or PolicyError."""
    result = read_result(body, "explained")
    if not isinstance(result, list) or len(result) != count:
        raise PolicyError(f"`explained` is not a list of {count} decisions{excerpt(body)}")
    return [_decision(value, body) for value in result]


def read_decisions(body: bytes, count: int) -> list[bool]:
    """One boolean for each request, or PolicyError."""
    result = read_result(body, "decisions")
    if not isinstance(result, list) or len(result) != count:
        raise PolicyError(f"`decisions` is not a list of {count} answers{excerpt(body)}")
    if not all(isinstance(answer, bool) for answer in result):
        raise PolicyError(f"`decisions` holds more than booleans{excerpt(body)}")
    return result


def read_visible(body: bytes, count: int) -> list[int]:
    """Positions of a listing, ascending, or PolicyError."""
    result = read_result(body, "visible")
    if not isinstance(result, list) or not all(type(at) is int and 0 <= at < count for at in result):
        raise PolicyError(f"`visible` is not a list of positions below {count}{excerpt(body)}")
    if not all(a < b for a, b in pairwise(result)):
        raise PolicyError(f"`visible` is not in ascending order{excerpt(body)}")
    return result


def read_programs(body: bytes) -> dict[str, Known]:
    """The systems by name; none where OPA has no program."""
    result = _document(body).get("result", {})
    if not isinstance(result, dict):
        raise PolicyError(f"`privtab_program` is not an object{excerpt(body)}")
    return {name: known(name, value) for name, value in result.items()}


def read_program(body: bytes, system: str) -> Known:
    """The names of a system; DecisionUnavailable where OPA has no program of it."""
    document = _document(body)
    if "result" not in document:
        raise no_bundle(system)
    return known(system, document["result"])


def read_revision(body: bytes) -> str | None:
    """A revision; None where undefined."""
    revision = _document(body).get("result")
    if revision is not None and not isinstance(revision, str):
        raise PolicyError(f"a revision is not a text{excerpt(body)}")
    return revision


def no_bundle(system: str | None, kind: str = "") -> DecisionUnavailable:
    """The error for a system, or a part of it, that is not there yet."""
    if system is None:
        return DecisionUnavailable("no bundle is active: OPA has no privtab policy")
    return DecisionUnavailable(f"no {kind + ' ' if kind else ''}bundle is active for system `{system}`")


def excerpt(body: bytes) -> str:
    """`: ` and the beginning of an answer, for messages; empty for an empty answer."""
    text = " ".join(body[:_EXCERPT].decode(errors="replace").split())
    return f": {text}{'…' if len(body) > _EXCERPT else ''}" if text else ""


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"OPA's answer is not JSON ({error}){excerpt(body)}") from None
    if not isinstance(document, dict):
        raise PolicyError(f"OPA's answer is not an object{excerpt(body)}")
    return document


def known(system: str, value: object) -> Known:
    try:
        if not isinstance(value, dict):
            raise TypeError("not an object")
        vocabulary = Vocabulary.from_program(value)
        if not _SYSTEM.fullmatch(vocabulary.system):
            raise TypeError("`system` is not a name")
        flags = frozenset(f for shapes in vocabulary.operations.values() for s in shapes.values() for f in s.flags)
        revision = value.get("revision")
    except (KeyError, TypeError, AttributeError) as error:
        raise PolicyError(f"data.privtab_program.{system} is not a program: {error!r}") from error
    return Known(
        system=system, vocabulary=vocabulary, revision=revision if isinstance(revision, str) else None, flags=flags
    )


def _decision(value: object, body: bytes) -> Decision:
    try:
        answer = Decision.from_json(value)
        ways = answer.context.get("missing", [])
        effects = answer.context.get("effects", [])
        if not _texts(effects) or not isinstance(ways, list) or not all(_texts(way) for way in ways):
            raise ValueError("`missing` or `effects` is not a list of texts")
    except ValueError as error:
        raise PolicyError(f"{error}{excerpt(body)}") from None
    return answer


def _read_system(body: bytes) -> str | None:
    name = _document(body).get("result")
    if name is not None and not (isinstance(name, str) and _SYSTEM.fullmatch(name)):
        raise PolicyError(f"`system` is not a name{excerpt(body)}")
    return name


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
