"""Limits on unauthenticated connections: time for the head of a request, and connections per address.

uvicorn limits neither, so both servers use this protocol on top of its h11 protocol.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS = 10.0
"""Seconds from the first byte of a request, or from the start of a connection, to the end of the request's head."""
STALLED_SECONDS = 60.0
"""Seconds after which a client that reads nothing of its answer is disconnected."""
GOODBYE_SECONDS = 2.0
"""Seconds to send the remaining data of a closed connection."""


@dataclass(slots=True, kw_only=True)
class Bounds:
    """The limits of one server, and its open connections by address."""

    head_seconds: float = HEAD_SECONDS
    stalled_seconds: float = STALLED_SECONDS
    each: int = 0
    """Maximum connections per address; 0: no limit. Behind a proxy, all have the same address."""
    open: Counter[str] = field(default_factory=Counter)


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with limits."""

    def __init__(self, bounds: Bounds, **given: Any) -> None:
        super().__init__(**given)
        self._bounds = bounds
        self._address: str | None = None
        self._head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection unless its address has too many."""
        super().connection_made(transport)
        self._address = network(self.client[0] if self.client else "")
        self._bounds.open[self._address] += 1
        if self._bounds.each and self._bounds.open[self._address] > self._bounds.each:
            self._refuse(503, b"Service Unavailable", b"this address has too many connections\n")
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the count."""
        self._cancel()
        if self._address is not None:
            self._bounds.open[self._address] -= 1
            if not self._bounds.open[self._address]:
                del self._bounds.open[self._address]
            self._address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive data; the time for a head starts with its first byte."""
        if self.transport.is_closing():
            return
        if self._head is None and self._is_between():
            self._await_head()
        super().data_received(data)

    def handle_events(self) -> None:
        """Process received data; the time for the head ends once a request starts."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self._head is not None:
            self._head.cancel()
            self._head = None

    def pause_writing(self) -> None:
        """The client reads more slowly than data is sent: check whether it reads at all."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    # --- private ---

    def _is_between(self) -> bool:
        """Whether the head of a request comes next."""
        cycle: RequestResponseCycle | None = self.cycle  # None at first, despite its declared type.
        return cycle is None or cycle.response_complete

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self._bounds.head_seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._head = None
        self._refuse(408, b"Request Timeout", b"the head of the request did not come in time\n")

    def _refuse(self, status: int, reason: bytes, says: bytes) -> None:
        """Send an error, unless an answer has started, and close."""
        if self.transport.is_closing():
            return
        if self.conn.our_state is h11.IDLE or self.conn.our_state is h11.SEND_RESPONSE:
            head = b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
            self.transport.write(head % (status, reason, len(says)) + says)
        self.transport.close()
        # Do not wait for a client that does not read.
        self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

    def _watch(self, left: int) -> None:
        self._stalled = self.loop.call_later(self._bounds.stalled_seconds, self._look, left)

    def _look(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self._stalled = None
            self.transport.abort()
        else:
            self._watch(left)

    def _cancel(self) -> None:
        for timer in (self._head, self._stalled):
            if timer is not None:
                timer.cancel()
        self._head = self._stalled = None


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers limit TLS handshakes to the time for the head of a request."""

    async def create_server(self, *given: Any, **more: Any) -> Any:
        """As in asyncio."""
        if more.get("ssl") is not None:
            more.setdefault("ssl_handshake_timeout", HEAD_SECONDS)
        return await super().create_server(*given, **more)


def network(address: str) -> str:
    """What counts as one address; for IPv6 the /64 network, which is usually one customer's.

    >>> network("10.0.0.7"), network("2001:db8::7"), network("::ffff:10.0.0.7")
    ('10.0.0.7', '2001:db8::/64', '10.0.0.7')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
