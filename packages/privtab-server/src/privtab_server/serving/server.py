"""Serve an ASGI application: socket, TLS, limits on connections without a token, graceful shutdown."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from privtab.base import FileError, UsageError, check_secret, read_content

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

    def __init__(self, bounds: Bounds, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._bounds = bounds
        self._address: str | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._stalled_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection unless its address has too many."""
        super().connection_made(transport)
        self._address = network(self.client[0] if self.client else "")
        self._bounds.open[self._address] += 1
        if self._bounds.each and self._bounds.open[self._address] > self._bounds.each:
            self._refuse(503, b"Service Unavailable", b"this address has too many connections\n")
            return
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the count."""
        self._cancel_timers()
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
        if self._head_timer is None and self._awaits_request():
            self._start_head_timer()
        super().data_received(data)

    def handle_events(self) -> None:
        """Process received data; the time for the head ends once a request starts."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def pause_writing(self) -> None:
        """The client reads more slowly than data is sent: check whether it reads at all."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._stalled_timer is not None:
            self._stalled_timer.cancel()
            self._stalled_timer = None
        super().resume_writing()

    # --- private ---

    def _awaits_request(self) -> bool:
        """Return whether the head of a request comes next."""
        cycle: RequestResponseCycle | None = self.cycle  # None at first, despite its declared type.
        return cycle is None or cycle.response_complete

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._bounds.head_seconds, self._head_timed_out)

    def _head_timed_out(self) -> None:
        self._head_timer = None
        self._refuse(408, b"Request Timeout", b"the head of the request did not come in time\n")

    def _refuse(self, status: int, reason: bytes, message: bytes) -> None:
        """Send an error, unless an answer has started, and close."""
        if self.transport.is_closing():
            return
        if self.conn.our_state is h11.IDLE or self.conn.our_state is h11.SEND_RESPONSE:
            head = b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
            self.transport.write(head % (status, reason, len(message)) + message)
        self.transport.close()
        # Do not wait for a client that does not read.
        self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

    def _watch(self, remaining: int) -> None:
        self._stalled_timer = self.loop.call_later(self._bounds.stalled_seconds, self._check_progress, remaining)

    def _check_progress(self, earlier: int) -> None:
        remaining = self.transport.get_write_buffer_size()
        if remaining >= earlier:
            self._stalled_timer = None
            self.transport.abort()
        else:
            self._watch(remaining)

    def _cancel_timers(self) -> None:
        for timer in (self._head_timer, self._stalled_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._stalled_timer = None


class HandshakeLimitedLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers limit TLS handshakes to the time for the head of a request."""

    async def create_server(self, *args: Any, **kwargs: Any) -> Any:
        """As in asyncio."""
        if kwargs.get("ssl") is not None:
            kwargs.setdefault("ssl_handshake_timeout", HEAD_SECONDS)
        return await super().create_server(*args, **kwargs)


def network(address: str) -> str:
    """Return the network that counts as one address; for IPv6 the /64 network, which is usually one customer's.

    >>> network("10.0.0.7"), network("2001:db8::7"), network("::ffff:10.0.0.7")
    ('10.0.0.7', '2001:db8::/64', '10.0.0.7')
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


LOG = logging.getLogger("privtab.serve")

SECONDS_TO_END = 10
"""Seconds that running requests have after a signal."""
IDLE_SECONDS = 30
"""Seconds for which a connection may be idle between requests."""
MOST_AT_ONCE = 1000
"""Default maximum of concurrent connections and requests."""

WAITING = 1024
"""Maximum connections waiting to be accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files: the server's certificate and key, and the CA certificates for clients (None: any client)."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def check(self) -> None:
        """Raise FileError if a file cannot be read, UsageError if they do not match."""
        for path in (self.cert, self.key, *([self.client_ca] if self.client_ca else [])):
            try:
                read_content(path)
            except OSError as error:
                raise FileError(f"{path}: {error.strerror}") from None
            check_secret(path, public=path != self.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # An empty password, so that an encrypted key fails instead of prompting.
            context.load_cert_chain(self.cert, self.key, password="")
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(f"{self.cert} and {self.key} cannot be used for TLS: {error}") from None


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises FileError if it cannot be opened."""
    try:
        family, kind, _, _, socket_address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sets TCP_NODELAY only on sockets created as TCP. Without it, each answer sent in two parts is delayed
        # by 40 ms.
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError as error:
        raise FileError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(socket_address)
        listener.listen(WAITING)
    except OSError as error:
        listener.close()
        raise FileError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return listener


def address(listener: socket.socket, host: str, tls: Tls | None) -> str:
    """The URL of a server."""
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{listener.getsockname()[1]}"


def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    tls: Tls | None = None,
    ready: Callable[[], None],
    ending: Callable[[], None] | None = None,
    at_once: int = MOST_AT_ONCE,
    each: int | None = None,
    head_seconds: float = HEAD_SECONDS,
) -> None:
    """Serve until SIGINT or SIGTERM, then let running requests finish.

    `ready` is called once connections are accepted, `ending` when they no longer are. `at_once`: maximum connections and
    requests; further ones get 503. `each`: maximum connections per address, by default half of all, 0 for no limit;
    `head_seconds`: time for the head of a request.
    """
    bounds = Bounds(head_seconds=head_seconds, each=at_once // 2 if each is None else each)
    config = uvicorn.Config(
        app,
        lifespan="on",
        loop="privtab_server.serving.server:HandshakeLimitedLoop",
        http=cast("type[asyncio.Protocol]", partial(BoundedProtocol, bounds)),
        ws="none",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=at_once,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=SECONDS_TO_END,
        ssl_certfile=tls.cert if tls else None,
        ssl_keyfile=str(tls.key) if tls else None,
        ssl_ca_certs=str(tls.client_ca) if tls and tls.client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_ca else ssl.CERT_NONE,
    )
    # uvicorn raises the signal again after shutdown; that is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    _Server(config, ready, ending).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A uvicorn server that calls back when it accepts connections and when it stops."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], ending: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._ready = ready
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._ending is not None:
            self._ending()
        await super().shutdown(sockets)
