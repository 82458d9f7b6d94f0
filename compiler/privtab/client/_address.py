"""Addresses, proxies, certificates and tokens, for the synchronous and asynchronous senders."""

from __future__ import annotations

import os
import ssl
import time
from ipaddress import ip_address
from pathlib import Path
from socket import inet_aton
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from privtab.base import files
from privtab.base.errors import FileError, UsageError
from privtab.base.records import dataclass

Verify: TypeAlias = bool | str | ssl.SSLContext
"""Whether to verify the server's certificate, or the CA certificates to use: a file, a folder or a context."""
Cert: TypeAlias = str | tuple[str, str] | None
"""A client certificate: one file with certificate and key, or (certificate, key)."""

_CHECK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    url: str
    """As displayed, without a trailing slash."""
    scheme: str
    """`http`, `https` or `unix`."""
    host: str
    port: int
    base: str
    """The prefix of all paths; usually empty."""
    socket: str | None = None

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        if self.socket is not None:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Return whether the address is this machine, for which proxies are not used."""
        return self.socket is not None or is_loopback(self.host)


def parse(url: str) -> Address:
    """Read `http://host:port`, `https://…`, `unix:/path` or `http+unix://%2Fpath`; raises UsageError."""
    if url.startswith(("unix:", "http+unix:")):
        return _unix(url)
    invalid = UsageError(
        f"`{without_password(url)}` is not the address of an OPA: write http://host:port, https://host:port or unix:/path"
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise invalid from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise invalid
    if parts.username is not None:
        raise UsageError("a name and password do not belong into the address of an OPA: give a token")
    if any(ord(character) <= 32 or ord(character) == 127 for character in url):
        raise invalid
    return Address(
        url=url.rstrip("/"),
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or (443 if parts.scheme == "https" else 80),
        base=parts.path.rstrip("/"),
    )


def _unix(url: str) -> Address:
    rest = url.partition(":")[2]
    path = unquote(rest.removeprefix("//")) if url.startswith("http+unix:") else "/" + rest.lstrip("/")
    if not path.startswith("/") or not path.strip("/"):
        raise UsageError(f"`{url}` names no socket: write unix:/path/to/opa.sock")
    return Address(url=f"unix:{path}", scheme="unix", host="localhost", port=0, base="", socket=path)


def without_password(url: str) -> str:
    """An address without its user and password, if any.

    >>> without_password("https://ann:secret@registry/prod")
    'https://…@registry/prod'
    """
    head, separator, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://…{separator}{tail}" if separator else url


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, in any notation that sockets accept, is this machine.

    >>> [is_loopback(host) for host in ("localhost", "opa.localhost.", "127.1", "::ffff:127.0.0.1", "0.0.0.0", "10.0.0.1")]
    [True, True, True, True, True, False]
    """
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip = ip_address(name)
    except ValueError:
        try:
            ip = ip_address(inet_aton(name))  # 127.1, 0x7f000001
        except OSError:
            return False
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_loopback or ip.is_unspecified


def proxy_for(address: Address) -> str | None:
    """The proxy that the environment sets for an address; None for this machine, which a proxy could not reach."""
    if address.loopback:
        return None
    from urllib.request import getproxies

    proxies = getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if not proxy:
        return None
    from requests.utils import should_bypass_proxies

    return None if should_bypass_proxies(f"{address.scheme}://{address.authority}", no_proxy=None) else proxy


def tls_context(verify: Verify, cert: Cert) -> ssl.SSLContext:
    """The TLS context of an https address; raises UsageError for missing files or invalid certificates.

    `verify=True` uses REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE of the environment, else certifi's CA certificates.
    """
    if isinstance(verify, ssl.SSLContext):
        context = verify
    else:
        try:
            ca_path = verify if isinstance(verify, str) else authorities()
            is_folder = Path(ca_path).is_dir()
            context = ssl.create_default_context(
                cafile=None if is_folder else ca_path, capath=ca_path if is_folder else None
            )
            if verify is False:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"verify is `{verify}`: no certificates of authorities could be read ({error})") from None
    if cert is not None:
        own, key = (cert, cert) if isinstance(cert, str) else cert
        try:
            files.check_secret(key)
            context.load_cert_chain(own, key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"cert is `{own}`: no certificate and key could be read ({error})") from None
    return context


def authorities() -> str:
    """The file or folder of the CA certificates that are trusted by default."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        if found := os.environ.get(name):
            return found
    import certifi

    return certifi.where()


class Token:
    """A bearer token, given or from a file that is read again when it changes. Never displayed."""

    def __init__(self, token: str | None, file: str | None) -> None:
        if token is not None and file is not None:
            raise UsageError("give a token or a token_file, not both")
        self._file = file
        self._token = _clean(token, "token") if token is not None else None
        self._stamp: tuple[int, int, int] | None = None
        self._checked_at = 0.0
        if file is not None:
            self.value()

    def value(self) -> str | None:
        """The current token; the last one if its file can no longer be read."""
        if self._file is None:
            return self._token
        now = time.monotonic()
        if self._token is not None and now - self._checked_at < _CHECK_SECONDS:
            return self._token
        try:
            if (stamp := file_stamp(self._file)) != self._stamp:
                self._token = _clean(files.read_secret(self._file).strip(), "token_file")
                self._stamp = stamp
        except (OSError, FileError, UsageError) as error:
            if self._token is None:
                raise UsageError(f"token_file is `{self._file}`: no token could be read ({error})") from None
        self._checked_at = now
        return self._token

    def __repr__(self) -> str:
        return "Token(…)"


def file_stamp(path: str | Path) -> tuple[int, int, int]:
    """Return a value that changes with the content of a file; raises OSError."""
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _clean(token: str, label: str) -> str:
    """The token without surrounding whitespace; raises UsageError unless it is visible ASCII, as headers require."""
    if not token or not all(33 <= ord(character) <= 126 for character in token):
        raise UsageError(f"the {label} holds no token: it must be visible ASCII without spaces")
    return token
