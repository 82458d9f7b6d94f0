"""Ask an application in process, as an identity that holds nothing: a route that does not refuse it is not guarded."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from dis import opname
from io import BytesIO
from types import CodeType, FrameType
from typing import Any, Self
from urllib.parse import urlencode

from privtab.base import AccessDenied, UsageError
from privtab_web._answers import LOG
from privtab_web._guard import DENIALS, Denials, Guard
from privtab_web._inspect import AppRoute, Inspected, environ_of, scope_of
from privtab_web.asgi import WEBSOCKET

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing, if handlers keep to HTTP."""
REFUSALS = (401, 403, 404)
TIMEOUT = 10.0
"""Longest wait for an answer in seconds."""
START_TIMEOUT = 60.0
"""Longest wait in seconds for an application to start or to end."""
CSRF = {"cookie": f"csrftoken={'a' * 32}", "x-csrftoken": "a" * 32}
"""Django takes the same secret in the cookie and in the header."""


@dataclass(slots=True, kw_only=True)
class Answer:
    """The result of one request: the guards' denials, the status, and whether a guard's refusal ended it without an answer."""

    method: str
    denials: Denials = field(default_factory=Denials)
    status: int | None = None
    refused: bool = False

    @property
    def proves(self) -> bool:
        """Return whether a guard denied and its refusal ended the request; a handler that goes on gives its own refusal."""
        return bool(self.denials.asked) and not self.denials.overcome and (self.refused or self.status in REFUSALS)

    def __str__(self) -> str:
        said = "no answer" if self.status is None else "refusal" if self.refused else str(self.status)
        asked = "although a guard was asked" if self.denials.asked else "and no guard was asked"
        return f"{self.method} gives {said}, {'which the handler answered after the denial' if self.denials.overcome else asked}"


def probed(
    inspected: Inspected, *, everything: bool = False, headers: Mapping[str, str] | None = None
) -> dict[int, tuple[Answer, ...]]:
    """The answers by the position of the route, for each that requests with made-up parameters reach; without `everything`, of methods that change nothing.

    `headers`: what authentication needs that stands before the guards. Raises UsageError if the application does not start.
    """
    asks_asgi = inspect.iscoroutinefunction(inspected.app) or inspect.iscoroutinefunction(type(inspected.app).__call__)
    found: dict[int, tuple[Answer, ...]] = {}
    documents = list(_documents(inspected))
    codes = frozenset(code for route in inspected.routes for code in route.codes)
    with _watching(codes), _Loop(inspected.app) if asks_asgi else nullcontext() as loop, _standing_in(inspected):
        for number, route in enumerate(inspected.routes):
            answers = []
            for method in route.methods if route.samples else ():
                if not everything and method not in SAFE:
                    continue
                answer = Answer(method=method)
                query, sent, body = _inputs(documents, route, method)
                sent = CSRF | sent | {name.lower(): value for name, value in (headers or {}).items()}
                call = (inspected.app, answer, route.samples[0], query, sent, body)
                # A handler without an end keeps nobody waiting.
                ended = _in_thread(_ask_wsgi, *call) if loop is None else loop.run(_ask_asgi(loop.state, *call))
                answers.append(answer if ended else Answer(method=method, denials=Denials([*answer.denials.asked])))
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


# --- whether a handler goes on after a denial ---


@contextmanager
def _watching(codes: frozenset[CodeType]) -> Iterator[None]:
    """Note, in threads started from now on, whether a denial leaves these handlers and dependencies."""

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        if frame.f_code not in codes:
            return None
        frame.f_trace_lines = False
        return frame.f_trace or _Leaving()  # coroutines are called for each part

    before = threading.gettrace()
    threading.settrace(called)
    try:
        yield
    finally:
        threading.settrace(before)


class _Leaving:
    """Sees how a function is left: by returning, or by which exception."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """See `sys.settrace`."""
        if event == "exception":
            self.error = argument[1]
        elif event == "return" and (denials := DENIALS.get()) is not None and denials.asked:
            last = opname[frame.f_code.co_code[frame.f_lasti]]
            if last != "YIELD_VALUE":
                denials.overcome = last.startswith("RETURN_") or not _is_refusal(self.error)
        return self


def _is_refusal(error: BaseException | None) -> bool:
    """Return whether an error is a denial, or was raised while handling a denial."""
    match error:
        case None | AccessDenied():
            return error is not None
        case BaseExceptionGroup(exceptions=errors) if any(map(_is_refusal, errors)):
            return True
        case _:
            return _is_refusal(error.__cause__ or error.__context__)


# --- requests ---


class _Loop:
    """An event loop in a thread, with the application started in it as servers do by ASGI's lifespan."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def open(self) -> None:
        """Start the application. Raises UsageError if it does not start."""
        self.state: dict[str, Any] = {}
        self.loop = asyncio.new_event_loop()
        self.stopping = asyncio.Event()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        started: Future[None] = Future()
        self.life = asyncio.run_coroutine_threadsafe(self._live(started), self.loop)
        try:
            started.result(START_TIMEOUT)
        except TimeoutError:
            self.life.cancel()
            raise UsageError(f"the application did not start within {START_TIMEOUT:g} s") from None

    def run(self, coroutine: Coroutine[Any, Any, None]) -> bool:
        """Run a coroutine, and return whether it ended in time."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        if wait([future], TIMEOUT).done:
            return True
        future.cancel()
        if not wait([asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop)], TIMEOUT).done:
            self.open()  # it blocks the loop
        return False

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.stopping.set)
        wait([self.life], START_TIMEOUT)
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def _live(self, started: Future[None]) -> None:
        """The application's lifespan, from its start until the loop is closed."""

        async def receive() -> Any:
            if not started.done():
                return {"type": "lifespan.startup"}
            await self.stopping.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: MutableMapping[str, Any]) -> None:
            said = str(message.get("message", "")).strip().rpartition("\n")[2]
            match message["type"]:
                case "lifespan.startup.complete":
                    started.set_result(None)
                case "lifespan.startup.failed":
                    started.set_exception(UsageError(f"the application does not start{said and ': '}{said}"))
                case "lifespan.shutdown.failed":
                    LOG.warning("the application does not end as it should: %s", said)

        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self.app(scope, receive, send)
        except BaseException as error:  # noqa: BLE001  (one that knows no lifespan may raise anything)
            LOG.info("the application's lifespan raised %r", error)
        finally:
            if not started.done():
                started.set_result(None)


def _in_thread(ask: Callable[..., None], *arguments: Any) -> bool:
    thread = threading.Thread(target=ask, args=arguments, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return not thread.is_alive()


async def _ask_asgi(
    state: Mapping[str, Any],
    app: Any,
    answer: Answer,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
) -> None:
    DENIALS.set(answer.denials)
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
        "state": dict(state),
    }
    waiting = [
        {"type": "websocket.connect"} if is_websocket else {"type": "http.request", "body": body, "more_body": False}
    ]
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

    with _ending(answer):
        await app(scope, receive, send)


def _ask_wsgi(app: Any, answer: Answer, path: str, query: str, headers: Mapping[str, str], body: bytes) -> None:
    DENIALS.set(answer.denials)
    environ = environ_of(answer.method, "", path)
    environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    environ |= {"QUERY_STRING": query, "CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)}
    environ["CONTENT_TYPE"] = headers.get("content-type", "")

    def start_response(status: str, *_: Any) -> Any:
        answer.status = int(status.split(maxsplit=1)[0])
        return lambda _: None

    with _ending(answer):
        chunks = app(environ, start_response)
        next(iter(chunks), None)  # generators begin with their first chunk
        getattr(chunks, "close", lambda: None)()


@contextmanager
def _ending(answer: Answer) -> Iterator[None]:
    try:
        yield
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
