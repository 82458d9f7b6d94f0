"""A bundle service on the loopback address, from which OPA downloads bundles, with ETags, while this process runs."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self


class FileService:
    """Serves the named files and nothing else, each with its current content. A context manager."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        paths = {self.resource(name): path for name, path in files.items()}

        class Handler(_Handler):
            files = paths

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The URL of the service."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @staticmethod
    def resource(name: str) -> str:
        """The path of a named bundle."""
        return f"/bundles/{name}.tar.gz"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect during a response, as OPA does when it ends."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: Mapping[str, Path]

    def do_GET(self) -> None:
        path = self.files.get(self.path)
        try:
            content = path.read_bytes() if path is not None else None
        except OSError:
            content = None
        if content is None:
            self._answer(404, b"", "")
            return
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        if self.headers.get("If-None-Match") == etag:
            self._answer(304, b"", etag)
        else:
            self._answer(200, content, etag)

    def _answer(self, status: int, body: bytes, etag: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/gzip")
        if etag:
            self.send_header("ETag", etag)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Log nothing: OPA logs every activation."""
