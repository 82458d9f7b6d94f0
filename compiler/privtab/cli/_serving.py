"""Shared by the commands that serve HTTP: their TLS files, exposure to other machines, and the log."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privtab.cli._output import Format, print_error
from privtab.errors import UsageError
from privtab.printable import printable

if TYPE_CHECKING:
    from privtab.serving.server import Tls

ConnectionsOption = Annotated[
    int | None,
    typer.Option(
        "--connections-per-address",
        min=0,
        metavar="N",
        help="Connections allowed per address; 0: unlimited. (default: half of all)",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The options that these commands have."""

    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 picks a free one.")] = 8080
    public_url: Annotated[
        str | None, typer.Option("--public-url", metavar="URL", help="Public URL, for the documents of the server.")
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="File of bearer tokens: name, token and scopes per line."),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow listening beyond this machine without tokens.")
    ] = False
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="TLS certificate, PEM.")] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of the certificate, PEM.")
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        typer.Option("--tls-client-ca", metavar="FILE", help="Require client certificates signed by these CAs, PEM."),
    ] = None
    max_body: Annotated[
        int, typer.Option("--max-body", min=1024, metavar="BYTES", help="Maximum size of a request.")
    ] = 1024 * 1024
    header_timeout: Annotated[
        float, typer.Option("--header-timeout", min=0.1, metavar="SECONDS", help="Timeout for the head of a request.")
    ] = 10.0
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log only problems, not each request.")] = False
    format_: Annotated[
        Format, typer.Option("--format", help="Format of the first line: for people or for programs.")
    ] = Format.TEXT

    def checked_tls(self, *, tokens: bool) -> Tls | None:
        """The TLS files, if any. Raises UsageError, FileError.

        Also raises UsageError for an address that other machines reach where nothing keeps callers out; `tokens`: tokens
        do. Warns if such connections are not encrypted.
        """
        from privtab.serving.server import is_loopback

        tls = self._tls()
        if is_loopback(self.host):
            return tls
        if not (tokens or self.tls_client_ca or self.insecure):
            raise UsageError(
                f"{self.host} can be reached from other machines: give `--token-file` or `--tls-client-ca`, "
                "or `--insecure` where something else keeps callers out"
            )
        if tls is None:
            print_error("no TLS: tokens and answers cross the network as they are, unless something in front encrypts")
        return tls

    def _tls(self) -> Tls | None:
        from privtab.serving.server import Tls

        cert, key = self.tls_cert, self.tls_key
        if cert is None and key is None and self.tls_client_ca is None:
            return None
        if cert is None or key is None:
            raise UsageError("`--tls-cert` and `--tls-key` go together")
        tls = Tls(cert=cert, key=key, client_ca=self.tls_client_ca)
        tls.check()
        return tls

    def checked_public_url(self) -> str | None:
        """The public URL without a slash at its end. Raises UsageError."""
        url = self.public_url
        if url is not None and (not url.startswith(("https://", "http://")) or set("?#") & set(url)):
            raise UsageError(f"`--public-url {url}`: write https://host, without a query or a fragment")
        return None if url is None else url.rstrip("/")


class _OneLine(logging.Formatter):
    """Formats each message on one line, since callers choose paths and names."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the base class's name)
        return printable(super().formatMessage(record), one_line=True)


def log_requests(*, quiet: bool) -> None:
    """Log problems and, unless quiet, each request to standard error."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    access = logging.getLogger("privtab.serve.access")
    access.setLevel(logging.WARNING if quiet else logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(message)s"))
    access.handlers = [handler]
    access.propagate = False
    logging.getLogger("privtab.serve").setLevel(logging.INFO)
