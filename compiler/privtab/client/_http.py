"""The default transport: its own keep-alive connections, with the standard library's HTTP parser.

A call costs slightly less than with plain `http.client`, since head and body are sent together and heads are cached. As in
`requests`, proxies and CA certificates of the environment apply, and an incomplete answer is an error.
"""

from __future__ import annotations

import http.client
import io
import os
import select
import socket
import ssl
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from privtab.base.errors import DecisionUnavailable, PolicyError, UsageError
from privtab.client import _address
from privtab.client._address import Address, Cert, Token, Verify
from privtab.client._transport import MAX_BODY, NO_BODY, BlockingTransport, Headers, Timeout, too_slow, total

_PIECE = 64 * 1024
_ONE_GO = 1024 * 1024
"""Largest answer of known length, in bytes, that is read at once."""


class HttpTransport(BlockingTransport):
    """Sends over pooled connections. Safe to share between threads; a forked process opens its own connections.

    `verify` and `cert` are as in `requests`. `headers` returns additional headers for each exchange (a trace context). With an
    empty `accept`, the caller gives that header.

    >>> HttpTransport("http://127.0.0.1:8181").close()
    """

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
        accept: str = "application/json",
        headers: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._settings = {name: value for name, value in locals().items() if name not in ("self", "url")}
        self._address = _address.parse(url)
        self.url = self._shown = self._address.url
        self._token = Token(token, token_file)
        self._pool_size = pool_size
        self._max_body = max_body
        self._accept = accept
        self._extra_headers = headers
        self._open = _opener(self._address, verify, cert)
        self._heads: dict[tuple[str, str, str | None], bytes] = {}
        self._reset_connections()

    def _reset_connections(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[_Connection] = deque()

    def __repr__(self) -> str:
        return f"HttpTransport({self.url!r})"

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _answer(self, method: str, path: str, body: bytes, timeout: Timeout) -> tuple[int, Headers, bytes]:
        try:
            answer, content = self.exchange(method, path, body, timeout, total(timeout))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise unavailable(self.url, error) from error
        return answer.status, answer.headers, content

    def exchange(
        self, method: str, path: str, body: bytes, timeout: Timeout, seconds: float, headers: bytes = b""
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer, of any status, and its body, within `seconds`. `headers`: additional lines of the head.

        Raises OSError, HTTPException or ValueError if there is no complete answer, PolicyError if it is too long.
        """
        deadline = time.monotonic() + seconds
        message = self._head(method, path, len(body), headers) + body
        connection: _Connection | None = None
        try:
            connection = self._connection(timeout[0], deadline)
            connection.read_timeout, connection.deadline = timeout[1], deadline
            answer, content = connection.exchange(method, message, self._max_body)
        except BaseException:
            # Unread data must not be taken for the next answer.
            if connection is not None:
                connection.close()
            raise
        if connection.reusable and len(self._idle) < self._pool_size:
            self._idle.append(connection)
        else:
            connection.close()
        return answer, content

    def _connection(self, connect: float, deadline: float) -> _Connection:
        """An idle connection that is open and has no unread data, else a new one."""
        if self._pid != os.getpid():
            # Processes that share a connection would read each other's answers.
            self._reset_connections()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.silent():
                return connection
            connection.close()
        return _Connection(self._open(min(connect, max(deadline - time.monotonic(), 0.001))))

    def _head(self, method: str, path: str, length: int, headers: bytes) -> bytes:
        token = self._token.value()
        key = (method, path, token)
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = self._make_head(method, path, token)
            if len(self._heads) > 64:
                self._heads.clear()
        if headers:
            head += headers
        if self._extra_headers is not None:
            extra = "".join(header(name, value) for name, value in self._extra_headers().items())
            head += extra.encode("ascii")
        if method == "GET":
            return head + b"\r\n"
        return head + b"Content-Length: %d\r\n\r\n" % length

    def _make_head(self, method: str, path: str, token: str | None) -> bytes:
        target = self._address.base + path
        proxy = self._open.proxy
        if proxy is not None and self._address.scheme == "http":
            target = f"http://{self._address.authority}{target}"
        lines = [f"{method} {target} HTTP/1.1\r\n", header("Host", self._address.authority)]
        lines += [header("Accept", self._accept)] if self._accept else []
        lines += [header("Accept-Encoding", "identity"), header("User-Agent", "privtab")]
        if method in ("POST", "PUT", "PATCH"):
            lines.append(header("Content-Type", "application/json"))
        if proxy is not None and self._address.scheme == "http" and proxy.credentials is not None:
            lines.append(header("Proxy-Authorization", proxy.credentials))
        if token is not None:
            lines.append(header("Authorization", f"Bearer {token}"))
        return "".join(lines).encode("ascii")


def unavailable(url: str, error: BaseException) -> DecisionUnavailable:
    """The error for a failed connection or exchange."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return DecisionUnavailable(
            f"the certificate of OPA at {url} is not trusted: {error.verify_message}; "
            "its authority is given as `verify`",
            retry=False,
        )
    if isinstance(error, ssl.SSLError):
        return DecisionUnavailable(f"no TLS connection to OPA at {url}: {error}", retry=False)
    if isinstance(error, TimeoutError):
        return too_slow(url)
    return DecisionUnavailable(f"OPA at {url} did not answer: {reason(error)}")


def reason(error: BaseException) -> str:
    """The most specific description of an error of a connection."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def header(name: str, value: str) -> str:
    """A header line; raises UsageError for a value with line breaks or non-ASCII characters."""
    if "\r" in value or "\n" in value or not value.isascii():
        raise UsageError(f"the header {name} cannot be sent: its value must be one line of ASCII")
    return f"{name}: {value}\r\n"


# --- opening connections ---


class _Proxy:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(
                f"a {parts.scheme} proxy is set in the environment, and only proxies over http are supported; for others "
                "give a Client a `requests.Session` of yours: Client(session=…)"
            )
        self.host, self.port = parts.hostname, parts.port or 80
        self.credentials: str | None = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.credentials = "Basic " + b64encode(pair.encode()).decode()


class _opener:  # noqa: N801  (a function with settings)
    """Opens sockets to one address."""

    def __init__(self, address: Address, verify: Verify, cert: Cert) -> None:
        self._address = address
        proxy_url = _address.proxy_for(address)
        self.proxy = _Proxy(proxy_url) if proxy_url else None
        self._tls = _address.tls_context(verify, cert) if address.scheme == "https" else None

    def __call__(self, seconds: float) -> socket.socket:
        """A connected socket, after the TLS handshake if any; raises OSError."""
        address = self._address
        if address.socket is not None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(seconds)
                sock.connect(address.socket)
            except BaseException:
                sock.close()
                raise
            return sock
        endpoint = (self.proxy.host, self.proxy.port) if self.proxy is not None else (address.host, address.port)
        # The standard library handles name resolution, TCP_NODELAY and the tunnel through a proxy.
        connection = http.client.HTTPConnection(*endpoint, timeout=seconds)
        try:
            if self.proxy is not None and self._tls is not None:
                credentials = self.proxy.credentials
                headers = {"Proxy-Authorization": credentials} if credentials is not None else {}
                connection.set_tunnel(address.host, address.port, headers)
            connection.connect()
            sock = connection.sock
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=address.host)
        except BaseException:
            connection.close()
            raise
        return sock


# --- one connection ---


class _Source(io.RawIOBase):
    """Bytes from a socket until a deadline, however slowly they arrive."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.at_end = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if self.at_end:
            return 0
        return self._connection.receive(buffer)


class _Buffer(io.BufferedReader):
    """The buffer that http.client reads; on close it records whether data followed the answer."""

    raw: _Source
    has_extra_data = False

    def close(self) -> None:
        if not self.closed:
            self.raw.at_end = True
            self.has_extra_data = bool(self.peek(1))
        super().close()


class _Connection:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._pending: Callable[[], int] | None = getattr(sock, "pending", None)
        """Number of decrypted bytes in TLS's buffer, which polling the socket does not show."""
        self._poll: Any = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(sock, select.POLLIN)
        self.read_timeout = self.deadline = 0.0
        self.reusable = False

    def close(self) -> None:
        self._socket.close()

    def silent(self) -> bool:
        """Return whether nothing came since the last answer, neither the end of the connection nor an unexpected answer."""
        try:
            if self._pending is not None and self._pending():
                return False
            if self._poll is not None:
                return not self._poll.poll(0)
            return not select.select([self._socket], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def _remaining(self) -> float:
        remaining = self.deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return remaining

    def receive(self, buffer: Any) -> int:
        self._socket.settimeout(min(self.read_timeout, self._remaining()))
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str) -> _Buffer:
        """The file object that http.client requests from a socket."""
        del mode
        self._buffer = _Buffer(_Source(self))
        return self._buffer

    def exchange(self, method: str, message: bytes, max_body: int) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer's head and body; afterwards `reusable` says whether the connection can be used again."""
        self.reusable = False
        self._socket.settimeout(self._remaining())
        self._socket.sendall(message)
        response = http.client.HTTPResponse(self, method=method)  # type: ignore[arg-type]  # only makefile is used
        try:
            response.begin()
            _check_framing(response.headers)
            content = _body(response, max_body)
            self.reusable = not response.will_close and response.status not in NO_BODY
        finally:
            response.close()
        self.reusable = self.reusable and not self._buffer.has_extra_data
        return response, content


def _check_framing(headers: http.client.HTTPMessage) -> None:
    """Raise HTTPException for an ambiguous body length, which could split one answer into two (response smuggling)."""
    lengths = headers.get_all("Content-Length", ())
    coding = headers.get("Transfer-Encoding")
    if coding is None:
        unambiguous = not lengths or (len(lengths) == 1 and lengths[0].strip().isdecimal())
    else:
        unambiguous = not lengths and coding.strip().lower() == "chunked"
    if not unambiguous or headers.defects:
        raise http.client.HTTPException("the head of the answer is malformed")


def _body(response: http.client.HTTPResponse, max_body: int) -> bytes:
    """The whole body; raises PolicyError beyond `max_body` bytes and HTTPException if it is cut short."""
    length = response.length
    if length is not None and length <= min(_ONE_GO, max_body):
        return response.read()
    pieces: list[bytes] = []
    size = 0
    while size <= max_body and (piece := response.read(_PIECE)):
        pieces.append(piece)
        size += len(piece)
    if size > max_body:
        raise PolicyError(f"OPA answered with more than {max_body} bytes")
    if length is not None and size < length:
        raise http.client.IncompleteRead(b"", length - size)
    return b"".join(pieces)
