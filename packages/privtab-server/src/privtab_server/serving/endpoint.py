"""Helpers for endpoints: bearer tokens before bodies, reading bounded bodies, turning errors into answers, and background tasks of a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from functools import partial
from typing import Any, Never

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from privtab.base import PrivtabError
from privtab_server.serving.access_log import note
from privtab_server.serving.tokens import Bearer, Tokens

LOG = logging.getLogger("privtab.serve")

JSON = "application/json"

SECONDS = 10.0
"""Seconds within which a body must have arrived."""
_DRAINED = 8
"""Multiple of the limit that is read and dropped: a client that is still sending does not read the answer."""


async def answered(
    request: Request,
    endpoint: Callable[[Request], Awaitable[Response]],
    refuse: Callable[[Request, PrivtabError], Never] | None = None,
) -> Response:
    """The answer of an endpoint, or its error as an answer. `refuse` turns errors of privtab into HttpError, unless the endpoint does."""
    try:
        try:
            return await endpoint(request)
        except PrivtabError as error:
            if refuse is None:
                raise
            refuse(request, error)
    except HttpError as refusal:
        return PlainTextResponse(str(refusal), refusal.status, refusal.headers)
    except ClientDisconnect:
        return PlainTextResponse("the request ended before its body did", 400)
    except Exception:
        LOG.exception("a request failed")
        return PlainTextResponse("internal error", 500)


async def read_body(request: Request, limit: int, seconds: float = SECONDS) -> bytes:
    """Read the body of a request, at most `limit` bytes within `seconds`; raises Refused."""
    too_large = HttpError(413, f"a request has {limit} bytes at most", Connection="close")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit * _DRAINED:
        raise too_large
    body = bytearray()
    size, more = 0, True
    try:
        async with asyncio.timeout(seconds):
            while more and size <= limit * _DRAINED:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk, more = message.get("body", b""), message.get("more_body", False)
                size += len(chunk)
                if size <= limit:
                    body += chunk
    except TimeoutError:
        raise HttpError(408, "the request did not come in time", Connection="close") from None
    if size > limit:
        raise too_large
    return bytes(body)


async def read_json_body(request: Request, limit: int) -> bytes:
    """Read a body that says it is JSON in UTF-8, as `read_body` does; raises Refused."""
    content_type = request.headers.get("content-type", "")
    media, _, parameters = content_type.partition(";")
    if media.strip().lower() != JSON:
        raise HttpError(400, f"Content-Type must be {JSON}")
    charset = parameters.strip().lower().replace('"', "")
    if charset.startswith("charset=") and charset.removeprefix("charset=") not in ("utf-8", "utf8"):
        raise HttpError(400, "the charset of JSON is utf-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpError(415, "a body must not be compressed", Accept_Encoding="identity")
    return await read_body(request, limit)


@asynccontextmanager
async def running(coroutines: Sequence[Coroutine[Any, Any, None]], tokens: Tokens | None) -> AsyncIterator[None]:
    """Run coroutines until the server ends, and reload the tokens when their file changes."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    if tokens is not None:
        tasks.append(asyncio.create_task(every(1.0, partial(asyncio.to_thread, tokens.refresh))))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def every(seconds: float, action: Callable[[], Awaitable[Any]]) -> None:
    """Call `action` periodically. Repeated failures are logged once."""
    logged = ""
    while True:
        await asyncio.sleep(seconds)
        try:
            await action()
            logged = ""
        except PrivtabError as error:
            if str(error) != logged:
                LOG.warning("not refreshed, the last good ones stay in force: %s", error)
            logged = str(error)


class HttpError(Exception):
    """An error answer: a status, a message and headers."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def authorize(tokens: Tokens | None, scope: StrEnum, request: Request) -> Bearer | None:
    """The bearer of the request's token; raises HttpError unless it has the scope. None if the server has no tokens."""
    sent = request.headers.getlist("authorization")
    if len(sent) > 1:  # a proxy may have checked another one than the server would
        raise HttpError(400, "a request has one `Authorization` header")
    if tokens is None:
        return None
    kind, _, token = "".join(sent).partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise HttpError(401, "a bearer token is needed", WWW_Authenticate='Bearer realm="privtab"')
    bearer = tokens.find(token.strip())
    if bearer is None:
        challenge = 'Bearer realm="privtab", error="invalid_token"'
        raise HttpError(401, "the bearer token is not known", WWW_Authenticate=challenge)
    note(request.scope, None, caller=bearer.name)
    if scope not in bearer.scopes:
        challenge = f'Bearer realm="privtab", error="insufficient_scope", scope="{scope}"'
        raise HttpError(403, f"the bearer token is not good for `{scope}`", WWW_Authenticate=challenge)
    return bearer


def check_binding(tokens: Tokens | None, bearer: Bearer | None, instance: str, labels: Mapping[str, str]) -> None:
    """Raise Refused for a sidecar with a token bound to another one, or with a name bound to another token."""
    if tokens is None or bearer is None:
        return
    stated = f"and the request says `{instance}`" if instance else "and the request has no `X-Privtab-Instance`"
    if bearer.instance and not bearer.is_for(instance):
        raise HttpError(403, f"the bearer token is for the sidecar `{bearer.instance}`, {stated}")
    if not bearer.instance and instance and tokens.bound(instance):
        raise HttpError(403, f"`{instance}` is a sidecar with its own bearer token, and this is another one")
    mismatched = {name: value for name, value in bearer.labels.items() if labels.get(name) != value}
    if mismatched:
        shown = ",".join(f"{name}={value}" for name, value in mismatched.items())
        raise HttpError(403, f"the bearer token is for sidecars with the labels `{shown}`")
