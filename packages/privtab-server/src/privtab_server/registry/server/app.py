"""The HTTP endpoints of the registry server, for sidecars and operators."""

from __future__ import annotations

import asyncio
import html
import logging
import re
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Never, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from privtab.base import PrivtabError, UsageError, printable_json, strict_loads
from privtab_analysis.html import PAGE_HEADERS
from privtab_server.errors import RegistryError
from privtab_server.registry import names
from privtab_server.registry.nodes import timestamp
from privtab_server.registry.registry import Registry
from privtab_server.registry.server import decisions
from privtab_server.registry.server.feeds import Feeds
from privtab_server.registry.server.fleet import FleetTracker, LastPoll
from privtab_server.registry.server.kept_logs import KeptLogs
from privtab_server.registry.server.metrics import CONTENT_TYPE, Metrics
from privtab_server.registry.server.page import contents, difference, history, page
from privtab_server.registry.server.sidecar import DesiredRevision, SidecarIdentity, sidecar_identity
from privtab_server.registry.stores import Missing
from privtab_server.serving.access_log import AccessLog, caller_of, note
from privtab_server.serving.endpoint import HttpError, answered, authorize, check_binding, read_body, running
from privtab_server.serving.tokens import Tokens

_WAIT = re.compile(r"(?:^|[;,\s])wait=(\d{1,6})")


def active_etag(request: Request) -> str | None:
    """The ETag of the sidecar's active bundle. OPA may list earlier ones after it, which are ignored.

    After a rollback an earlier bundle is sent again, so it must not count as present.
    """
    first = request.headers.get("if-none-match", "").partition(",")[0].strip().removeprefix("W/")
    return first or None


def wait_seconds(request: Request) -> float | None:
    """The seconds that the sidecar is willing to wait; None without long polling."""
    match = _WAIT.search(request.headers.get("prefer", ""))
    return float(match[1]) if match else None


_PARTS = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_TOP = (names.BLOBS, names.REVISIONS, names.CHANNELS)


def file(registry: Registry, path: str) -> tuple[bytes, str]:
    """The content of a file or the listing of a folder, with its content type; raises UsageError if there is neither."""
    parts = path.rstrip("/").split("/") if path.strip("/") else []
    allowed = not parts or parts[0] in _TOP or parts == [names.SETTINGS]
    if not allowed or not all(_PARTS.fullmatch(part) and ".." not in part for part in parts):
        raise UsageError("there is no such file")
    if parts and not path.endswith("/"):
        try:
            content = registry.store.read("/".join(parts))
        except Missing:
            raise UsageError("there is no such file") from None
        return content, "application/json" if parts[-1].endswith(".json") else "application/gzip"
    children = registry.store.names("/".join(parts))
    if parts and not children:
        raise UsageError("there is no such folder")
    shown = [name for name in children if parts or name in (*_TOP, names.SETTINGS)]
    links = [f'<a href="{html.escape(name)}">{html.escape(name)}</a>' for name in shown]
    return "<br>\n".join(links).encode(), "text/html; charset=utf-8"


LOG = logging.getLogger("privtab.serve")

LONG_POLL = "application/vnd.openpolicyagent.bundles"
"""The content type that tells OPA that the server supports long polls."""
GZIP = "application/gzip"
LONGEST_WAIT = 600.0
"""Maximum seconds of a long poll."""


class Role(StrEnum):
    """The permissions of a token."""

    SIDECAR = "sidecar"
    """Download bundles, send reports."""
    OPERATOR = "operator"
    """Read the fleet, the metrics and the registry."""


@dataclass(slots=True, kw_only=True)
class ServerState:
    """Objects that the endpoints of a server share."""

    feeds: Feeds
    fleet: FleetTracker
    tokens: Tokens | None = None
    kept_logs: KeptLogs | None = None
    """Storage of decision logs, which are always counted."""
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held while a large body is processed."""
    comparing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held while two releases are compared, which takes a core for a while."""
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.feeds, self.fleet, self.kept_logs)


def application(server: ServerState) -> ASGIApp:
    """The ASGI application of a registry's server."""
    routes = [
        *sidecar_routes(server),
        Route("/health", partial(_health, server), methods=["GET"]),
        _route(server, "/history/{channel}/{system}", _history, Role.OPERATOR),
        _route(server, "/history/{channel}/{system}/{number:int}", _history, Role.OPERATOR),
        _route(server, "/{path:path}", _file, Role.OPERATOR),
    ]
    app = Starlette(routes=routes, lifespan=lambda _: watching(server))
    app.router.redirect_slashes = False
    return AccessLog(app)


def sidecar_routes(server: ServerState) -> list[Route]:
    """The endpoints for sidecars, and what they report."""
    channel = "/channels/{channel}/{system}"
    return [
        _route(server, f"{channel}/{{file}}.tar.gz", _bundle, Role.SIDECAR),
        _route(server, f"{channel}/shards/{{file}}.tar.gz", partial(_bundle, folder="shards/"), Role.SIDECAR),
        _route(server, "/status", _status, Role.SIDECAR, "POST"),
        _route(server, "/status/{partition:path}", _status, Role.SIDECAR, "POST"),
        _route(server, "/logs", _logs, Role.SIDECAR, "POST"),
        _route(server, "/logs/{partition:path}", _logs, Role.SIDECAR, "POST"),
        _route(server, "/fleet", _fleet, Role.OPERATOR),
        _route(server, "/metrics", _metrics, Role.OPERATOR),
    ]


def _route(
    server: ServerState,
    path: str,
    endpoint: Callable[[ServerState, Request], Awaitable[Response]],
    role: Role,
    method: str = "GET",
) -> Route:
    """An endpoint that checks the token and turns errors into answers."""

    async def checked(request: Request) -> Response:
        try:
            bearer = authorize(server.tokens, role, request)
            if role is Role.SIDECAR:
                identity, _ = _identity(request)
                check_binding(server.tokens, bearer, identity.instance, identity.labels)
            return await endpoint(server, request)
        except HttpError as refusal:
            _record_refusal(server, request, refusal)
            raise

    return Route(path, partial(answered, endpoint=checked, refuse=_refuse), methods=[method])


def _refuse(request: Request, error: PrivtabError) -> Never:
    if isinstance(error, UsageError):
        raise HttpError(404, str(error))
    LOG.warning("%s: %s", request.url.path[:200], error)
    raise HttpError(503, "the registry's storage is unavailable", Retry_After="1")


# --- bundles ---------------------------------------------------------------------------------------------------------


async def _bundle(server: ServerState, request: Request, *, folder: str = "") -> Response:
    """A bundle, or 304 if nothing changed."""
    params = request.path_params
    name = f"{folder}{params['file']}.tar.gz"
    identity, address = _identity(request)
    server.fleet.record_channel_request(identity, address, params["channel"], params["system"])
    desired = await _desired(server, params["channel"], params["system"], name, identity)
    held_etag = active_etag(request)
    poll = server.fleet.record_poll(identity, address, desired, held_etag)
    if poll is not None:
        server.metrics.record_activation(desired, poll)
    wait = wait_seconds(request)
    if wait is not None and desired.is_current(held_etag):
        desired = await _poll(server, request, poll, desired, name, identity, wait)
    if desired.channel.lost and held_etag is None:
        raise HttpError(503, "the last release cannot be read, so it is unknown whether it ran", Retry_After="5")
    stream = desired.channel.channel, desired.channel.system, desired.kind
    stays = desired.is_current(held_etag)
    headers = {
        "ETag": held_etag if stays and held_etag else desired.etag,
        "Cache-Control": "no-cache",
        "Vary": "Prefer, X-Privtab-Instance, X-Privtab-Labels",
    }
    trouble = server.feeds.trouble
    if trouble is not None:
        headers["X-Privtab-Stale"] = f"{max(0.0, time.time() - trouble.since):.0f}"
    if stays:
        server.metrics.not_modified.labels(*stream).inc()
        note(request.scope, "not modified", routine=True)
        return Response(status_code=304, headers=headers)
    if poll is not None:
        poll.desired, poll.canary = desired.id, desired.canary
    body = await server.feeds.bundle(desired.digest)
    server.metrics.served.labels(*stream).inc()
    server.metrics.bytes.labels(*stream).inc(len(body))
    note(request.scope, f"sent {desired.id}")
    return Response(body, media_type=GZIP if wait is None else LONG_POLL, headers=headers)


async def _desired(
    server: ServerState, channel: str, system: str, name: str, identity: SidecarIdentity
) -> DesiredRevision:
    current = await server.feeds.channel(channel, system)
    desired = server.feeds.desired(current, name, identity) if current is not None else None
    if current is not None and current.sequence == 0:
        raise RegistryError(current.trouble)
    if desired is None:
        raise UsageError("there is no such bundle")
    return desired


async def _poll(
    server: ServerState,
    request: Request,
    poll: LastPoll | None,
    desired: DesiredRevision,
    name: str,
    identity: SidecarIdentity,
    seconds: float,
) -> DesiredRevision:
    """Wait for another bundle for this sidecar, until time is up, the sidecar disconnects, or the server stops."""
    deadline = time.monotonic() + min(seconds, LONGEST_WAIT)
    disconnected = asyncio.create_task(_disconnected(request))
    server.metrics.polls.inc()
    if poll is not None:
        poll.waiting += 1
    try:
        current = desired
        while not disconnected.done() and not server.feeds.closed:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            changed = asyncio.create_task(server.feeds.wait_for_change(current.channel, remaining))
            await asyncio.wait([changed, disconnected], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            current = await _desired(server, desired.channel.channel, desired.channel.system, name, identity)
            if poll is not None:
                poll.canary = current.canary
            if not current.is_current(active_etag(request)):
                break
        return current
    finally:
        disconnected.cancel()
        server.metrics.polls.dec()
        server.fleet.touch(identity)
        if poll is not None:
            poll.waiting -= 1


async def _disconnected(request: Request) -> None:
    """Return when the sidecar disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# --- reports of sidecars ---------------------------------------------------------------------------------------------


async def _status(server: ServerState, request: Request) -> Response:
    note(request.scope, None, routine=True)
    report = await parsed(await body(request), server.large, lambda value: value)
    identity, address = _identity(request)
    if not server.fleet.record_status(identity, address, report):
        raise HttpError(400, "the body is not a status of an OPA: it needs labels with an id")
    server.metrics.reports.inc()
    return Response(status_code=200)


async def _logs(server: ServerState, request: Request) -> Response:
    note(request.scope, None, routine=True)
    canaries = tuple(server.feeds.canaries.values())
    text = await body(request)

    def counted(log: Any) -> tuple[dict[str, decisions.CountedEvents] | None, int]:
        return decisions.count_decisions(log, canaries), len(log) if isinstance(log, list) else 0

    counts, entries = await parsed(text, server.large, counted)
    identity, address = _identity(request)
    if server.kept_logs is not None and counts is not None:
        await server.kept_logs.append(text, entries)
    if not server.fleet.record_counts(identity, address, counts, canaries):
        raise HttpError(400, "the body is not a decision log of an OPA: it is not a list of objects")
    server.metrics.logs.inc()
    return Response(status_code=200)


# --- for operators ---------------------------------------------------------------------------------------------------


async def _fleet(server: ServerState, request: Request) -> Response:
    """Channels, sidecars and counts; filtered by `channel=` and `system=`."""
    channel, system = request.query_params.get("channel"), request.query_params.get("system")
    if channel and system:
        await server.feeds.channel(channel, system)
    channels = [
        known.to_json() | {"last": known.last, "trouble": known.trouble or None}
        for (channel_name, system_name), known in sorted(server.feeds.channels.items())
        if channel in (None, channel_name) and system in (None, system_name)
    ]
    sidecars = [
        entry
        for entry in server.fleet.sidecars(server.feeds.places)
        if not (channel or system) or any(_matches(place, channel, system) for place in entry["reads"])
    ]
    return _json(
        {
            "server": {
                "started": timestamp(server.fleet.started),
                "now": timestamp(time.time()),
                "storage": _storage(server),
                "signed": server.feeds.signed,
            },
            "channels": channels,
            "sidecars": sidecars,
            "decisions": (counts := server.fleet.counts.to_json()),
            "kinds": {revision: kind for revision in counts if (kind := server.feeds.kinds.peek(revision))},
            "trials": server.fleet.canaries_in_progress(server.feeds.canaries.values()),
            "refused": server.fleet.refusals(),
        }
    )


def _matches(place: str, channel: str | None, system: str | None) -> bool:
    place_channel, _, place_system = place.partition("/")
    return channel in (None, place_channel) and system in (None, place_system)


async def _metrics(server: ServerState, request: Request) -> Response:
    note(request.scope, None, routine=True)
    return Response(server.metrics.text(), media_type=CONTENT_TYPE)


async def _health(server: ServerState, request: Request) -> Response:
    """200 while the process runs; the body also has the status of the storage."""
    note(request.scope, None, routine=True)
    trouble = server.feeds.trouble
    ready = trouble is None or bool(server.feeds.channels)
    return _json({"status": "ok" if trouble is None else "stale" if ready else "unavailable"}, 200 if ready else 503)


async def _history(server: ServerState, request: Request) -> Response:
    """A page: the releases of a channel, or what one changed."""
    registry, place = server.feeds.registry, request.path_params
    assert isinstance(registry, Registry)
    make, held = (difference, server.comparing) if "number" in place else (history, nullcontext())
    async with held:
        shown = await asyncio.to_thread(partial(make, registry, **place))
    return Response(shown, media_type="text/html", headers=PAGE_HEADERS)


async def _file(server: ServerState, request: Request) -> Response:
    """The registry's files, as from a static server, for `Registry.open("https://…")`; at the root an HTML page."""
    registry = server.feeds.registry
    assert isinstance(registry, Registry)
    if not request.path_params["path"]:
        found = await asyncio.to_thread(contents, registry)
        return Response(page(server.feeds, server.fleet, *found), media_type="text/html", headers=PAGE_HEADERS)
    content, kind = await asyncio.to_thread(file, registry, request.path_params["path"])
    return Response(content, media_type=kind)


# --- the rest --------------------------------------------------------------------------------------------------------


def _identity(request: Request) -> tuple[SidecarIdentity, str]:
    told = (request.headers.get(name) for name in ("x-privtab-instance", "x-privtab-labels", "user-agent"))
    return sidecar_identity(*told), request.client.host if request.client else ""


def _record_refusal(server: ServerState, request: Request, refusal: HttpError) -> None:
    server.metrics.refused.labels(refusal.status).inc()
    identity, address = _identity(request)
    if refusal.status in (401, 403):
        token = caller_of(request.scope)
        server.fleet.record_refusal(identity, address, request.url.path, refusal.status, str(refusal), token)
        LOG.warning("%s was refused %s: %s", identity.instance or address, request.url.path[:200], refusal)


def _storage(server: ServerState) -> dict[str, Any]:
    trouble = server.feeds.trouble
    return {
        "url": server.feeds.registry.url,
        "ok": trouble is None,
        "stale_since": timestamp(trouble.since) if trouble else None,
        "error": trouble.message if trouble else None,
    }


def _json(value: object, status: int = 200) -> Response:
    return Response(printable_json(value).encode(), status, media_type="application/json")


@asynccontextmanager
async def watching(server: ServerState) -> AsyncIterator[None]:
    """Watch for releases, and read the tokens again when they change, until the server ends."""
    await server.feeds.start()
    try:
        async with running([server.feeds.watch()], server.tokens):
            yield
    finally:
        await server.feeds.close()


# --- bodies ----------------------------------------------------------------------------------------------------------


LARGEST = 4 << 20
"""Maximum bytes of a body as received."""
LARGEST_UNPACKED = 16 << 20
SMALL = 256 << 10
"""Maximum bytes of JSON parsed in the event loop; larger bodies are parsed in a thread, one at a time."""

T = TypeVar("T")


async def body(request: Request) -> bytes:
    """A body, unpacked if it is gzipped; bounded in packed and unpacked size. Raises HttpError."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", ""):
        raise HttpError(415, f"a body may be packed with gzip, not with {encoding[:20]}", Accept_Encoding="gzip")
    packed = await read_body(request, LARGEST)
    return _unpacked(packed) if encoding == "gzip" else packed


async def parsed(text: bytes, large: asyncio.Semaphore, convert: Callable[[Any], T]) -> T:
    """The result of `convert` on JSON; raises HttpError. `large` admits one large text at a time."""
    if len(text) <= SMALL:
        return convert(_parsed(text))
    async with large:
        return await asyncio.to_thread(lambda: convert(_parsed(text)))


def _parsed(text: bytes) -> Any:
    try:
        return strict_loads(text)
    except ValueError as error:
        raise HttpError(400, f"the body is not JSON: {error}") from None


def _unpacked(packed: bytes) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    try:
        unpacked = reader.decompress(packed, LARGEST_UNPACKED + 1)
    except zlib.error:
        raise HttpError(400, "the body is not gzip") from None
    if len(unpacked) > LARGEST_UNPACKED:
        raise HttpError(413, f"a body unpacks to {LARGEST_UNPACKED} bytes at most", Connection="close")
    if not reader.eof:
        raise HttpError(400, "the body ends too early")
    if reader.unused_data:
        raise HttpError(400, "more follows the packed body: pack it as one member")
    return unpacked
