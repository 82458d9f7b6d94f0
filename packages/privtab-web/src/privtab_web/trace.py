"""Pass W3C Trace Context on to the PDP, without a tracing library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from privtab.client import Hook

__all__ = ["TraceHeaders", "trace_context"]

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_TRACESTATE_MOST = 512

_HEADERS: ContextVar[Mapping[str, str] | None] = ContextVar("privtab_trace", default=None)


@contextmanager
def trace_context(traceparent: str | None, tracestate: str | None = None) -> Iterator[None]:
    """Make decisions in the block part of a trace, given by the `traceparent` of an incoming request.

    Invalid headers are ignored, as the specification requires: they are untrusted.
    """
    token = _HEADERS.set(_headers(traceparent, tracestate))
    try:
        yield
    finally:
        _HEADERS.reset(token)


def trace_headers() -> Mapping[str, str]:
    """Return the headers of the current trace; empty if there is none."""
    return _HEADERS.get() or {}


class TraceHeaders(Hook):
    """Sends the headers of `trace_context` with every exchange: `Client(url, hooks=[TraceHeaders()])`."""

    def headers(self) -> Mapping[str, str]:
        """`traceparent` and `tracestate`."""
        return trace_headers()


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
