"""The HTTP binding of the API (§10): paths, methods, tokens, limits, request ids and the log. `service` makes the answers."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Never, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ScopeOfCall

from privtab.base import DecisionUnavailable, PolicyError, PrivtabError, bare_name
from privtab_server.authzen import messages
from privtab_server.authzen.messages import Body, Malformed, SearchKind
from privtab_server.authzen.service import ResponseBody, Service, Unsupported
from privtab_server.serving.access_log import AccessLog, note
from privtab_server.serving.endpoint import HttpError, answered, authorize, every, read_json_body, running
from privtab_server.serving.tokens import Tokens

WELL_KNOWN = "/.well-known/authzen-configuration"
EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"
SEARCH = "/access/v1/search"


def metadata(base: str, *, searches: bool) -> dict[str, str]:
    """The document of the PDP at an address; without `searches` it can only search for actions."""
    found = {
        "policy_decision_point": base,
        "access_evaluation_endpoint": base + EVALUATION,
        "access_evaluations_endpoint": base + EVALUATIONS,
    }
    for kind in ("subject", "resource", "action"):
        if searches or kind == "action":
            found[f"search_{kind}_endpoint"] = f"{base}{SEARCH}/{kind}"
    return found


LOG = logging.getLogger("privtab.serve")

Method: TypeAlias = Callable[[Body], Awaitable[ResponseBody]]
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

_JSON = "application/json"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class Scope(StrEnum):
    """The scopes of tokens for this API."""

    EVALUATE = "evaluate"
    SEARCH = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """The services of an application and its settings."""

    services: Mapping[str, Service]
    """Services by path prefix: empty, or a slash and the name of a system. A service may have several prefixes."""
    base: str
    """The address that callers use, without a trailing slash."""
    tokens: Tokens | None = None
    of_users: bool = False
    """True if each token belongs to the user of its name, who may ask only about themselves unless the token states scopes."""
    max_body: int = 1024 * 1024
    """Maximum bytes of a request."""
    refresh: float | None = None
    """Seconds between two checks for newer bundles."""
    routes: Sequence[Route] = ()
    """Further endpoints of the same server."""
    admit: Callable[[Request], Awaitable[None]] | None = None
    """Called before a call of the API is answered; raises Refused, or an error of privtab."""
    beside: Sequence[Callable[[], AbstractAsyncContextManager[None]]] = ()
    """Tasks that run as long as the server."""


def application(settings: AppSettings) -> ASGIApp:
    """The ASGI application."""
    direct: dict[str, Endpoint] = {}
    routes: list[Route] = [
        Route("/health", _health, methods=["GET"]),
        Route("/ready", partial(_ready, settings), methods=["GET"]),
    ]
    for prefix, service in settings.services.items():
        describe = partial(_metadata, settings, prefix, service)
        routes.append(Route(WELL_KNOWN + prefix, describe, methods=["GET"]))
        for path, method, scope in _methods(service):
            endpoint = partial(_endpoint, settings, method, scope, listing=path.endswith(f"/{SearchKind.SUBJECT}"))
            routes.append(Route(prefix + path, endpoint, methods=["POST"]))
            direct[prefix + path] = endpoint
    routes += settings.routes
    app = Starlette(routes=routes, lifespan=partial(_lifespan, settings))
    app.router.redirect_slashes = False
    return AccessLog(DirectCalls(app, direct))


class DirectCalls:
    """Leads calls of the API to their endpoints by one look-up, instead of a pattern for each route; all others to `app`."""

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, Endpoint]) -> None:
        """`endpoints`: by path, for POST; they answer errors themselves."""
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: ScopeOfCall, receive: Receive, send: Send) -> None:
        """As in ASGI."""
        is_call = scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path")
        endpoint = self._endpoints.get(scope["path"]) if is_call else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        answer = await endpoint(Request(scope, receive))
        await answer(scope, receive, send)


def _methods(service: Service) -> Sequence[tuple[str, Method, Scope]]:
    methods: list[tuple[str, Method, Scope]] = [
        (EVALUATION, service.evaluation, Scope.EVALUATE),
        (EVALUATIONS, service.evaluations, Scope.EVALUATE),
    ]
    methods += [(f"{SEARCH}/{kind}", partial(service.search, kind), Scope.SEARCH) for kind in SearchKind]
    return methods


# --- endpoints -------------------------------------------------------------------------------------------------------


async def _endpoint(
    settings: AppSettings, method: Method, scope: Scope, request: Request, *, listing: bool
) -> Response:
    """Check the token before reading the body. `listing`: the answer names other users."""

    async def answer(request: Request) -> Response:
        bearer = authorize(settings.tokens, scope, request)
        if settings.admit is not None:
            await settings.admit(request)
        try:
            body = messages.parse(await read_json_body(request, settings.max_body))
            if settings.of_users and bearer is not None and not bearer.stated:
                _check_about(bearer.name, body, scope, listing=listing)
            answer = await method(body)
        except Malformed as error:
            raise HttpError(400, str(error)) from None
        note(request.scope, _outcome(answer))
        return Response(_encode(answer), media_type=_JSON)

    return await answered(request, answer, _refuse)


def _check_about(user: str, body: Body, scope: Scope, *, listing: bool) -> None:
    """Raise HttpError if a message is about others than this user."""
    if listing or any(bare_name(name, "user") != user for name in messages.subjects(body)):
        challenge = f'Bearer realm="privtab", error="insufficient_scope", scope="{scope}"'
        message = f"a token without scopes asks only about its own user: for others it needs the scope `{scope}`"
        raise HttpError(403, message, WWW_Authenticate=challenge)


def _refuse(request: Request, error: PrivtabError) -> Never:
    """Turn an error into a status and a message (§10.1.2)."""
    del request
    if isinstance(error, Unsupported):
        raise HttpError(501, str(error))
    if isinstance(error, DecisionUnavailable):
        LOG.warning("no decision: %s", error)
        raise HttpError(503, "no decision can be made at the moment", Retry_After="1")
    if isinstance(error, PolicyError):
        LOG.error("no decision: %s", error)
        raise HttpError(500, "the decision point does not answer as it should")
    raise error


async def _metadata(settings: AppSettings, prefix: str, service: Service, request: Request) -> Response:
    del request
    document = metadata(settings.base + prefix, searches=service.point.searches)
    return Response(_encode(document), media_type=_JSON, headers={"Cache-Control": "max-age=300"})


async def _health(request: Request) -> Response:
    """200 while the process runs."""
    del request
    return Response(_encode({"status": "ok"}), media_type=_JSON)


async def _ready(settings: AppSettings, request: Request) -> Response:
    """200 if all systems can be decided now."""
    del request
    services = {id(service): service for service in settings.services.values()}.values()
    answers = {service.system: await service.point.ready() for service in services}
    ready = all(answers.values())
    return Response(_encode({"ready": ready, "systems": answers}), 200 if ready else 503, media_type=_JSON)


# --- checks and log notes ----------------------------------------------------------------------------------------------


def _outcome(answer: ResponseBody) -> str:
    """The outcome for the access log, without names and reasons."""
    if "evaluations" in answer:
        evaluations = answer["evaluations"]
        return f"{sum(evaluation['decision'] for evaluation in evaluations)} of {len(evaluations)} allowed"
    if "results" in answer:
        return f"{len(answer['results'])} found"
    return "allow" if answer["decision"] else "deny"


# --- lifespan ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _lifespan(settings: AppSettings, app: Starlette) -> AsyncIterator[None]:
    del app
    points = [service.point for service in {id(service): service for service in settings.services.values()}.values()]
    seconds = settings.refresh
    try:
        async with (
            running([every(seconds, point.refresh) for point in points] if seconds else [], settings.tokens),
            AsyncExitStack() as stack,
        ):
            for beside in settings.beside:
                await stack.enter_async_context(beside())
            yield
    finally:
        for point in points:
            await point.close()
