"""Add the request's id (AuthZEN §10.1.3) to every answer, and write the access log."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import MutableMapping
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ACCESS = logging.getLogger("privtab.serve.access")

_ID = b"x-request-id"
_NOTE = "privtab"


def note(
    scope: MutableMapping[str, Any], outcome: str | None, *, caller: str | None = None, routine: bool = False
) -> None:
    """Set what the access log says of a request: its outcome and the name of its token; successful routine ones are not logged."""
    notes = scope.setdefault(_NOTE, {})
    if outcome is not None:
        notes["outcome"] = outcome
    if caller is not None:
        notes["caller"] = caller
    if routine:
        notes["routine"] = "yes"


def caller_of(scope: MutableMapping[str, Any]) -> str:
    """The name of a request's token; empty if there is none or it is unknown."""
    return str(scope.get(_NOTE, {}).get("caller", ""))


class AccessLog:
    """Adds the id of the request, or a new one, to each answer and to the log. Headers and bodies are not logged."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As in ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        request_ids = [value for name, value in scope["headers"] if name == _ID]
        request_id = request_ids[0] if request_ids else str(uuid.uuid4()).encode()
        # Inner layers write notes to this object, even if they have a copy of the scope.
        notes: dict[str, str] = scope.setdefault(_NOTE, {})
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (_ID, request_id)]}
            await send(message)

        try:
            if _is_ambiguous(scope):
                # A proxy in front may have seen another end of the body and taken the rest for a new request.
                await _REFUSED(scope, receive, send_with_id)
            else:
                await self.app(scope, receive, send_with_id)
        finally:
            if ACCESS.isEnabledFor(logging.INFO) and not ("routine" in notes and 0 < status < 400):
                milliseconds = (time.perf_counter() - started) * 1000
                ACCESS.info("%s", _line(scope, status, milliseconds, request_id), extra={"privtab": notes})


def _is_ambiguous(scope: Scope) -> bool:
    """Return whether a request declares its length in two ways."""
    names = {name for name, _ in scope["headers"]}
    return b"content-length" in names and b"transfer-encoding" in names


_REFUSED = PlainTextResponse(
    "a request has Content-Length or Transfer-Encoding, not both", 400, headers={"Connection": "close"}
)


def _line(scope: Scope, status: int, milliseconds: float, request_id: bytes) -> str:
    notes = scope[_NOTE]
    client = scope.get("client")
    return json.dumps(
        {
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": status,
            "ms": round(milliseconds, 1),
            "outcome": notes.get("outcome"),
            "caller": notes.get("caller"),
            "from": client[0] if client else None,
            "request_id": request_id.decode("latin-1")[:200],
        }
    )
