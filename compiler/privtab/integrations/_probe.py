"""Ask an application in process, as an identity that holds nothing: a route that does not refuse it is not guarded."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from threading import Thread
from typing import Any
from urllib.parse import urlencode

from privtab.errors import AccessDenied
from privtab.integrations._answers import LOG
from privtab.integrations._guard import ASKED, Guard
from privtab.integrations._inspect import AppRoute, Inspected, environ_of, scope_of
from privtab.integrations.asgi import WEBSOCKET
from privtab.request import Entity

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing, if handlers keep to HTTP."""
REFUSALS = (401, 403, 404)
TIMEOUT = 10.0
"""Longest wait for an answer in seconds."""
CSRF = {"cookie": f"csrftoken={'a' * 32}", "x-csrftoken": "a" * 32}
"""Django takes the same secret in the cookie and in the header."""


@dataclass(slots=True, kw_only=True)
class Answer:
    """What came of one request: what guards were asked, the status, and whether a guard's refusal ended it without an answer."""

    method: str
    asked: list[tuple[str, Entity]] = field(default_factory=list)
    status: int | None = None
    refused: bool = False

    @property
    def proves(self) -> bool:
        """Whether a guard was asked, and its refusal was the end."""
        return bool(self.asked) and (self.refused or self.status in REFUSALS)

    def __str__(self) -> str:
        said = "refusal" if self.refused else "answer" if self.status is None else str(self.status)
        return f"{self.method} gives {'no ' * (said == 'answer')}{said}, {'although a' if self.asked else 'and no'} guard was asked"


def probed(
    inspected: Inspected, *, everything: bool = False, headers: Mapping[str, str] | None = None
) -> dict[int, tuple[Answer, ...]]:
    """The answers by the position of the route, for each that requests with made-up parameters reach; without `everything`, of methods that change nothing.

    `headers`: what authentication needs that stands before the guards.
    """
    asks_asgi = inspect.iscoroutinefunction(inspected.app) or inspect.iscoroutinefunction(type(inspected.app).__call__)
    found: dict[int, tuple[Answer, ...]] = {}
    documents = list(_documents(inspected))
    with _standing_in(inspected):
        for number, route in enumerate(inspected.routes):
            answers = []
            for method in route.methods if route.samples else ():
                if not everything and method not in SAFE:
                    continue
                answer = Answer(method=method)
                query, sent, body = _inputs(documents, route, method)
                sent = CSRF | sent | {name.lower(): value for name, value in (headers or {}).items()}
                ask = _ask_asgi if asks_asgi else _ask_wsgi
                call = (inspected.app, answer, route.samples[0], query, sent, body)
                # In a thread, so that a handler without an end keeps nobody waiting.
                thread = Thread(target=ask, args=call, daemon=True)
                thread.start()
                thread.join(TIMEOUT)
                answers.append(Answer(method=method, asked=[*answer.asked]) if thread.is_alive() else answer)
            if answers:
                found[number] = tuple(answers)
    return found


@contextmanager
def _standing_in(inspected: Inspected) -> Iterator[None]:
    """Let every guard deny, and frameworks hand on what is raised."""
    before = [(settings, key, settings.get(key, ...)) for settings, key, _ in inspected.settings]
    try:
        Guard.denies_all = True
        for settings, key, value in inspected.settings:
            settings[key] = value
        yield
    finally:
        Guard.denies_all = False
        for settings, key, value in before:
            if value is ...:
                settings.pop(key, None)
            else:
                settings[key] = value


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, AccessDenied) or (
        isinstance(error, BaseExceptionGroup) and error.subgroup(AccessDenied) is not None
    )


def _ask_asgi(app: Any, answer: Answer, path: str, query: str, headers: Mapping[str, str], body: bytes) -> None:
    ASKED.set(answer.asked)
    is_websocket = answer.method == WEBSOCKET
    raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
    scope = scope_of(answer.method, "", path) | {
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "ws" if is_websocket else "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")] * ("host" not in headers) + raw,
        "subprotocols": [],
        "state": {},
    }
    first = (
        {"type": "websocket.connect"} if is_websocket else {"type": "http.request", "body": body, "more_body": False}
    )
    waiting = [first]

    async def ask() -> None:
        started = asyncio.Event()

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            await started.wait()  # who leaves before the answer begins may get none
            return {"type": "websocket.disconnect" if is_websocket else "http.disconnect", "code": 1000}

        async def send(message: MutableMapping[str, Any]) -> None:
            match message["type"]:
                case "http.response.start" | "websocket.http.response.start":
                    answer.status = message["status"]
                case "websocket.accept":
                    answer.status = 101
                case "websocket.close":
                    answer.status = answer.status or 403
            started.set()

        await app(scope, receive, send)

    _run(lambda: asyncio.run(ask()), answer)


def _ask_wsgi(app: Any, answer: Answer, path: str, query: str, headers: Mapping[str, str], body: bytes) -> None:
    ASKED.set(answer.asked)
    environ = environ_of(answer.method, "", path)
    environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    environ |= {"QUERY_STRING": query, "CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)}
    environ["CONTENT_TYPE"] = headers.get("content-type", "")

    def start_response(status: str, *_: Any) -> Any:
        answer.status = int(status.split(maxsplit=1)[0])
        return lambda _: None

    def ask() -> None:
        chunks = app(environ, start_response)
        next(iter(chunks), None)  # generators begin with their first chunk
        getattr(chunks, "close", lambda: None)()

    _run(ask, answer)


def _run(ask: Any, answer: Answer) -> None:
    try:
        ask()
    except BaseException as error:  # noqa: BLE001  (whatever the application raises, it is no answer)
        answer.refused = _is_refusal(error)
        answer.status = answer.status or 500


# --- what handlers take beside the path ---


def _documents(inspected: Inspected) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for prefix, describe in inspected.documents:
        try:
            yield prefix, describe()
        except Exception as error:  # noqa: BLE001  (an application that cannot be described can be asked)
            LOG.info("the application at %r cannot be described: %s", prefix, error)


def _inputs(
    documents: Sequence[tuple[str, Mapping[str, Any]]], route: AppRoute, method: str
) -> tuple[str, dict[str, str], bytes]:
    """The query, the headers and the body of a request with what FastAPI's own description says is required."""
    for prefix, document in documents:
        path = re.sub(r":\w+\}", "}", route.path.removeprefix(prefix))
        operation = document.get("paths", {}).get(path, {}).get(method.lower())
        if operation is not None:
            break
    else:
        return ("", {}, b"") if method in (*SAFE, WEBSOCKET) else ("", {"content-type": "application/json"}, b"{}")
    places: dict[str, dict[str, str]] = {"query": {}, "header": {}, "path": {}, "cookie": {}}
    for parameter in operation.get("parameters", ()):
        if parameter.get("required"):
            places[parameter["in"]][parameter["name"]] = str(_example(parameter.get("schema", {}), document))
    contents: Mapping[str, Any] = operation.get("requestBody", {}).get("content", {})
    media = next(iter(contents), "")
    value: Any = _example(contents[media].get("schema", {}), document) if media else None
    body = urlencode(value).encode() if media.endswith("urlencoded") else json.dumps(value).encode() if media else b""
    return urlencode(places["query"]), places["header"] | ({"content-type": media} if media else {}), body


def _example(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    """The smallest value that a JSON schema takes, of the schemas that FastAPI writes."""
    match schema:
        case {"$ref": str(reference)}:
            found: Any = document
            for part in reference.removeprefix("#/").split("/"):
                found = found[part]
            return _example(found, document)
        case {"default": value} | {"const": value} | {"enum": [value, *_]} | {"examples": [value, *_]}:
            return value
        case {"anyOf": [first, *_]} | {"oneOf": [first, *_]} | {"allOf": [first, *_]}:
            return _example(first, document)
        case {"type": "object"}:
            return {
                name: _example(schema.get("properties", {}).get(name, {}), document)
                for name in schema.get("required", ())
            }
        case {"type": "array"}:
            return [_example(schema.get("items", {}), document)] * schema.get("minItems", 0)
        case {"type": "integer" | "number"}:
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        case {"type": "boolean"}:
            return True
        case {"type": "string"}:
            formats = {"uuid": "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "date": "2030-01-01", "email": "a@example.org"}
            formats |= {"date-time": "2030-01-01T00:00:00Z", "uri": "https://example.org/"}
            return formats.get(schema.get("format", ""), "a" * max(schema.get("minLength", 1), 1))
        case _:
            return None
