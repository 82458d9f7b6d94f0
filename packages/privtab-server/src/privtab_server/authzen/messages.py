"""Bodies of the API as typed values, checked against the specification but not against a policy.

There are two kinds of errors. A body that violates the specification is `Malformed` and results in HTTP 400. A well-formed
request with names that the policy does not declare is InvalidRequest; it is answered, but never with an allow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from privtab.base import Entity, Request, Vocabulary, strict_loads

Body: TypeAlias = Mapping[str, Any]

PARTS = ("subject", "action", "resource", "context")
_NEEDED = {"subject": ("type", "id"), "action": ("name",), "resource": ("type", "id")}
"""The required keys of each part of an evaluation."""
_NOTHING: Body = {}
MOST_EVALUATIONS = 10_000


class Malformed(Exception):
    """The body violates the specification: HTTP 400, with this message."""


class Semantic(StrEnum):
    """The rule by which the evaluations of one message stop early."""

    EXECUTE_ALL = "execute_all"
    DENY_ON_FIRST_DENY = "deny_on_first_deny"
    PERMIT_ON_FIRST_PERMIT = "permit_on_first_permit"


class SearchKind(StrEnum):
    """The part of a request that a search leaves open."""

    SUBJECT = "subject"
    RESOURCE = "resource"
    ACTION = "action"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluations:
    """The evaluations in one message: each a complete body or an error."""

    items: tuple[Body | Malformed, ...]
    semantic: Semantic


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search: its checked body, and the limit and the token of its page, as sent."""

    kind: SearchKind
    body: Body
    limit: int | None
    token: str | None

    @property
    def type(self) -> str:
        """The type searched for; empty for actions, which have none."""
        return "" if self.kind is SearchKind.ACTION else str(self.body[self.kind.value]["type"])


# --- text → body -----------------------------------------------------------------------------------------------------


def parse(text: bytes) -> Body:
    """Parse an I-JSON object: UTF-8, no duplicate keys, no lone surrogates, no NaN; raises Malformed."""
    if not text.strip():
        raise Malformed("the body is empty; it must be a JSON object")
    try:
        value = strict_loads(text)
    except UnicodeDecodeError as error:
        raise Malformed(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    return _object(value, "the body")


# --- body → request --------------------------------------------------------------------------------------------------


def evaluations(body: Body) -> Evaluations | None:
    """The evaluations of a message (§7.1); None if the message is a single evaluation."""
    entries = body.get("evaluations", [])
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise Malformed("`evaluations` must be an array")
    semantic = _semantic(body)
    if not entries:
        return None
    if len(entries) > MOST_EVALUATIONS:
        raise Malformed(f"`evaluations` has {len(entries)} requests; {MOST_EVALUATIONS} are the most at once")
    defaults = {part: _object(body[part], f"`{part}`") for part in PARTS if part in body}
    return Evaluations(items=tuple(_with_defaults(item, defaults) for item in entries), semantic=semantic)


def subjects(body: Body) -> Iterator[str]:
    """The ids of all subjects that a message names, whether or not it is well formed."""
    entries = body.get("evaluations", [])
    for part in (body, *(entries if isinstance(entries, list) else ())):
        subject = part.get("subject") if isinstance(part, Mapping) else None
        id_ = subject.get("id") if isinstance(subject, Mapping) else None
        if isinstance(id_, str):
            yield id_


def evaluation(body: Body) -> Body:
    """Check the body of one evaluation (§6.1); raises Malformed."""
    subject, action, resource = body.get("subject"), body.get("action"), body.get("resource")
    if (
        type(subject) is type(action) is type(resource) is type(body.get("context", _NOTHING)) is dict
        and len(subject) == len(resource) == 2
        and len(action) == 1
        and type(subject.get("type")) is type(subject.get("id")) is type(action.get("name")) is str
        and type(resource.get("type")) is type(resource.get("id")) is str
    ):
        return body  # the common case; the rest finds out what is wrong
    for part in ("subject", "action", "resource"):
        _part(body, part, _NEEDED[part])
    _object(body.get("context", {}), "`context`")
    return body


def search(kind: SearchKind, body: Body) -> Search:
    """Read a search (§8.4 to §8.6), ignoring the id of what is searched; raises Malformed."""
    parts = ("subject", "resource") if kind is SearchKind.ACTION else ("subject", "action", "resource")
    for part in parts:
        needed = ("type",) if part == kind.value else _NEEDED[part]
        _part(body, part, needed)
    _object(body.get("context", {}), "`context`")
    limit, token = _page(body)
    return Search(kind=kind, body=body, limit=limit, token=token)


def request(body: Body, vocabulary: Vocabulary) -> Request:
    """Convert a checked evaluation to a request to a policy; raises InvalidRequest.

    Properties are read where the policy declares them: `groups` if it takes groups from requests, and attributes; others may have any
    value.
    """
    subject, resource = body["subject"], body["resource"]
    user, action, type_ = subject["id"], body["action"]["name"], resource["type"]
    has_more = len(subject) > 2 or len(body["action"]) > 1 or len(resource) > 2 or body.get("context")
    if user and action and type_ and not has_more and subject["type"] in vocabulary.subjects:
        return Request(user=user, action=action, resource=vocabulary.spelt(Entity(type_, resource["id"])))
    read = {"groups"} if vocabulary.request_groups else set()
    properties = subject.get("properties", {})
    read |= {*vocabulary.attributes.user}
    subject = {
        "type": subject["type"],
        "id": subject["id"],
        "properties": {name: value for name, value in properties.items() if name in read},
    }
    document = {"subject": subject, "action": body["action"], "resource": resource}
    return Request.from_json({**document, "context": body.get("context", {})}, vocabulary)


def _with_defaults(item: object, defaults: Mapping[str, Body]) -> Body | Malformed:
    """Complete an evaluation with the defaults of the message (§7.1.1).

    A part without a required key takes only that key from the default, as the certification scenario requires.
    """
    try:
        stated = _object(item, "an evaluation")
        if not defaults:
            return evaluation(stated)
        merged: dict[str, Any] = {**defaults, **{part: stated[part] for part in PARTS if part in stated}}
        for part, needed in _NEEDED.items():
            if part in stated and part in defaults and isinstance(stated[part], Mapping):
                merged[part] = {**{key: defaults[part][key] for key in needed if key in defaults[part]}, **stated[part]}
        return evaluation(merged)
    except Malformed as error:
        return error


def _semantic(body: Body) -> Semantic:
    options = _object(body.get("options", {}), "`options`")
    value = options.get("evaluations_semantic", Semantic.EXECUTE_ALL)
    try:
        return Semantic(value)
    except ValueError:
        raise Malformed(
            f"`options.evaluations_semantic` is {_shown(value)}; it must be one of {', '.join(Semantic)}"
        ) from None


def _part(body: Body, part: str, needed: Sequence[str]) -> None:
    if part not in body:
        raise Malformed(f"`{part}` is missing")
    value = _object(body[part], f"`{part}`")
    for key in needed:
        if key not in value:
            raise Malformed(f"`{part}.{key}` is missing")
        if not isinstance(value[key], str):
            raise Malformed(f"`{part}.{key}` is {_shown(value[key])}; it must be a string")
    _object(value.get("properties", {}), f"`{part}.properties`")


def _page(body: Body) -> tuple[int | None, str | None]:
    page = _object(body.get("page", {}), "`page`")
    limit, token = page.get("limit"), page.get("token")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise Malformed(f"`page.limit` is {_shown(limit)}; it must be a whole number, 0 or more")
    if token is not None and not isinstance(token, str):
        raise Malformed(f"`page.token` is {_shown(token)}; it must be a string")
    return limit, token or None


def _object(value: object, label: str) -> Body:
    if not isinstance(value, Mapping):
        raise Malformed(f"{label} is {_shown(value)}; it must be an object")
    return value


def _shown(value: object) -> str:
    """An invalid value for a message, shortened if long."""
    match value:
        case None:
            return "null"
        case bool() | int() | float():
            return json.dumps(value)
        case str():
            return f"`{value:.80}`"
        case list():
            return "an array"
        case _:
            return "an object"
