"""The HTTP endpoints of the registry server, for sidecars and operators."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Never

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from privtab.errors import PrivtabError, RegistryError, UsageError
from privtab.printable import printable_json
from privtab.registry.server import decisions
from privtab.registry.server.bodies import document
from privtab.registry.server.desired_revision import DesiredRevision, SidecarIdentity
from privtab.registry.server.feeds import Feeds
from privtab.registry.server.files import file
from privtab.registry.server.fleet import Fleet, LastPoll, sidecar
from privtab.registry.server.metrics import CONTENT_TYPE, Metrics
from privtab.registry.server.page import HEADERS, contents, page
from privtab.serving.endpoint import answered, running
from privtab.serving.envelope import Envelope, caller_of, note
from privtab.serving.guard import Refused, authorize, check_binding
from privtab.serving.tokens import Tokens

LOG = logging.getLogger("privtab.serve")

LONG_POLL = "application/vnd.openpolicyagent.bundles"
"""The content type that tells OPA that the server supports long polls."""
GZIP = "application/gzip"
LONGEST_WAIT = 600.0
"""Maximum seconds of a long poll."""
MOST_TRIED = 10_000

_WAIT = re.compile(r"(?:^|[;,\s])wait=(\d{1,6})")
_MODES = re.compile(r"(?:^|[;\s])modes=([\w,]+)")


class Role(StrEnum):
    """What a token permits."""

    SIDECAR = "sidecar"
    """Download bundles, send reports."""
    OPERATOR = "operator"
    """Read the fleet, the metrics and the registry."""


@dataclass(slots=True, kw_only=True)
class Served:
    """The state of a server."""

    feeds: Feeds
    fleet: Fleet
    tokens: Tokens | None = None
    tried: OrderedDict[tuple[str, str, str], None] = field(default_factory=OrderedDict)
    """Deltas that were sent; a sidecar that requests one again could not apply it."""
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held while a large body is processed."""
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.feeds, self.fleet)


def application(served: Served) -> ASGIApp:
    """The ASGI application."""
    channel = "/channels/{channel}/{system}"
    routes = [
        _route(served, f"{channel}/{{file}}.tar.gz", _bundle, Role.SIDECAR),
        _route(served, f"{channel}/shards/{{file}}.tar.gz", partial(_bundle, folder="shards/"), Role.SIDECAR),
        _route(served, "/status", _status, Role.SIDECAR, "POST"),
        _route(served, "/status/{partition:path}", _status, Role.SIDECAR, "POST"),
        _route(served, "/logs", _logs, Role.SIDECAR, "POST"),
        _route(served, "/logs/{partition:path}", _logs, Role.SIDECAR, "POST"),
        _route(served, "/fleet", _fleet, Role.OPERATOR),
        _route(served, "/metrics", _metrics, Role.OPERATOR),
        Route("/health", partial(_health, served), methods=["GET"]),
        _route(served, "/{path:path}", _file, Role.OPERATOR),
    ]
    app = Starlette(routes=routes, lifespan=partial(_lifespan, served))
    app.router.redirect_slashes = False
    return Envelope(app)


def _route(
    served: Served,
    path: str,
    endpoint: Callable[[Served, Request], Awaitable[Response]],
    role: Role,
    method: str = "GET",
) -> Route:
    """An endpoint that checks the token and turns errors into answers."""

    async def checked(request: Request) -> Response:
        try:
            bearer = authorize(served.tokens, role, request)
            if role is Role.SIDECAR:
                who, _ = _who(request)
                check_binding(served.tokens, bearer, who.instance, who.labels)
            return await endpoint(served, request)
        except Refused as refused:
            _turn_away(served, request, refused)
            raise

    async def guarded(request: Request) -> Response:
        return await answered(request, checked, _refuse)

    return Route(path, guarded, methods=[method])


def _refuse(request: Request, error: PrivtabError) -> Never:
    if isinstance(error, UsageError):
        raise Refused(404, str(error))
    LOG.warning("%s: %s", request.url.path[:200], error)
    raise Refused(503, "the registry's storage is unavailable", Retry_After="1")


# --- bundles ---------------------------------------------------------------------------------------------------------


async def _bundle(served: Served, request: Request, *, folder: str = "") -> Response:
    """A bundle, the delta from the sidecar's bundle, or 304 if nothing changed."""
    at = request.path_params
    name = f"{folder}{at['file']}.tar.gz"
    who, address = _who(request)
    served.fleet.record_channel_request(who, address, at["channel"], at["system"])
    wanted = await _wanted(served, at["channel"], at["system"], name, who)
    held = _active_etag(request)
    asked = served.fleet.record_poll(who, address, wanted, held)
    waits = _wait(request)
    if waits is not None and wanted.stays(held):
        wanted = await _poll(served, request, asked, wanted, name, who, waits)
    if wanted.channel.lost and held is None:
        raise Refused(503, "the last release cannot be read, so it is unknown whether it ran", Retry_After="5")
    stream = wanted.channel.channel, wanted.channel.system, wanted.kind
    stays = wanted.stays(held)
    headers = {
        "ETag": held if stays and held else wanted.etag,
        "Cache-Control": "no-cache",
        "Vary": "Prefer, X-Privtab-Instance, X-Privtab-Labels",
    }
    trouble = served.feeds.trouble
    if trouble is not None:
        headers["X-Privtab-Stale"] = f"{max(0.0, time.time() - trouble.since):.0f}"
    if stays:
        served.metrics.not_modified.labels(*stream).inc()
        note(request.scope, "not modified", routine=True)
        return Response(status_code=304, headers=headers)
    if asked is not None:
        asked.wanted, asked.canary = wanted.id, wanted.canary
    body, mode = await _body(served, request, wanted, held, who.instance or address)
    served.metrics.served.labels(*stream, mode).inc()
    served.metrics.bytes.labels(*stream, mode).inc(len(body))
    note(request.scope, f"{mode} {wanted.id}")
    return Response(body, media_type=GZIP if waits is None else LONG_POLL, headers=headers)


async def _wanted(served: Served, channel: str, system: str, name: str, who: SidecarIdentity) -> DesiredRevision:
    current = await served.feeds.channel(channel, system)
    wanted = served.feeds.wanted(current, name, who) if current is not None else None
    if current is not None and current.sequence == 0:
        raise RegistryError(current.trouble)
    if wanted is None:
        raise UsageError("there is no such bundle")
    return wanted


async def _body(
    served: Served, request: Request, wanted: DesiredRevision, held: str | None, asks: str
) -> tuple[bytes, str]:
    """The body and its mode. A delta is sent to each sidecar once: if requested again, it could not be applied."""
    tried = (asks, held or "", wanted.etag)
    if held and _deltas(request) and tried not in served.tried:
        delta = await served.feeds.delta(wanted, held)
        if delta is not None:
            served.tried[tried] = None
            if len(served.tried) > MOST_TRIED:
                served.tried.popitem(last=False)
            return delta, "delta"
    return await served.feeds.bundle(wanted.digest), "full"


async def _poll(
    served: Served,
    request: Request,
    asked: LastPoll | None,
    wanted: DesiredRevision,
    name: str,
    who: SidecarIdentity,
    seconds: float,
) -> DesiredRevision:
    """Wait for another bundle for this sidecar, until time is up, the sidecar disconnects, or the server stops."""
    deadline = time.monotonic() + min(seconds, LONGEST_WAIT)
    gone = asyncio.create_task(_gone(request))
    served.metrics.polls.inc()
    if asked is not None:
        asked.waiting += 1
    try:
        before = wanted
        while not gone.done() and not served.feeds.ended:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            switched = asyncio.create_task(served.feeds.switched(before.channel, left))
            await asyncio.wait([switched, gone], return_when=asyncio.FIRST_COMPLETED)
            switched.cancel()
            before = await _wanted(served, wanted.channel.channel, wanted.channel.system, name, who)
            if asked is not None:
                asked.canary = before.canary
            if not before.stays(_active_etag(request)):
                break
        return before
    finally:
        gone.cancel()
        served.metrics.polls.dec()
        served.fleet.touch(who)
        if asked is not None:
            asked.waiting -= 1


async def _gone(request: Request) -> None:
    """Return when the sidecar disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _active_etag(request: Request) -> str | None:
    """The ETag of the sidecar's active bundle. OPA may list earlier ones after it, which are ignored.

    After a rollback an earlier bundle is sent again, so it must not count as present.
    """
    first = request.headers.get("if-none-match", "").partition(",")[0].strip().removeprefix("W/")
    return first or None


def _wait(request: Request) -> float | None:
    """The seconds that the sidecar is willing to wait; None without long polling."""
    found = _WAIT.search(request.headers.get("prefer", ""))
    return float(found[1]) if found else None


def _deltas(request: Request) -> bool:
    found = _MODES.search(request.headers.get("prefer", ""))
    return found is not None and "delta" in found[1].split(",")


# --- reports of sidecars ---------------------------------------------------------------------------------------------


async def _status(served: Served, request: Request) -> Response:
    note(request.scope, None, routine=True)
    report = await document(request, served.large, lambda value: value)
    who, address = _who(request)
    if not served.fleet.reports(who, address, report):
        raise Refused(400, "the body is not a status of an OPA: it needs labels with an id")
    served.metrics.reports.inc()
    return Response(status_code=200)


async def _logs(served: Served, request: Request) -> Response:
    note(request.scope, None, routine=True)
    begun = tuple(served.feeds.canaries.values())
    tallied = await document(request, served.large, partial(decisions.tally, begun=begun))
    who, address = _who(request)
    if not served.fleet.counted(who, address, tallied, begun):
        raise Refused(400, "the body is not a decision log of an OPA: it is not a list")
    served.metrics.logs.inc()
    return Response(status_code=200)


# --- for operators ---------------------------------------------------------------------------------------------------


async def _fleet(served: Served, request: Request) -> Response:
    """Channels, sidecars and counts; filtered by `channel=` and `system=`."""
    channel, system = request.query_params.get("channel"), request.query_params.get("system")
    if channel and system:
        await served.feeds.channel(channel, system)
    channels = [
        known.to_json() | {"last": known.last, "trouble": known.trouble or None}
        for (name, of), known in sorted(served.feeds.channels.items())
        if channel in (None, name) and system in (None, of)
    ]
    sidecars = [
        one
        for one in served.fleet.sidecars(served.feeds.places)
        if not (channel or system) or any(_fits(place, channel, system) for place in one["reads"])
    ]
    return _json(
        {
            "server": {"started": _time(served.fleet.started), "now": _time(time.time()), "storage": _storage(served)},
            "channels": channels,
            "sidecars": sidecars,
            "decisions": (counted := served.fleet.counts.to_json()),
            "kinds": {revision: kind for revision in counted if (kind := served.feeds.kinds.get(revision))},
            "trials": served.fleet.trials(served.feeds.canaries.values()),
            "refused": served.fleet.turned_away(),
        }
    )


def _fits(place: str, channel: str | None, system: str | None) -> bool:
    name, _, of = place.partition("/")
    return channel in (None, name) and system in (None, of)


async def _metrics(served: Served, request: Request) -> Response:
    note(request.scope, None, routine=True)
    return Response(served.metrics.text(), media_type=CONTENT_TYPE)


async def _health(served: Served, request: Request) -> Response:
    """200 while the process runs; the body also has the status of the storage."""
    note(request.scope, None, routine=True)
    trouble = served.feeds.trouble
    ready = trouble is None or bool(served.feeds.channels)
    return _json({"status": "ok" if trouble is None else "stale" if ready else "unavailable"}, 200 if ready else 503)


async def _file(served: Served, request: Request) -> Response:
    """The registry's files, as from a static server, for `Registry.open("https://…")`; at the root an HTML page."""
    if not request.path_params["path"]:
        found = await asyncio.to_thread(contents, served.feeds)
        return Response(page(served.feeds, served.fleet, *found), media_type="text/html", headers=HEADERS)
    content, kind = await asyncio.to_thread(file, served.feeds.registry, request.path_params["path"])
    return Response(content, media_type=kind)


# --- the rest --------------------------------------------------------------------------------------------------------


def _who(request: Request) -> tuple[SidecarIdentity, str]:
    who = sidecar(request.headers.get("x-privtab-instance"), request.headers.get("x-privtab-labels"))
    return who, request.client.host if request.client else ""


def _turn_away(served: Served, request: Request, refused: Refused) -> None:
    served.metrics.refused.labels(refused.status).inc()
    who, address = _who(request)
    if refused.status in (401, 403):
        token = caller_of(request.scope)
        served.fleet.refused(who, address, request.url.path, refused.status, str(refused), token)
        LOG.warning("%s was refused %s: %s", who.instance or address, request.url.path[:200], refused)


def _storage(served: Served) -> dict[str, Any]:
    trouble = served.feeds.trouble
    return {
        "url": served.feeds.registry.url,
        "ok": trouble is None,
        "stale_since": _time(trouble.since) if trouble else None,
        "error": trouble.message if trouble else None,
    }


def _json(value: object, status: int = 200) -> Response:
    return Response(printable_json(value).encode(), status, media_type="application/json")


def _time(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@asynccontextmanager
async def _lifespan(served: Served, app: Starlette) -> AsyncIterator[None]:
    del app
    await served.feeds.start()
    try:
        async with running([served.feeds.watch()], served.tokens):
            yield
    finally:
        await served.feeds.close()
