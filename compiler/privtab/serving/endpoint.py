"""Helpers for endpoints: reading bounded bodies, turning errors into answers, and background tasks of a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Never

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from privtab.errors import PrivtabError
from privtab.serving.guard import HttpError
from privtab.serving.tokens import Tokens

LOG = logging.getLogger("privtab.serve")

JSON = "application/json"

SECONDS = 10.0
"""Seconds within which a body must have arrived."""
_DRAINED = 8
"""How many times the limit is read and dropped: a client that is still sending does not read the answer."""


async def answered(
    request: Request,
    endpoint: Callable[[Request], Awaitable[Response]],
    refuse: Callable[[Request, PrivtabError], Never],
) -> Response:
    """The answer of an endpoint, or its error as an answer. `refuse` turns an error of privtab into Refused."""
    try:
        try:
            return await endpoint(request)
        except PrivtabError as error:
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
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limit:
                    body += chunk
                elif size > limit * _DRAINED:
                    break
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
