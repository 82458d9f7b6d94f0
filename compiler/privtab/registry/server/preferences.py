"""What a sidecar's request for a bundle says: which one it has, how long it waits, whether it takes deltas."""

from __future__ import annotations

import re

from starlette.requests import Request

_WAIT = re.compile(r"(?:^|[;,\s])wait=(\d{1,6})")
_MODES = re.compile(r"(?:^|[;\s])modes=([\w,]+)")


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


def accepts_deltas(request: Request) -> bool:
    """Whether the sidecar takes deltas."""
    match = _MODES.search(request.headers.get("prefer", ""))
    return match is not None and "delta" in match[1].split(",")
