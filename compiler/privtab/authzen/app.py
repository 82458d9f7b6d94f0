"""The API on the wire (§10): paths, methods, tokens, limits, request ids and the log. What is said is the service's."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from privtab.authzen import messages
from privtab.authzen.envelope import Envelope, note
from privtab.authzen.guard import Refused, authorize
from privtab.authzen.messages import Body, Malformed, Searched
from privtab.authzen.metadata import EVALUATION, EVALUATIONS, SEARCH, WELL_KNOWN, metadata
from privtab.authzen.service import Answer, Service, Unsupported
from privtab.authzen.tokens import Scope, Tokens
from privtab.errors import DecisionUnavailable, PolicyError, PrivtabError

LOG = logging.getLogger("privtab.serve")

Method: TypeAlias = Callable[[Body], Awaitable[Answer]]

_JSON = "application/json"
_PATIENCE = 8
"""So many times too much is taken and dropped: who is still sending does not hear what is wrong."""
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a caller may use up."""

    body: int = 1024 * 1024
    """Bytes of a request."""
    seconds: float = 10.0
    """Until a request has come in whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What an application serves, and how."""

    services: Mapping[str, Service]
    """By path prefix: empty, or a slash and the name of a system. One service may stand under several."""
    base: str
    """The address that callers use, without a slash at the end."""
    tokens: Tokens | None = None
    limits: Limits = Limits()
    refresh: float | None = None
    """Seconds between two looks for newer bundles."""


def application(served: Served) -> ASGIApp:
    """The ASGI application."""
    routes = [
        Route("/health", _health, methods=["GET"]),
        Route("/ready", partial(_ready, served), methods=["GET"]),
    ]
    for prefix, service in served.services.items():
        described = partial(_metadata, served, prefix, service)
        routes.append(Route(WELL_KNOWN + prefix, described, methods=["GET"]))
        for path, method, scope in _methods(service):
            endpoint = partial(_endpoint, served, method, scope)
            routes.append(Route(prefix + path, endpoint, methods=["POST"]))
    app = Starlette(routes=routes, lifespan=partial(_lifespan, served))
    app.router.redirect_slashes = False
    return Envelope(app)


def _methods(service: Service) -> Sequence[tuple[str, Method, Scope]]:
    found: list[tuple[str, Method, Scope]] = [
        (EVALUATION, service.evaluation, Scope.EVALUATE),
        (EVALUATIONS, service.evaluations, Scope.EVALUATE),
    ]
    found += [(f"{SEARCH}/{kind}", partial(service.search, kind), Scope.SEARCH) for kind in Searched]
    return found


# --- endpoints -------------------------------------------------------------------------------------------------------


async def _endpoint(served: Served, method: Method, scope: Scope, request: Request) -> Response:
    """Whoever may ask is answered; nobody's body is read before that."""
    try:
        authorize(served.tokens, scope, request)
        body = messages.parse(await _body(request, served.limits))
        answer = await method(body)
        note(request.scope, _outcome(answer))
        return Response(_encode(answer), media_type=_JSON)
    except Refused as refused:
        return _error(refused.status, str(refused), refused.headers)
    except Malformed as error:
        return _error(400, str(error))
    except Unsupported as error:
        return _error(501, str(error))
    except DecisionUnavailable as error:
        LOG.warning("no decision: %s", error)
        return _error(503, "no decision can be made at the moment", {"Retry-After": "1"})
    except PolicyError as error:
        LOG.log(logging.ERROR, "no decision: %s", error)
        return _error(500, "the decision point does not answer as it should")
    except ClientDisconnect:
        return _error(400, "the request ended before its body did")
    except Exception:
        LOG.exception("a request failed")
        return _error(500, "internal error")


async def _metadata(served: Served, prefix: str, service: Service, request: Request) -> Response:
    del request
    document = metadata(served.base + prefix, searches=service.point.searches)
    return Response(_encode(document), media_type=_JSON, headers={"Cache-Control": "max-age=300"})


async def _health(request: Request) -> Response:
    """The process answers."""
    del request
    return Response(_encode({"status": "ok"}), media_type=_JSON)


async def _ready(served: Served, request: Request) -> Response:
    """Every system could be decided about now."""
    del request
    services = {id(service): service for service in served.services.values()}.values()
    answers = {service.system: await service.point.ready() for service in services}
    ready = all(answers.values())
    return Response(_encode({"ready": ready, "systems": answers}), 200 if ready else 503, media_type=_JSON)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as §10.1.2 has it: a status and a message."""
    return PlainTextResponse(message, status, dict(headers or {}))


# --- what stands before an answer --------------------------------------------------------------------------------------


async def _body(request: Request, limits: Limits) -> bytes:
    kind = request.headers.get("content-type", "")
    media, _, parameters = kind.partition(";")
    if media.strip().lower() != _JSON:
        raise Refused(400, f"Content-Type must be {_JSON}")
    charset = parameters.strip().lower().replace('"', "")
    if charset.startswith("charset=") and charset.removeprefix("charset=") not in ("utf-8", "utf8"):
        raise Refused(400, "the charset of JSON is utf-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "a body must not be compressed", Accept_Encoding="identity")
    too_large = Refused(413, f"a request has {limits.body} bytes at most", Connection="close")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body * _PATIENCE:
        raise too_large
    found = bytearray()
    size = 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limits.body:
                    found += chunk
                elif size > limits.body * _PATIENCE:
                    break
    except TimeoutError:
        raise Refused(408, "the request did not come in time", Connection="close") from None
    if size > limits.body:
        raise too_large
    return bytes(found)


def _outcome(answer: Answer) -> str:
    """What the log says of an answer: neither names nor reasons."""
    if "evaluations" in answer:
        listed = answer["evaluations"]
        return f"{sum(one['decision'] for one in listed)} of {len(listed)} allowed"
    if "results" in answer:
        return f"{len(answer['results'])} found"
    return "allow" if answer["decision"] else "deny"


# --- the life of a server ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _lifespan(served: Served, app: Starlette) -> AsyncIterator[None]:
    del app
    points = [s.point for s in {id(service): service for service in served.services.values()}.values()]
    tasks = [asyncio.create_task(_every(served.refresh, point.refresh)) for point in points if served.refresh]
    if served.tokens is not None:
        tasks.append(asyncio.create_task(_every(1.0, partial(asyncio.to_thread, served.tokens.refresh))))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        for point in points:
            await point.close()


async def _every(seconds: float | None, look: Callable[[], Awaitable[Any]]) -> None:
    """Look again and again; what fails is told once, and stays as it was."""
    assert seconds is not None
    told = ""
    while True:
        await asyncio.sleep(seconds)
        try:
            await look()
            told = ""
        except PrivtabError as error:
            if str(error) != told:
                LOG.warning("not refreshed, the last good ones stay in force: %s", error)
            told = str(error)
