"""Shared by the commands that serve HTTP: their TLS files, exposure to other machines, and the log."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from privtab.cli._output import complain
from privtab.errors import UsageError
from privtab.printable import printable

if TYPE_CHECKING:
    from privtab.serving.server import Tls


def check_exposure(host: str, *, guarded: bool, tls: Tls | None) -> None:
    """Refuse to serve other machines without authentication, and warn if connections are not encrypted."""
    if not guarded:
        raise UsageError(
            f"{host} can be reached from other machines: give `--token-file` or `--tls-client-ca`, "
            "or `--insecure` where something else keeps callers out"
        )
    if tls is None:
        complain("no TLS: tokens and answers cross the network as they are, unless something in front encrypts")


def tls_files(cert: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    """The files of `--tls-cert` and its companions, checked; raises UsageError, FileError."""
    from privtab.serving.server import Tls

    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise UsageError("`--tls-cert` and `--tls-key` go together")
    tls = Tls(cert=cert, key=key, client_ca=client_ca)
    tls.check()
    return tls


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
