"""Bytes to OPA and back within an event loop, over httpx."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from privtab._install import how_to_install
from privtab.client import _address
from privtab.client._address import Cert, Token, Verify
from privtab.client._http import unavailable
from privtab.client._protocol import check_status
from privtab.client._transport import MAX_BODY, NO_BODY, Timeout, total
from privtab.errors import DecisionUnavailable, PolicyError, UsageError

try:
    import httpx
except ImportError:  # pragma: no cover  (the extra is there wherever tests run)
    raise UsageError(f"AsyncClient needs the extra `async`: {how_to_install('async')}") from None


class HttpxTransport:
    """Sends over httpx with kept-alive connections, which belong to the event loop that runs; another loop gets its own."""

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
        self._more_headers = headers
        self._base = f"{'http' if self._address.socket else self._address.scheme}://{self._address.authority}"
        self._base += self._address.base
        self._loop: asyncio.AbstractEventLoop | None = None
        self._httpx: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"HttpxTransport({self.url!r})"

    async def post(self, path: str, body: bytes, limits: Timeout) -> bytes:
        """Send a JSON body; the body of the answer."""
        return await self._send("POST", path, body, limits)

    async def get(self, path: str, limits: Timeout) -> bytes:
        """Read a path; the body of the answer."""
        return await self._send("GET", path, None, limits)

    async def close(self) -> None:
        """Close the connections."""
        client, self._httpx = self._httpx, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._httpx is None or self._loop is not loop:
            self._loop = loop
            verify: Any = self._tls if self._tls is not None else False
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=self._pool_size)
            transport = httpx.AsyncHTTPTransport(
                verify=verify, limits=limits, uds=self._address.socket, proxy=self._proxy, trust_env=False
            )
            self._httpx = httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)
        return self._httpx

    async def _send(self, method: str, path: str, body: bytes | None, limits: Timeout) -> bytes:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "privtab"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        token = self._token.value()
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if self._more_headers is not None:
            headers |= self._more_headers()
        connect, read = limits
        waits = httpx.Timeout(connect=connect, read=read, write=read, pool=connect)
        request = self._client().build_request(method, self._base + path, content=body, headers=headers, timeout=waits)
        try:
            async with asyncio.timeout(total(limits)):
                response = await self._client().send(request, stream=True)
                try:
                    content = await self._body(response)
                    if response.status_code in NO_BODY or _more_came(response):
                        await response.extensions["network_stream"].aclose()
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise unavailable(self.url, error) from error
        except (httpx.HTTPError, httpx.StreamError, OSError, ValueError) as error:
            raise self._unavailable(error) from error
        told = response.headers.get
        check_status(
            response.status_code,
            content,
            f"{self.url}{path}",
            retry_after=told("Retry-After"),
            content_type=told("Content-Type"),
        )
        return content

    async def _body(self, response: httpx.Response) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in response.aiter_raw():
            pieces.append(piece)
            size += len(piece)
            if size > self._max_body:
                raise PolicyError(f"OPA at {self.url} answered with more than {self._max_body} bytes")
        return b"".join(pieces)

    def _unavailable(self, error: Exception) -> DecisionUnavailable:
        """What the socket said; the reason tells more than the wrapping."""
        if isinstance(error, httpx.TimeoutException):
            return unavailable(self.url, TimeoutError())
        reason: BaseException | None = error
        while reason is not None:
            if isinstance(reason, ssl.SSLError | OSError) and reason.errno is not None:
                return unavailable(self.url, reason)
            reason = reason.__cause__ or reason.__context__
        return unavailable(self.url, error)


_INSIDE = ("_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state")


def _more_came(response: httpx.Response) -> bool:
    """Whether bytes came after the answer, which httpcore would take for the next one. What cannot be seen counts as that."""
    at: Any = response.stream
    for name in _INSIDE:
        at = getattr(at, name, None)
    left = getattr(at, "trailing_data", None)
    return (
        left is None
        or bool(left[0])
        or _records_left(response.extensions["network_stream"].get_extra_info("ssl_object"))
    )


def _records_left(tls: ssl.SSLObject | None) -> bool:
    """Whether TLS has more in memory, off the socket already: what came in the same segment as the answer."""
    if tls is None:
        return False
    try:
        tls.read(1)
    except ssl.SSLWantReadError:
        return False
    except ssl.SSLError:
        return True
    return True
