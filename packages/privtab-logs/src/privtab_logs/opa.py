"""Entries of OPA's decision logs as rows: single decisions, batches and listings, as `templates/rego` defines the rules.

Source: Open Policy Agent, Decision Logs: the event's `path`, `input`, `result`, `bundles`, `erased`, `masked` and `metrics`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from privtab.base import InvalidRequest, Request
from privtab_logs.schema import FAILED, MALFORMED, MASKED, NO_ANSWER, PARTS, UNREAD, WRONG_ANSWER, Reading, Row
from privtab_logs.wrapped import FIELDS
from privtab_server.registry.server.decisions import RULES

ORIGIN = "opa"
_TELL = frozenset({"inactive", "state_revision", "state_windowed"})
"""The rules that only tell of a state. Whatever else a policy answers, somebody may see or do something by it."""
MOST_SHARDS = 200
"""Bundles of a state whose revisions a row names: each row has them all."""
_LEVELS = ("debug", "info", "warn", "warning", "error", "fatal", "panic")
_NOT_IN_A_LINE = {"decision_id", "input", "result", "decision", "allowed", *FIELDS} - {"msg", "line"}
DEEPEST = 64
"""Objects and lists within each other in the properties of a request, beyond which it counts as malformed."""
_AS_TEXT: Any = {"ensure_ascii": False, "sort_keys": True, "separators": (",", ":"), "allow_nan": False}
_HASH = re.compile(r"[0-9a-f]{64}")
"""The hash that a mask writes in the place of a name."""


class RequestColumns(NamedTuple):
    """The columns of the schema that a request fills, and what is wrong with the request."""

    subject_type: str | None = None
    user: str | None = None
    groups: list[str] | None = None
    active_roles: list[str] | None = None
    action: str | None = None
    resource: str | None = None
    with_: list[tuple[str, str]] | None = None
    flags: list[str] | None = None
    attributes: str | None = None
    problem: str | None = None


class Call(NamedTuple):
    """The parts that all decisions of one call share."""

    time: str | None
    decision_id: str | None
    system: str | None
    policy: str | None
    state: str | None
    latency: int | None
    masked: list[str] | None
    hidden: bool
    """True if a mask took something that decides."""
    position: str

    def row(self, asked: RequestColumns, answer: Any, rule: str | None, policy: str | None, problem: str | None) -> Row:
        """One decision."""
        problem = asked.problem or problem
        if self.masked is not None:
            names = (asked.user, asked.resource, *(entity for _, entity in asked.with_ or ()))
            hashed = any(name is not None and _HASH.fullmatch(name.partition(":")[2] or name) for name in names)
            if self.hidden or hashed or problem in (MALFORMED, WRONG_ANSWER):
                problem = MASKED
        return (
            self.time, self.decision_id, self.system, *asked[:-1], answer, rule, policy or self.policy, self.state, self.latency,
            ORIGIN, self.masked, problem, self.position,
        )  # fmt: skip


def rows(event: Any, position: str, reading: Reading) -> Iterable[Row] | None:
    """The decisions of one entry; a line of the decision point's own log is counted. None for anything else."""
    if not isinstance(event, dict):
        return None
    path = event.get("path", "")
    if "decision_id" not in event or not isinstance(path, str):
        if not is_log_line(event):
            return None
        reading.other["log line"] += 1
        return ()
    system, rule, more = _rule(path)
    decides = rule in RULES and not more
    undefined = not ({"result", "error", "erased"} & event.keys())
    everything = path.strip("/") in ("", "privtab") and ("input" in event or "privtab" in str(event.get("query")))
    if everything and not undefined:
        return (call_of(event, None, position).row(RequestColumns(problem=UNREAD), None, None, None, None),)
    if not system or rule in _TELL or (undefined and not decides):
        reading.other["call of no rule that decides"] += 1
        return ()
    call = call_of(event, system, position)
    asked = event.get("input")
    result = event.get("result")
    problem = FAILED if event.get("error") is not None else NO_ANSWER if result is None else None
    match rule:
        case _ if not decides:
            return _at_door(call, asked, result, problem, reading)
        case "allow" | "check" | "decision":
            return (_decided(call, request_columns(asked), result, problem),)
        case "decisions" | "explained":
            return _batch(call, asked, result, problem)
        case _:
            return _listing(call, asked, result, problem)


def is_log_line(event: Mapping[str, Any]) -> bool:
    """Return whether an object is a line that a decision point prints beside its decisions, about its own work and requests, without answers."""
    message = event.get("msg")
    return (
        isinstance(message, str)
        and not message.lstrip().startswith("{")
        and event.get("level") in _LEVELS
        and event.get("type") != "openpolicyagent.org/decision_logs"
        and event.keys().isdisjoint(_NOT_IN_A_LINE)
    )


@lru_cache(maxsize=1000)
def _rule(path: str) -> tuple[str, str, bool]:
    """The system and the rule in the path of a call, and whether the path goes on; all empty for another path."""
    parts = path.strip("/").split("/")
    return (parts[1], "".join(parts[2:3]), len(parts) > 3) if len(parts) > 1 and parts[0] == "privtab" else _NO_RULE


_NO_RULE = ("", "", False)


def call_of(event: Mapping[str, Any], system: str | None, position: str) -> Call:
    """Return the parts that all decisions of an entry share."""
    metrics = event.get("metrics")
    nanoseconds = metrics.get("timer_server_handler_ns") if isinstance(metrics, dict) else None
    masked = "erased" in event or "masked" in event
    pointers = [*_texts(event.get("erased")), *_texts(event.get("masked"))] if masked else []
    policy, state = _revisions(event.get("bundles"))
    return Call(
        _text(event.get("timestamp")),
        _text(event.get("decision_id")),
        system,
        policy,
        state,
        nanoseconds // 1000 if isinstance(nanoseconds, int) and 0 <= nanoseconds < 1 << 63 else None,
        pointers or None,
        masked and any(map(_decides, pointers)),
        position,
    )


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _decides(pointer: str) -> bool:
    """Return whether a masked value decides. A mask that rewrites the whole `/input` keeps the parts that the request still shows."""
    parts = pointer.strip("/").split("/")
    if parts[0] == "input":
        return len(parts) > 1 and parts[1] in {"subject", "action", "resource", "context", "requests", "items"}
    return parts[0] in {"", "result"} and "context" not in parts


def _revisions(bundles: Any) -> tuple[str | None, str | None]:
    """Return the revisions of the policy and of the state, by the names of their bundles; without a `state`, of its shards: all other bundles."""
    found: dict[str, str | None] = {}
    others: list[str] = []
    for name, bundle in bundles.items() if isinstance(bundles, dict) else ():
        revision = _text(bundle.get("revision")) if isinstance(bundle, dict) else None
        part = _part(name)
        if part in ("policy", "state"):
            found[part] = None if part in found else revision
        elif revision is not None:
            others.append(revision)
    if "state" not in found and len(others) <= MOST_SHARDS:
        found["state"] = _joined(*sorted(others))
    return found.get("policy"), found.get("state")


@lru_cache(maxsize=1000)
def _joined(*revisions: str) -> str | None:
    """The revisions of a state in shards as one text, which rows share."""
    return PARTS.join(revisions) or None


@lru_cache(maxsize=1000)
def _part(bundle: str) -> str:
    """Return the part of a bundle, such as `policy` or `state`: the last word of its name."""
    return re.split(r"[^a-z]", bundle.removesuffix(".tar.gz"))[-1]


def _decided(call: Call, asked: RequestColumns, result: Any, problem: str | None) -> Row:
    """One decision from its answer: a boolean, or an object with reasons."""
    if isinstance(result, bool):
        return call.row(asked, result, None, None, problem)
    answer = result.get("decision") if isinstance(result, dict) else None
    if not isinstance(answer, bool):
        return call.row(asked, None, None, None, problem or WRONG_ANSWER)
    context = result.get("context")
    rule, revision = (context.get("rule"), context.get("revision")) if isinstance(context, dict) else (None, None)
    return call.row(asked, answer, _text(rule), _text(revision), problem)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _batch(call: Call, asked: Any, result: Any, problem: str | None) -> Iterator[Row]:
    """One decision for each request of a batch."""
    asked = asked if isinstance(asked, dict) else {}
    if isinstance(asked.get("items"), list):
        requests = [_item(asked, item) for item in asked["items"]]
    elif isinstance(asked.get("requests"), list):
        requests = [request_columns(request) for request in asked["requests"]]
    else:
        requests = [RequestColumns(problem=MALFORMED)]
    if not isinstance(result, list) or len(result) != len(requests):
        problem, result = problem or WRONG_ANSWER, [None] * len(requests)
    for request, answer in zip(requests, result, strict=True):
        yield _decided(call, request, answer, problem)


def _at_door(call: Call, asked: Any, result: Any, problem: str | None, reading: Reading) -> Iterator[Row]:
    """The decisions of a door, if the mask wrote its question as requests of the policy: the requests that it allows, or the one that it denies.

    What lists allow, and whom filters show what, an entry does not tell: that is a row with a problem. A question that is none of the
    policy's is denied whatever a state says.
    """
    asked = rewritten(call, asked)
    requests = asked.get("requests")
    answers = set(_booleans(result))
    if problem is None and requests == [] and "refused" in asked and answers == {False}:
        reading.other["refused at a door"] += 1
    elif problem is None and isinstance(requests, list) and requests and len(answers) == 1:
        [allowed] = answers
        yield from shared_answer_rows(call, requests, allowed=allowed)
    else:
        yield call.row(RequestColumns(problem=FAILED if problem == FAILED else UNREAD), None, None, None, None)


def rewritten(call: Call, asked: Any) -> Mapping[str, Any]:
    """Return the text that privtab's mask wrote in the place of a door's question; empty for any other entry."""
    return asked if call.masked is not None and "/input" in call.masked and isinstance(asked, dict) else {}


def shared_answer_rows(
    call: Call, requests: Sequence[Any], *, allowed: bool, problem: str | None = None
) -> Iterator[Row]:
    """Yield the decisions of requests with one answer: if one of several requests was denied, the answer does not say which."""
    known = allowed or len(requests) == 1
    answer, problem = (allowed, problem) if known else (None, problem or UNREAD)
    for request in requests:
        yield call.row(request_columns(request), answer, None, None, problem)


def _booleans(answer: Any) -> Iterator[bool]:
    """The answers in what is around them."""
    if isinstance(answer, bool):
        yield answer
    for part in answer.values() if isinstance(answer, dict) else ():
        yield from _booleans(part)


def _listing(call: Call, asked: Any, result: Any, problem: str | None) -> Iterator[Row]:
    """One decision for each item of a listing."""
    items = asked.get("items") if isinstance(asked, dict) else None
    if not isinstance(items, list):
        yield call.row(RequestColumns(problem=MALFORMED), None, None, None, problem)
        return
    good = isinstance(result, list) and all(type(position) is int for position in result)
    shown = frozenset(result) if good else frozenset()
    problem = problem if good else problem or WRONG_ANSWER
    about = asked.get("resource")
    request = request_columns({**asked, "resource": {**about, "id": ""}} if isinstance(about, dict) else asked)
    type_ = (request.resource or "").partition(":")[0]
    for position, keys in enumerate(items):
        resource = _path(type_, keys)
        wrong = request.problem or (None if resource is not None else MALFORMED)
        one = request._replace(resource=resource, problem=wrong)
        yield call.row(one, position in shown if problem is None else None, None, None, problem)


def _item(asked: Mapping[str, Any], item: Any) -> RequestColumns:
    """Return the columns of one item of a batch: `[user, keys]`, with the parts that all items share."""
    type_ = asked["resource"].get("type") if isinstance(asked.get("resource"), dict) else None
    if not (isinstance(type_, str) and isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)):
        return RequestColumns(problem=MALFORMED)
    resource = _path(type_, item[1])
    if resource is None:
        return RequestColumns(problem=MALFORMED)
    shared = {name: value for name, value in asked.items() if name in {"action", "context"}}
    request = {"subject": {"type": "user", "id": item[0]}, "resource": {"type": type_, "id": ""}, **shared}
    return request_columns(request)._replace(resource=resource)


def _path(type_: str, keys: Any) -> str | None:
    """The entity of a type whose keys, from the root down, are given; of a call, the last name is left off."""
    if not isinstance(keys, list) or not all(isinstance(key, str) and ":" in key for key in keys):
        return None
    return f"{type_}:{keys[-1].partition(':')[2] if keys else ''}"


def request_columns(request: Any) -> RequestColumns:
    """Return the columns of a request, as the rules read it: its parts as they are written, not as a client would have checked them."""
    try:
        subject, resource = request["subject"], request["resource"]
        user, type_, id_ = subject["id"], resource["type"], resource.get("id", "")
        action, kind = request["action"]["name"], subject["type"]
        if not (type(user) is type(type_) is type(id_) is type(action) is type(kind) is str) or ":" in type_:
            return RequestColumns(problem=MALFORMED)
        asked = RequestColumns(None if kind == "user" else kind, user, None, None, action, f"{type_}:{id_}")
        more = "context" in request or "properties" in resource or len(subject) > 2 or len(request["action"]) > 1
        return _with_more(request, asked) if more else asked
    except (KeyError, TypeError, AttributeError, ValueError, InvalidRequest):
        return RequestColumns(problem=MALFORMED)


def _with_more(request: Mapping[str, Any], asked: RequestColumns) -> RequestColumns:
    """The same with groups, further objects, what the context states, and other properties. Raises TypeError and others for what is no request."""
    context = {**request.get("context", {})}
    more: dict[str, Any] = {}
    properties = {
        part: {**request[part]["properties"]}
        for part in ("subject", "action", "resource")
        if "properties" in request[part]
    }
    groups = properties.get("subject", {}).pop("groups", [])
    if not (isinstance(groups, list) and all(type(name) is str for name in groups)):
        return RequestColumns(problem=MALFORMED)
    more |= {part: values for part, values in properties.items() if values}
    objects: list[tuple[str, str]] = []
    for slot, entity in sorted({**context.get("with", {})}.items()):
        type_, id_ = entity["type"], entity.get("id", "")
        if not type(type_) is type(id_) is str or ":" in type_:
            return RequestColumns(problem=MALFORMED)
        objects.append((slot, f"{type_}:{id_}"))
        if entity.get("properties"):
            more.setdefault("with", {})[slot] = {**entity["properties"]}
    roles, flags = Request.read_context(context)
    named = {"with"} if roles is None else {"with", "active_roles"}
    values = {name: value for name, value in context.items() if name not in named and not isinstance(value, bool)}
    if values:
        more["context"] = values
    if is_deeper(more, DEEPEST):
        return RequestColumns(problem=MALFORMED)
    return asked._replace(
        groups=groups or None,
        active_roles=None if roles is None else list(roles),
        with_=objects or None,
        flags=sorted(flags) or None,
        attributes=json.dumps(more, **_AS_TEXT) if more else None,
    )


def is_deeper(value: object, most: int) -> bool:
    """Return whether more than `most` objects and lists of a value lie within each other."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (most < 1 and isinstance(value, dict | list)) or any(is_deeper(part, most - 1) for part in parts)
