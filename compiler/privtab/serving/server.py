"""A server for the application: a socket, TLS, and an orderly end."""

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
"""After a signal, for requests that are under way."""
IDLE_SECONDS = 30
"""How long a connection may wait for its next request."""
MOST_AT_ONCE = 1000
"""Connections and requests, where nothing else is said."""

WAITING = 1024
"""Connections that nobody has taken yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files: the server's certificate and key, and the authorities whose clients may connect (None: any client)."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def check(self) -> None:
        """Raise FileError where a file cannot be read, UsageError where they do not belong together."""
        for path in (self.cert, self.key, *([self.client_ca] if self.client_ca else [])):
            try:
                path.read_bytes()
            except OSError as error:
                raise FileError(f"{path}: {error.strerror}") from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # A key that asks for a password has none to give here.
            context.load_cert_chain(self.cert, self.key, password="")
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except (ssl.SSLError, ValueError) as error:
            raise UsageError(f"{self.cert} and {self.key} cannot be used for TLS: {error}") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises FileError where there can be none."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # The event loop sends at once (TCP_NODELAY) only on sockets that say they are TCP. Else each answer that goes out
        # in two parts waits 40 ms for the other side.
        made = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError as error:
        raise FileError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(WAITING)
    except OSError as error:
        made.close()
        raise FileError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return made


def address(listening: socket.socket, host: str, tls: Tls | None) -> str:
    """The address of a server, as its callers write it."""
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{listening.getsockname()[1]}"


def serve(
    app: ASGIApp,
    listening: socket.socket,
    *,
    tls: Tls | None = None,
    ready: Callable[[], None],
    ending: Callable[[], None] | None = None,
    at_once: int = MOST_AT_ONCE,
    each: int | None = None,
    head_seconds: float = HEAD_SECONDS,
) -> None:
    """Serve until SIGINT or SIGTERM, then let what is under way end.

    `ready` is called when connections are taken, `ending` when no new ones are. `at_once`: connections and requests; what
    comes beyond is answered 503. `each`: connections of one address, half of all where nothing is said, 0 for any number;
    `head_seconds`: until the head of a request has come.
    """
    bounds = Bounds(head_seconds=head_seconds, each=at_once // 2 if each is None else each)
    config = uvicorn.Config(
        app,
        lifespan="on",
        loop="privtab.serving.connections:Loop",
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
    # uvicorn raises a signal again when it has ended; it was asked for, so it is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    _Server(config, ready, ending).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Tells when it takes connections, and when it ends."""

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
