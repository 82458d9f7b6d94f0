"""Download documents over HTTP: bundles, files of a registry, the status of sidecars from a server or an OPA.

Uses the connections of `_http.py`, with the same proxies, certificates and deadlines as for decisions.
"""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urljoin, urlsplit

from privtab.client._address import Cert, Verify, shown
from privtab.client._http import HttpTransport, header
from privtab.client._transport import Timeout
from privtab.errors import PolicyError, UsageError

MOST_REDIRECTS = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_SAFE = "!#$%&'()*+,/:;=?@[]~"
"""Characters of an address that are not percent-encoded."""


class FetchError(Exception):
    """No answer came, or an unacceptable one. The message includes the address; `why` does not."""

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why or message


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer."""

    url: str
    """Its address, after redirects."""
    status: int
    reason: str
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def encoded(self) -> str:
        """The body's Content-Encoding, which is usually empty since none is requested."""
        coding = str(self.headers.get("Content-Encoding", "")).strip().lower()
        return "" if coding == "identity" else coding


class Fetcher:
    """Sends GET requests and follows redirects; `token` is sent only to the host of the first address. Thread-safe."""

    def __init__(
        self,
        *,
        timeout: Timeout,
        seconds: float,
        largest: int,
        token: Callable[[], str | None] = lambda: None,
        verify: Verify = True,
        cert: Cert = None,
    ) -> None:
        """`timeout`: seconds to connect, and to wait for data; `seconds`: for a whole answer of at most `largest` bytes."""
        self._timeout = timeout
        self._seconds = seconds
        self._largest = largest
        self._token = token
        self._verify = verify
        self._cert = cert
        self._transports: dict[str, HttpTransport] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for transport in self._transports.values():
            transport.close()

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer at an address; raises FetchError, and UsageError for an invalid address."""
        first = _origin(url)
        current = url
        for _ in range(MOST_REDIRECTS + 1):
            origin = _origin(current)
            answer = self._send(current, origin, headers or {}, token=origin == first)
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or not location:
                return answer
            try:
                current = urljoin(current, location)
                _origin(current)
            except (UsageError, ValueError) as error:
                raise FetchError(f"{shown(url)} was redirected to an invalid address: {error}") from None
            if first.startswith("https:") and not current.lower().startswith("https:"):
                raise FetchError(f"{shown(url)} was redirected to an address that is not https")
        raise FetchError(f"{shown(url)} was redirected more than {MOST_REDIRECTS} times")

    def _send(self, url: str, origin: str, headers: Mapping[str, str], *, token: bool) -> Answer:
        parts = urlsplit(url)
        target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        lines = "".join(header(name, value) for name, value in headers.items())
        if token and (token_value := self._token()):
            lines += header("Authorization", f"Bearer {token_value}")
        transport = self._transports.get(origin)
        if transport is None:
            transport = self._transports[origin] = HttpTransport(
                origin, verify=self._verify, cert=self._cert, max_body=self._largest, accept="*/*"
            )
        try:
            answer, body = transport.exchange("GET", target, b"", self._timeout, self._seconds, lines.encode("ascii"))
        except TimeoutError as error:
            reason = "no answer, or not all of it, came in time"
            raise FetchError(f"{shown(url)} did not answer: {reason}", reason) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise FetchError(f"{shown(url)} did not answer: {_reason(error)}", _reason(error)) from error
        except PolicyError as error:
            raise FetchError(f"{shown(url)} sent more than {self._largest:,} bytes") from error
        return Answer(url=url, status=answer.status, reason=answer.reason, headers=answer.headers, body=body)


def _origin(url: str) -> str:
    """Scheme, host and port of an address; raises UsageError if it is invalid."""
    invalid = UsageError(f"`{shown(url)}` is not an address: write http://host/path or https://host/path")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname or ""
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except ValueError:
        raise invalid from None
    if parts.scheme not in ("http", "https") or not host:
        raise invalid
    if parts.username is not None:
        raise UsageError(f"`{shown(url)}`: a name and password do not belong into an address: give a token")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port or (443 if parts.scheme == 'https' else 80)}"


def _reason(error: BaseException) -> str:
    """The most specific description of a connection error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or error}"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__
