"""The protocol of transports to OPA, and a transport over `requests` with pooled keep-alive connections."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias
from urllib.parse import urlsplit

from privtab.base.errors import DecisionUnavailable, PolicyError, UsageError
from privtab.client._address import authorities, parse, proxy_for, without_password
from privtab.client._protocol import check_status

if TYPE_CHECKING:
    from email.message import Message

    import requests

Timeout: TypeAlias = tuple[float, float]
"""Seconds to connect, and seconds to wait for data; once the answer has begun, their sum bounds the whole call: `(0.5, 2.0)`."""


Headers: TypeAlias = "Mapping[str, str] | Message"


class Limits(tuple[float, float]):  # noqa: SLOT001  (a tuple cannot have slots)
    """A Timeout that also bounds the whole exchange."""

    total: float

    def __new__(cls, connect: float, read: float, *, total: float) -> Self:
        limits = super().__new__(cls, (min(connect, total), min(read, total)))
        limits.total = min(total, connect + read)
        return limits


def total(timeout: Timeout) -> float:
    """The seconds that a whole exchange may take."""
    return timeout.total if isinstance(timeout, Limits) else sum(timeout)


MAX_BODY = 64 * 1024 * 1024
"""Largest accepted answer in bytes."""

NO_BODY = frozenset((*range(100, 200), 204, 304))
"""Statuses without a body. OPA does not send them, and another server that does may send a body or the real answer later,
which would be taken for the next answer if the connection were reused."""

_PIECE = 64 * 1024


class Transport(Protocol):
    """The sender of a client's requests. Wrap a transport to add retries or tracing.

    Both calls return the body of a 200 answer. They raise PolicyError for any other answer below 500 (redirects are not
    followed) and DecisionUnavailable for a 5xx or an incomplete answer.

    Pass a transport to a client:

        Client(url, transport=Retrying(HttpTransport(url)))
    """

    def post(self, path: str, body: bytes, timeout: Timeout) -> bytes:
        """Send a JSON body to a path that begins with `/`."""

    def get(self, path: str, timeout: Timeout) -> bytes:
        """Read a path that begins with `/`."""

    def close(self) -> None:
        """Release the connections."""


class AsyncTransport(Protocol):
    """The sender of an AsyncClient's requests; as Transport, with coroutines.

    Pass a transport to a client:

        AsyncClient(url, transport=transport)
    """

    async def post(self, path: str, body: bytes, limits: Timeout) -> bytes:
        """Send a JSON body to a path that begins with `/`."""

    async def get(self, path: str, limits: Timeout) -> bytes:
        """Read a path that begins with `/`."""

    async def close(self) -> None:
        """Release the connections."""


class BlockingTransport:
    """Common base of transports that wait for each exchange; it can be copied to other processes."""

    url: str
    _shown: str
    """The address in messages."""
    _settings: dict[str, Any]
    """The arguments besides the address."""

    def __getstate__(self) -> dict[str, object]:
        """The settings from which another process builds its copy, without connections."""
        return {"url": self.url, **self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def post(self, path: str, body: bytes, timeout: Timeout) -> bytes:
        """Send a JSON body; returns the body of the answer."""
        return self._send("POST", path, body, timeout)

    def get(self, path: str, timeout: Timeout) -> bytes:
        """Read a path; returns the body of the answer."""
        return self._send("GET", path, b"", timeout)

    def _send(self, method: str, path: str, body: bytes, timeout: Timeout) -> bytes:
        status, headers, content = self._answer(method, path, body, timeout)
        check_status(
            status,
            content,
            f"{self._shown}{path}",
            retry_after=headers.get("Retry-After"),
            content_type=headers.get("Content-Type"),
        )
        return content

    def _answer(self, method: str, path: str, body: bytes, timeout: Timeout) -> tuple[int, Headers, bytes]:
        """Status, headers and body of the complete answer; raises DecisionUnavailable and PolicyError as Transport."""
        raise NotImplementedError


class RequestsTransport(BlockingTransport):
    """Sends over `requests`. Safe to share between threads; a forked process opens its own connections.

    A given session is used unchanged, including hooks and authentication. A session created here is restricted (`restrict_session`).

    >>> RequestsTransport("http://127.0.0.1:8181").close()
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        session: requests.Session | None = None,
        pool_size: int = 10,
        max_body: int = MAX_BODY,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"`{url}` is not the address of an OPA: write http://host:port")
        self.url = url.rstrip("/")
        # The caller's session may take a name and password from the address; messages do not show them.
        self._shown = without_password(self.url)
        self._settings = {"token": token, "session": session, "pool_size": pool_size, "max_body": max_body}
        self._caller_session = session
        self._max_body = max_body
        self._open()

    def _open(self) -> None:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.exceptions import HTTPError

        self._pid = os.getpid()
        # Errors of a failed exchange. urllib3 raises ValueError for invalid chunk sizes.
        self._errors = (requests.RequestException, HTTPError, OSError, ValueError)
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if (token := self._settings["token"]) is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        if self._caller_session is not None:
            self._session = self._caller_session
            return
        self._session = restrict_session(requests.Session(), self.url)
        pool = HTTPAdapter(pool_connections=1, pool_maxsize=self._settings["pool_size"], max_retries=0)
        self._session.mount(self.url, pool)

    def close(self) -> None:
        """Close the connections, unless they belong to the caller's session."""
        if self._caller_session is None:
            self._session.close()

    def _answer(self, method: str, path: str, body: bytes, timeout: Timeout) -> tuple[int, Headers, bytes]:
        if self._pid != os.getpid():
            # Processes that share a connection would read each other's answers.
            if self._caller_session is not None:
                self._caller_session.close()
            self._open()
        deadline = time.monotonic() + total(timeout)
        try:
            response = self._begun(method, path, body, timeout)
            try:
                if response.status_code in NO_BODY:
                    content = b""
                    response.close()
                else:
                    content = self._read(response, deadline)
            except BaseException:
                # Unread data must not be taken for the next answer.
                response.close()
                raise
        except self._errors as error:
            raise DecisionUnavailable(f"OPA at {self._shown} did not answer: {error}") from error
        return response.status_code, response.headers, content

    def _begun(self, method: str, path: str, body: bytes, timeout: Timeout) -> requests.Response:
        """The answer, with its body not yet read."""
        headers = self._headers if method == "GET" else {**self._headers, "Content-Type": "application/json"}
        data = None if method == "GET" else body
        return self._session.request(
            method, self.url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False, stream=True
        )

    def _read(self, response: requests.Response, deadline: float) -> bytes:
        """The whole body, bounded in size and in time."""
        raw = response.raw
        pieces: list[bytes] = []
        size = 0
        # As they arrive, so that a slow one can be abandoned.
        read = partial(getattr(raw, "read1", raw.read), _PIECE)
        for piece in iter(read, b""):
            pieces.append(piece)
            size += len(piece)
            if size > self._max_body:
                raise PolicyError(f"OPA at {self._shown} answered with more than {self._max_body} bytes")
            if time.monotonic() > deadline:
                raise too_slow(self._shown)
        length = response.headers.get("Content-Length", "")
        # urllib3 2 has checked this already, urllib3 1 does not.
        if length.isdecimal() and size < int(length):
            raise DecisionUnavailable(f"OPA at {self._shown} answered with {size} of {length} bytes")
        raw.release_conn()
        return b"".join(pieces)


def too_slow(url: str) -> DecisionUnavailable:
    """The error for an answer that did not come in time."""
    return DecisionUnavailable(
        f"OPA at {url} did not answer in time: allow it longer by `timeout` and `total` (PRIVTAB_TIMEOUT, PRIVTAB_TOTAL), or "
        "ask fewer requests at once by `chunk_size` (PRIVTAB_CHUNK_SIZE)"
    )


def restrict_session(session: requests.Session, url: str, *, verify: bool | str = True) -> requests.Session:
    """Give a session the rules of `HttpTransport` for the server at an address; returns it.

    The environment sets no more than a proxy, unless the server is this machine, and the usual CA certificates. There is no
    `.netrc`, which would replace tokens, and there are no cookies. Redirects are for the caller to refuse.

    >>> import requests
    >>> restrict_session(requests.Session(), "http://localhost:8181").trust_env
    False
    """
    from http.cookiejar import DefaultCookiePolicy

    session.trust_env = False
    session.verify = authorities() if verify is True else verify
    proxy = proxy_for(parse(url))
    session.proxies = {"all": proxy} if proxy else {}
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
    return session
