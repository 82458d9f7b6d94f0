"""Serve an ASGI application: socket, TLS, graceful shutdown."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from privtab.errors import FileError, UsageError
from privtab.serving.connections import HEAD_SECONDS, BoundedProtocol, Bounds

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
                path.read_bytes()
            except OSError as error:
                raise FileError(f"{path}: {error.strerror}") from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # An empty password, so that an encrypted key fails instead of prompting.
            context.load_cert_chain(self.cert, self.key, password="")
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(f"{self.cert} and {self.key} cannot be used for TLS: {error}") from None


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
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
        loop="privtab.serving.connections:HandshakeLimitedLoop",
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
