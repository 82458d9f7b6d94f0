"""The asynchronous transport, over httpcore."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from privtab._install import how_to_install
from privtab.client import _address
from privtab.client._address import Cert, Token, Verify
from privtab.client._http import unavailable
from privtab.client._protocol import check_status
from privtab.client._transport import MAX_BODY, NO_BODY, Timeout, total
from privtab.errors import DecisionUnavailable, PolicyError, UsageError

try:
    import h11
    import httpcore
except ImportError:  # pragma: no cover  (tests run with the extra)
    raise UsageError(f"AsyncClient needs the extra `async`: {how_to_install('async')}") from None

_IDLE_SECONDS = 5.0
"""Seconds for which an idle connection is kept."""


class AsyncHttpTransport:
    """Sends over httpcore with keep-alive connections, separate for each event loop."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | None = None,
        verify: Verify = True,
        cert: Cert = None,
        pool_size: int = 10,
        max_body: int = MAX_BODY,
        headers: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._address = _address.parse(url)
        self.url = self._address.url
        self._token = Token(token, token_file)
        self._tls = _address.tls_context(verify, cert) if self._address.scheme == "https" else None
        self._proxy = _address.proxy_for(self._address)
        self._pool_size = pool_size
        self._max_body = max_body
        self._extra_headers = headers
        self._base = f"{'http' if self._address.socket else self._address.scheme}://{self._address.authority}"
        self._base += self._address.base
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: httpcore.AsyncConnectionPool | None = None

    def __repr__(self) -> str:
        return f"AsyncHttpTransport({self.url!r})"

    async def post(self, path: str, body: bytes, limits: Timeout) -> bytes:
        """Send a JSON body; returns the body of the answer."""
        return await self._send("POST", path, body, limits)

    async def get(self, path: str, limits: Timeout) -> bytes:
        """Read a path; returns the body of the answer."""
        return await self._send("GET", path, None, limits)

    async def close(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None and self._loop is asyncio.get_running_loop():
            await pool.aclose()

    def _connections(self) -> httpcore.AsyncConnectionPool:
        loop = asyncio.get_running_loop()
        if self._pool is None or self._loop is not loop:
            self._loop = loop
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=self._tls,
                proxy=_proxy(self._proxy) if self._proxy else None,
                max_connections=None,
                max_keepalive_connections=self._pool_size,
                keepalive_expiry=_IDLE_SECONDS,
                uds=self._address.socket,
                network_backend=_Backend(),
            )
        return self._pool

    async def _send(self, method: str, path: str, body: bytes | None, limits: Timeout) -> bytes:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "privtab"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        token = self._token.value()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if self._extra_headers is not None:
            headers |= self._extra_headers()
        connect, read = limits
        extensions = {"timeout": {"connect": connect, "read": read, "write": read, "pool": connect}}
        try:
            async with (
                asyncio.timeout(total(limits)),
                self._connections().stream(
                    method, self._base + path, headers=list(headers.items()), content=body, extensions=extensions
                ) as response,
            ):
                content = await self._body(response)
                stream = response.extensions["network_stream"]
                if response.status in NO_BODY or not isinstance(stream, _Stream) or stream.has_unexpected_data():
                    await stream.aclose()
        except TimeoutError as error:
            raise unavailable(self.url, error) from error
        except (*_ERRORS, OSError, ValueError) as error:
            raise self._unavailable(error) from error
        answer_headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        check_status(
            response.status,
            content,
            f"{self.url}{path}",
            retry_after=answer_headers.get(b"retry-after"),
            content_type=answer_headers.get(b"content-type"),
        )
        return content

    async def _body(self, response: httpcore.Response) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in response.aiter_stream():
            pieces.append(piece)
            size += len(piece)
            if size > self._max_body:
                raise PolicyError(f"OPA at {self.url} answered with more than {self._max_body} bytes")
        return b"".join(pieces)

    def _unavailable(self, error: Exception) -> DecisionUnavailable:
        """The error for a failed exchange, described by its underlying cause."""
        if isinstance(error, httpcore.TimeoutException):
            return unavailable(self.url, TimeoutError())
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLError | OSError) and cause.errno is not None:
                return unavailable(self.url, cause)
            cause = cause.__cause__ or cause.__context__
        return unavailable(self.url, error)


_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)


def _proxy(url: str) -> httpcore.Proxy:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    auth = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    return httpcore.Proxy(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), auth=auth)


class _Stream(httpcore.AsyncNetworkStream):
    """A stream that parses along, to detect data after the end of an answer.

    httpcore would take that data for the answer to the next request.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._answer = _answer_parser()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  (of httpcore)
        content = await self._stream.read(max_bytes, timeout)
        try:
            self._answer.receive_data(content)
            while self._answer.their_state in _UNDER_WAY and self._answer.next_event() not in _WAITING:
                pass
        except h11.RemoteProtocolError:
            pass  # The parser is in an error state from now on.
        return content

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  (of httpcore)
        self._answer = _answer_parser()
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  (of httpcore)
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def has_unexpected_data(self) -> bool:
        """Whether data followed the last answer, or the answer could not be parsed."""
        if self._answer.their_state is not h11.DONE or self._answer.trailing_data[0]:
            return True
        return _has_buffered_data(self.get_extra_info("ssl_object"))


_UNDER_WAY = (h11.SEND_RESPONSE, h11.SEND_BODY)
_WAITING = (h11.NEED_DATA, h11.PAUSED)


def _answer_parser() -> h11.Connection:
    """A parser for the answer to one request."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="GET", target="/", headers=[("Host", "opa")]))
    parser.send(h11.EndOfMessage())
    return parser


class _Backend(httpcore.AnyIOBackend):
    """A network backend that opens such connections."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (of httpcore)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await super().connect_tcp(host, port, timeout, local_address, socket_options))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  (of httpcore)
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await super().connect_unix_socket(path, timeout, socket_options))


def _has_buffered_data(tls: ssl.SSLObject | None) -> bool:
    """Whether TLS holds data already taken off the socket, which came in the same segment as the answer."""
    if tls is None:
        return False
    try:
        tls.read(1)
    except ssl.SSLWantReadError:
        return False
    except ssl.SSLError:
        return True
    return True
