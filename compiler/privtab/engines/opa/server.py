"""An OPA server as a child process, for development, tests and `privtab opa run`."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from privtab.base.errors import OpaError
from privtab.engines.opa import binary as opa_binary


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

    def __exit__(self, *_: object) -> None:
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
        body, status = b"", 404
        if (path := self.files.get(self.path)) is not None:
            with contextlib.suppress(OSError):
                body, status = path.read_bytes(), 200
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        if status == 200 and self.headers.get("If-None-Match") == etag:
            body, status = b"", 304
        self.send_response(status)
        self.send_header("Content-Type", "application/gzip")
        if status != 404:
            self.send_header("ETag", etag)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Log nothing: OPA logs every activation."""


POLL_SECONDS = (1, 2)
"""The minimum and maximum time between two polls of a bundle."""
_ATTEMPTS = 5
_GRACE_SECONDS = 5
_SHELL = Path("/bin/sh")


class OpaServer:
    """Runs `opa run --server` on bundles; a context manager. Entering it waits until every bundle is active.

    Bundles (`.tar.gz` files or folders) are activated separately, each under the name of its file or its key in a mapping.
    A replaced bundle file is active some two seconds later; if it is broken or deleted, the last good one stays active.
    As in production, OPA downloads them from a bundle service, which this process runs on the loopback address.
    Folders are read once.

    `config` is an OPA configuration file; its settings for a bundle with the same name (`signing`) apply too. `paths` are loose
    policy and data files or folders. OPA's own log goes to `log`. Nothing is sent to the network.

    OPA ends with the block, and with this process even if that is killed.

        with OpaServer(["policy.tar.gz"]) as server:
            server.url
    """

    url: str
    process: subprocess.Popen[bytes]

    def __init__(
        self,
        bundles: Sequence[Path] | Mapping[str, Path] = (),
        *,
        binary: Path | None = None,
        config: Path | None = None,
        paths: Sequence[Path] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        extra_args: Sequence[str] = (),
        log: Path | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.bundles = dict(bundles) if isinstance(bundles, Mapping) else _name_bundles(bundles)
        for name, path in self.bundles.items():
            if not path.exists():
                raise OpaError(f"the bundle `{name}` is missing: there is no {path}")
        self._binary = binary
        self._config = config
        self._paths = tuple(paths)
        self._host = host
        self._port = port
        self._extra = tuple(extra_args)
        self._requested_log = log
        self._timeout = timeout
        self._stack = contextlib.ExitStack()
        self._instance_label = f"server-{secrets.token_hex(8)}"  # digits alone would be a number for OPA

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start OPA and wait until every bundle is active. Raises OpaError with the end of the log."""
        try:
            if self._port:
                check_port(self._host, self._port)
            binary = self._binary or opa_binary.find()
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-opa-")))
            self.log = self._requested_log or folder / "opa.log"
            files = {name: path for name, path in self.bundles.items() if not path.is_dir()}
            service = self._stack.enter_context(FileService(files)) if files else None
            settings = list(self._settings(service))
            for attempt in range(_ATTEMPTS):
                port = self._port or _free_port(self._host)
                self._launch(binary, port, settings)
                try:
                    self._wait(port)
                except _PortTakenError:
                    self._end_process()
                    if self._port or attempt == _ATTEMPTS - 1:
                        raise OpaError(_port_taken_message(self._host, port)) from None
                else:
                    return
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop OPA and release all resources; does nothing if it has ended."""
        self._end_process()
        self._stack.close()
        self._stack = contextlib.ExitStack()

    def restart(self) -> None:
        """Restart OPA on the same port, with the current bundles."""
        self._port = int(self.url.rpartition(":")[2])
        self.stop()
        self.start()

    def revisions(self) -> dict[str, str]:
        """The revision of each active bundle; empty if OPA does not answer."""
        status, body = _get(self._host, int(self.url.rpartition(":")[2]), "/v1/data/system/bundles")
        bundles = _entry(body).get("result") if status == 200 else None
        found = bundles.items() if isinstance(bundles, dict) else ()
        return {name: str(bundle["manifest"].get("revision", "")) for name, bundle in found}

    def problems(self, lines: int) -> list[str]:
        """The last warnings and errors in OPA's log, and output that is not a log entry."""
        found = []
        for line in self.log_tail(1000).splitlines():
            entry = _entry(line.encode())
            if not entry:
                found.append(line)
            elif entry.get("level") in ("warning", "error", "fatal", "panic"):
                found.append(": ".join(str(entry[key]) for key in ("msg", "err") if entry.get(key)))
        return found[-lines:]

    def wait(self) -> int:
        """Block until OPA ends, and return its exit code."""
        return self.process.wait()

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of OPA's log, unchanged."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except (OSError, AttributeError):
            return ""

    def _settings(self, service: FileService | None) -> Iterable[str]:
        """The settings that override the configuration file."""
        yield f"labels.privtab_server={self._instance_label}"
        if service is not None:
            yield f"services.privtab_files.url={service.url}"
        for name, path in self.bundles.items():
            if path.is_dir() or service is None:
                resource = "file://" + str(path.resolve()).replace(",", "\\,")
            else:
                yield f"bundles.{name}.service=privtab_files"
                yield f"bundles.{name}.polling.min_delay_seconds={POLL_SECONDS[0]}"
                yield f"bundles.{name}.polling.max_delay_seconds={POLL_SECONDS[1]}"
                resource = service.resource(name)
            yield f"bundles.{name}.resource={resource}"

    def _launch(self, binary: Path, port: int, settings: Sequence[str]) -> None:
        command = [str(binary), "run", "--server", "--skip-version-check", "--addr", f"{self._host}:{port}"]
        # Requests are logged at a level below that of the log, so not at all.
        command += ["--log-level", "info", "--log-level-request", "debug", "--shutdown-grace-period", "2"]
        if self._config is not None:
            command += ["--config-file", str(self._config)]
        for setting in settings:
            command += ["--set", setting]
        command += [*self._extra, *map(str, self._paths)]
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        try:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except OSError as error:
            raise OpaError(f"OPA could not be started: {error}") from error
        self._guard = _guard(self.process.pid, binary.name)
        self.url = f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{port}"

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            exit_code = self.process.poll()
            bundle_error = self._bundle_error()
            if exit_code is not None:
                if "address already in use" in self.log_tail():
                    raise _PortTakenError
                raise self._error_with_log(f"OPA ended with exit code {exit_code}")
            if bundle_error is not None:
                raise self._error_with_log(bundle_error)
            if _get(self._host, port, "/health?bundles=true")[0] == 200:
                self._check_port_owner(port)
                return
            if time.monotonic() > deadline:
                raise self._error_with_log(f"OPA was not ready after {self._timeout:g} seconds")
            time.sleep(0.03)

    def _check_port_owner(self, port: int) -> None:
        """Raise _PortTakenError if another server answers on the port. An OPA that does not show its configuration is accepted."""
        status, body = _get(self._host, port, "/v1/config")
        if status == 200 and self._instance_label.encode() not in body:
            raise _PortTakenError

    def _bundle_error(self) -> str | None:
        """The first error in OPA's log about a bundle, or None."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_start)
                lines = log.read().splitlines()
        except OSError:
            return None
        for line in lines:
            entry = _entry(line)
            if entry.get("level") == "error" and entry.get("plugin") == "bundle":
                return f"bundle `{entry.get('name', '?')}`: {entry.get('msg', '')}"
        return None

    def _error_with_log(self, message: str) -> OpaError:
        # For an invalid option, OPA prints the error and then a long list of options.
        tail = self.log_tail(1000).partition("\nUsage:")[0]
        tail = "\n".join(tail.splitlines()[-20:])
        return OpaError(f"{message}\n{tail}" if tail else message)

    def _end_process(self) -> None:
        process: subprocess.Popen[bytes] | None = getattr(self, "process", None)
        guard: subprocess.Popen[bytes] | None = getattr(self, "_guard", None)
        if guard is not None:
            # Stop the guard first: from here on, another process may get the same id.
            guard.kill()
            if guard.stdin is not None:
                guard.stdin.close()
            guard.wait()
            self._guard = None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def check_port(host: str, port: int) -> None:
    """Raise OpaError if the port is in use."""
    with _socket(host) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise OpaError(_port_taken_message(host, port)) from None
            raise OpaError(f"cannot listen on port {port} of {host}: {error.strerror}") from None


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)


def _port_taken_message(host: str, port: int) -> str:
    return f"port {port} of {host} is taken: give another, or 0 for a free one"


class _PortTakenError(Exception):
    """Another process listens on the port."""


def _guard(pid: int, name: str) -> subprocess.Popen[bytes] | None:
    """Start a process that ends OPA once this process is gone, for whatever reason: then its standard input closes.

    The kernel's parent-death signal follows the thread that started OPA, not the process.
    """
    if not _SHELL.exists():
        return None
    # Another process may have the id by then: only one with the same name is ended.
    script = (
        'trap "" INT; read -r _; '
        'case "$(cat "/proc/$0/comm" 2>/dev/null || ps -o comm= -p "$0")" in *"$1"*) kill -TERM "$0";; esac'
    )
    return subprocess.Popen(
        [str(_SHELL), "-c", script, str(pid), name[:15]],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _name_bundles(paths: Iterable[Path]) -> dict[str, Path]:
    """A name for each bundle, from the name of its file: letters, digits, `-` and `_`."""
    by_name: dict[str, Path] = {}
    for path in paths:
        base = re.sub(r"[^A-Za-z0-9_-]+", "-", re.sub(r"\.(tar\.gz|tgz)$", "", Path(path).name)).strip("-") or "bundle"
        name, number = base, 1
        while name in by_name:
            number += 1
            name = f"{base}-{number}"
        by_name[name] = Path(path)
    return by_name


def _free_port(host: str) -> int:
    with _socket(host) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port


def _get(host: str, port: int, path: str) -> tuple[int, bytes]:
    """Status and body of a GET request; status 0 without an answer. Uses the socket directly, not the environment's proxies."""
    connection = http.client.HTTPConnection(host, port, timeout=1)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
