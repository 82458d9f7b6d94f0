"""Pass W3C Trace Context on to the PDP, without a tracing library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from privtab.client import Hook

__all__ = ["TraceHeaders", "following"]

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_TRACESTATE_MOST = 512

_FOLLOWED: ContextVar[Mapping[str, str] | None] = ContextVar("privtab_trace", default=None)


@contextmanager
def following(traceparent: str | None, tracestate: str | None = None) -> Iterator[None]:
    """Make decisions in the block part of a trace, given by the `traceparent` of an incoming request.

    Invalid headers are ignored, as the specification requires: they are untrusted.
    """
    token = _FOLLOWED.set(_headers(traceparent, tracestate))
    try:
        yield
    finally:
        _FOLLOWED.reset(token)


def followed() -> Mapping[str, str]:
    """The headers of the followed trace; empty if there is none."""
    return _FOLLOWED.get() or {}


class TraceHeaders(Hook):
    """Sends the trace of `following` with every exchange: `Client(url, hooks=[TraceHeaders()])`."""

    def headers(self) -> Mapping[str, str]:
        """`traceparent` and `tracestate`."""
        return followed()


def _headers(traceparent: str | None, tracestate: str | None) -> Mapping[str, str] | None:
    if traceparent is None or _TRACEPARENT.fullmatch(traceparent) is None or not _visible(traceparent):
        return None
    headers = {"traceparent": traceparent}
    if tracestate and len(tracestate) <= _TRACESTATE_MOST and _visible(tracestate):
        headers["tracestate"] = tracestate
    return headers


def _visible(text: str) -> bool:
    """Return whether a text is one line of printable ASCII, as headers require."""
    return all(32 <= ord(letter) <= 126 for letter in text)
