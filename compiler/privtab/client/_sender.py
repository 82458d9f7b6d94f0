"""The sender of everything that carries a secret, except decisions: bundles, files of a registry, fleets, stores, imports, pushes.

It uses the connections of `_http.py`. So there are no proxies for this machine, no `.netrc` and no cookies; given CA certificates
are the only ones; an answer is bounded in size and time; and headers stay with the server that they are for.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self
from urllib.parse import quote, urljoin, urlsplit

from privtab.base import strict_json
from privtab.base.errors import PolicyError, UsageError
from privtab.base.lazy import pattern
from privtab.base.records import dataclass
from privtab.client._address import Cert, Verify, without_password
from privtab.client._http import HttpTransport, header, reason
from privtab.client._transport import Timeout

MOST_REDIRECTS = 5
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_SAFE = "!#$%&'()*+,/:;=?@[]~"
"""Characters of an address that are not percent-encoded."""
_NAME = pattern(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "proxy-authorization",
        "transfer-encoding",
        "user-agent",
    )
)


class SendError(Exception):
    """No answer came, or an unacceptable answer. The message includes the address; `why` does not.

    >>> SendError("http://opa:8181 did not answer: refused", "refused").why
    'refused'
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why or message


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    url: str
    """The address of the answer, after redirects."""
    status: int
    reason: str
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def encoded(self) -> str:
        """The body's Content-Encoding, which is usually empty since none is requested."""
        coding = str(self.headers.get("Content-Encoding", "")).strip().lower()
        return "" if coding == "identity" else coding

    def json(self) -> Any:
        """The body as JSON; raises SendError for anything else."""
        try:
            return strict_json.strict_loads(self.body)
        except ValueError as error:
            where = without_password(self.url).partition("?")[0]
            raise SendError(f"{where} answered {self.status} with something else than JSON: {error}") from None


class Sender:
    """Sends requests. `token` and `headers` go only to the server of the first address. Thread-safe.

    Read JSON with a bearer token:

        with Sender(timeout=(5.0, 30.0), seconds=60.0, largest=1 << 20, token=token) as sender:
            sender.get("https://registry/v1/fleet").json()
    """

    def __init__(
        self,
        *,
        timeout: Timeout,
        seconds: float,
        largest: int,
        token: str | Callable[[], str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        accept: str = "*/*",
        verify: Verify = True,
        cert: Cert = None,
    ) -> None:
        """`timeout`: seconds to connect, and to wait for data; `seconds`: for a whole answer of at most `largest` bytes.

        `token`: a bearer token, or what returns the current one. `accept`: the media types, unless `headers` name them.
        """
        self._timeout = timeout
        self._seconds = seconds
        self._largest = largest
        self._token = token if callable(token) else lambda: token
        self._headers = dict(headers or {})
        self._accept = accept
        self._connected = partial(HttpTransport, verify=verify, cert=cert, max_body=largest, accept="")
        self._transports: dict[str, HttpTransport] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        for transport in self._transports.values():
            transport.close()

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> HttpReply:
        """The answer at an address, after redirects; raises SendError, and UsageError for an invalid address."""
        first = _origin(url)
        current = url
        for _ in range(MOST_REDIRECTS + 1):
            answer = (
                self.send("GET", current, headers=headers) if _origin(current) == first else self._send("GET", current)
            )
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or not location:
                return answer
            try:
                current = urljoin(current, location)
                _origin(current)
            except (UsageError, ValueError) as error:
                raise SendError(f"{without_password(url)} was redirected to an invalid address: {error}") from None
            if first.startswith("https:") and not current.lower().startswith("https:"):
                raise SendError(f"{without_password(url)} was redirected to an address that is not https")
        raise SendError(f"{without_password(url)} was redirected more than {MOST_REDIRECTS} times")

    def send(
        self, method: str, url: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        """The answer to a request, of any status; redirects are not followed. `body`: JSON, or a value that becomes JSON.

        Raises SendError, and UsageError for an invalid address and headers that cannot be sent.
        """
        given = {**self._headers, **(headers or {})}
        if token := self._token():
            if any(name.lower() == "authorization" for name in given):
                raise UsageError("there are a token and a header `Authorization`: give one of them")
            given["Authorization"] = f"Bearer {token}"
        if not isinstance(body, bytes):
            body = b"" if body is None else json.dumps(body, allow_nan=False).encode()
        return self._send(method, url, body, given)

    def _send(self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> HttpReply:
        origin, parts = _origin(url), urlsplit(url)
        target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
        lines = header("Content-Type", "application/json") if body and method == "DELETE" else ""
        lines += "".join(_line(name, value) for name, value in (headers or {}).items())
        if not any(name.lower() == "accept" for name in headers or ()):
            lines += header("Accept", self._accept)
        transport = self._transports.get(origin)
        if transport is None:
            transport = self._transports[origin] = self._connected(origin)
        try:
            answer, content = transport.exchange(
                method, target, body, self._timeout, self._seconds, lines.encode("ascii")
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = _reason(error)
            raise SendError(f"{without_password(url)} did not answer: {why}", why) from error
        except PolicyError as error:
            raise SendError(f"{without_password(url)} sent more than {self._largest:,} bytes") from error
        return HttpReply(url=url, status=answer.status, reason=answer.reason, headers=answer.headers, body=content)


def _line(name: str, value: str) -> str:
    """A line of the head; raises UsageError for a header that cannot be sent, or that the connection sets."""
    if not _NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
        raise UsageError(f"the header `{name}` cannot be given: it is no name of a header, or the connection sets it")
    return header(name, value)


def _origin(url: str) -> str:
    """Scheme, host and port of an address; raises UsageError if it is invalid."""
    invalid = UsageError(f"`{without_password(url)}` is not an address: write http://host/path or https://host/path")
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
        raise UsageError(f"`{without_password(url)}`: a name and password do not belong into an address: give a token")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port or (443 if parts.scheme == 'https' else 80)}"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer, or not all of it, came in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or error}"
    return reason(error)
