"""Read the bodies that sidecars send, bounded in packed and unpacked size before they are parsed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request

from privtab import strict_json
from privtab.serving.endpoint import HttpError, read_body

LARGEST = 4 << 20
"""Maximum bytes of a body as received."""
LARGEST_UNPACKED = 16 << 20
SMALL = 256 << 10
"""Maximum bytes of JSON parsed in the event loop; larger bodies are parsed in a thread, one at a time."""

T = TypeVar("T")


async def document(request: Request, large: asyncio.Semaphore, convert: Callable[[Any], T]) -> T:
    """The result of `convert` on the JSON of a body, gzipped or not; raises Refused. `large` admits one large body at a time."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", ""):
        raise HttpError(415, f"a body may be packed with gzip, not with {encoding[:20]}", Accept_Encoding="gzip")
    packed = await read_body(request, LARGEST)
    text = _unpacked(packed) if encoding == "gzip" else packed
    del packed
    if len(text) <= SMALL:
        return convert(_parsed(text))
    async with large:
        return await asyncio.to_thread(lambda: convert(_parsed(text)))


def _parsed(text: bytes) -> Any:
    try:
        return strict_json.loads(text)
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
    return unpacked
