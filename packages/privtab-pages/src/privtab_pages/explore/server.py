"""Serve the pages: read-only, to this machine unless tokens keep callers out, and only under its own names.

The one thing that is sent, edited texts, is read in a process of its own (`editing`), and changes nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from privtab.base import RecentlyUsed
from privtab_analysis.html import PAGE_HEADERS
from privtab_pages.explore.children import Children
from privtab_pages.explore.editing import Editing
from privtab_pages.explore.site import EDIT, SCRIPTS, Answer, answer
from privtab_pages.explore.world import LONGEST_TEXT, MOST_VALUES, World
from privtab_server.serving.access_log import AccessLog, note
from privtab_server.serving.endpoint import JSON, HttpError, answered, authorize, read_json_body, running
from privtab_server.serving.tokens import Tokens

HEADERS = PAGE_HEADERS | {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""The headers of each page: it runs its own script and loads nothing else."""
LONGEST_QUERY = 48_000
"""Maximum length of the query of a URL."""
SECONDS = 60.0
"""Seconds after which a question that others wait for, or that takes long, is answered with 503."""
MOST_AT_ONCE = 4
"""Questions that are worked out beside each other, where processes fork; elsewhere it is one."""
MOST_WAITING = 50
"""Maximum questions that are worked out or wait; further ones get 503."""
KEPT = 64 << 20
"""Maximum characters of answers that are kept."""


class Scope(StrEnum):
    """The permissions of a token."""

    EXPLORE = "explore"


@dataclass(slots=True, kw_only=True)
class Explorer:
    """The served world, the permitted callers, and the answers that are kept."""

    world: World
    tokens: Tokens | None = None
    hosts: frozenset[str] = frozenset()
    """Names of this server, beside addresses and `localhost`."""
    seconds: float = SECONDS
    answers: RecentlyUsed[tuple[str, str], Answer] = field(
        default_factory=lambda: RecentlyUsed(weight=lambda kept: len(kept.text), heaviest=KEPT)
    )
    children: Children[Answer | None] | None = None
    """Where pages are worked out; None: in a thread, one at a time, so that values derived from a state are not made several times at once."""
    working: dict[tuple[str, str], asyncio.Task[Answer | None]] = field(default_factory=dict)
    """The questions that are worked out or wait."""
    editing: Editing = field(default_factory=Editing)
    at_once: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.at_once = asyncio.Semaphore(1 if self.children is None else MOST_AT_ONCE)

    async def answer(self, name: str, query: str) -> Answer | None:
        """The answer to a URL, either kept or worked out."""
        key = name, query
        known = self.answers.get(key)
        if known is not None:
            return known
        if key not in self.working:
            if len(self.working) >= MOST_WAITING:
                raise TimeoutError
            pairs = parse_qsl(query, max_num_fields=2 * MOST_VALUES, errors="replace")
            self.working[key] = asyncio.create_task(self._worked_out(key, pairs))
        # A question that takes too long goes on, and who asks again gets its answer.
        return await asyncio.wait_for(asyncio.shield(self.working[key]), self.seconds)

    async def _worked_out(self, key: tuple[str, str], pairs: list[tuple[str, str]]) -> Answer | None:
        name, _ = key
        try:
            async with self.at_once:
                if self.children is None or name in SCRIPTS:
                    found = await asyncio.to_thread(answer, self.world, name, pairs)
                else:
                    found = await self.children.answer(name, pairs)
            if found is not None and found.status == 200:
                self.answers.put(key, found)
            return found
        finally:
            del self.working[key]


def application(explorer: Explorer) -> ASGIApp:
    """The ASGI application. Any method but GET and HEAD is refused, but for edited texts."""
    ends = [
        Route(f"/{EDIT}", partial(answered, endpoint=partial(_edited, explorer)), methods=["POST"]),
        Route("/{path:path}", partial(answered, endpoint=partial(_page, explorer)), methods=["GET"]),
    ]
    app = Starlette(routes=ends, lifespan=lambda _: _running(explorer))
    app.router.redirect_slashes = False
    return AccessLog(app)


@asynccontextmanager
async def _running(explorer: Explorer) -> AsyncIterator[None]:
    async with running([], explorer.tokens):
        yield
        await explorer.editing.close()
        if explorer.children is not None:
            explorer.children.close()


async def _page(explorer: Explorer, request: Request) -> Response:
    _check_host(explorer, request)
    _authorize(explorer, request)
    query, path = request.url.query, request.path_params["path"]
    if len(query) > LONGEST_QUERY:
        raise HttpError(414, f"a question has {LONGEST_QUERY:,} characters at most")
    try:
        found = await explorer.answer(path, query)
    except ValueError:  # more fields than a URL may have
        raise HttpError(400, "the question has too many values") from None
    except TimeoutError:
        raise _too_long() from None
    # Whoever is alone with the pages knows what they look at.
    note(request.scope, None, routine=explorer.tokens is None)
    if found is None:
        raise HttpError(404, "there is no such page: the first one is `/`")
    if path == EDIT:
        explorer.editing.prepare()
    headers = {**HEADERS, **({"Location": found.location} if found.location else {})}
    return Response(found.text.encode("utf-8", "replace"), found.status, headers, media_type=found.media)


async def _edited(explorer: Explorer, request: Request) -> Response:
    """Findings and a decision for edited texts. Pages of other sites cannot send any: they are no JSON, or say where they come from."""
    _check_host(explorer, request)
    _authorize(explorer, request)
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise HttpError(403, "texts are edited on this server's own page")
    asked = await read_json_body(request, 8 * LONGEST_TEXT)
    try:
        found = await explorer.editing.answer(asked)
    except TimeoutError:
        raise _too_long() from None
    note(request.scope, None, routine=explorer.tokens is None)
    return Response(found, headers=HEADERS, media_type=JSON)


def _too_long() -> HttpError:
    return HttpError(503, "this takes too long, or others wait before it: ask again", Retry_After="10")


def _check_host(explorer: Explorer, request: Request) -> None:
    """Refuse names that are not this server's: a page elsewhere may have had its own name resolved to this address."""
    sent = request.headers.getlist("host")
    try:
        host = urlsplit(f"//{sent[0]}").hostname or "" if len(sent) == 1 else ""
        known = host in explorer.hosts or host == "localhost" or bool(ipaddress.ip_address(host))
    except ValueError:  # neither a name nor an address
        known = False
    if not known:
        raise HttpError(421, "this server is not called by that name: use its address, or start it with --public-url")


def names_of(host: str, public_url: str | None) -> frozenset[str]:
    """The names under which a server is asked, beside addresses: as it was told to listen, and its public one."""
    public = urlsplit(public_url).hostname if public_url else None
    found = {host.lower(), *([public] if public else [])}
    if host in ("0.0.0.0", "::"):  # noqa: S104  (a comparison)
        found |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(found)


def _authorize(explorer: Explorer, request: Request) -> None:
    """Check the token: as a bearer token or, as browsers send it, as the password of any user. Raises HttpError."""
    sent = request.headers.getlist("authorization")
    if len(sent) == 1 and sent[0].lower().startswith("basic "):
        try:
            _, _, password = base64.b64decode(sent[0][6:].strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            password = ""
        others = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
        bearer = (b"authorization", b"Bearer " + password.encode("utf-8", "replace"))
        request = Request({**request.scope, "headers": [*others, bearer]})
    try:
        authorize(explorer.tokens, Scope.EXPLORE, request)
    except HttpError as error:
        if error.status == 401:
            note(request.scope, "no token")
            error.headers["WWW-Authenticate"] = 'Basic realm="privtab: the token is the password", charset="UTF-8"'
        raise
