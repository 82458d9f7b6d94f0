"""Decision points that misbehave, on real sockets: a scripted server, a real OPA behind a proxy that can be cut,
and invalid certificates. `failure_cases.py` has the table of cases.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from privtab.base.request import Entity, Request
from privtab.bundle import state_bundle
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import from_tables, validate

SYSTEM = "studio"
POLICY = """\
privtab: 1
system: studio
version: "1"
entities: {project: {dataset:}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {creator: true}}
tables:
  dataset:
    create: WRITE (project)
    read: READ (dataset) or owner (dataset)
    list: {requires: READ (project), each: can read (dataset)}
"""
ROWS = {
    "grants": [
        {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "project:web"},
        {"grantee": "user:ann", "effect": "allow", "privilege": "WRITE", "entity": "project:web"},
        {"grantee": "user:ben", "effect": "allow", "privilege": "READ", "entity": "project:web"},
        {"grantee": "user:ben", "effect": "deny", "privilege": "READ", "entity": "dataset:web/salaries"},
    ]
}
READ = Request(user="ann", action="read", resource=Entity("dataset", "web/clicks"))
OTHER = Request(user="ben", action="read", resource=Entity("dataset", "web/salaries"))
ITEMS = ["web/clicks", "web/salaries"]
MAX_BODY = 100_000


@cache
def program(folder: Path) -> Program:
    """The program of the policy."""
    path = folder / "studio.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return load_program(path)


def write_bundles(folder: Path) -> tuple[Path, Path]:
    """Write the bundles of the policy and its state."""
    policy, state = folder / "policy.tar.gz", folder / "state.tar.gz"
    policy.write_bytes(policy_artifacts(program(folder)).bundle())
    write_state(folder, ROWS)
    return policy, state


def write_state(folder: Path, rows: dict[str, Any]) -> None:
    """Replace the state bundle atomically."""
    found, findings = validate(program(folder), from_tables(rows, "rows"))
    assert not findings
    staged = folder / "state.new"
    staged.write_bytes(state_bundle(program(folder), found))
    staged.replace(folder / "state.tar.gz")


# --- a scripted server -----------------------------------------------------------------------------------------------


def reply(body: str | bytes, status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    """An HTTP response; `length` overrides its Content-Length."""
    content = body.encode() if isinstance(body, str) else body
    types = () if any(h.lower().startswith("content-type") for h in headers) else ("Content-Type: application/json",)
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content) if length is None else length}", *types, *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def reset(connection: socket.socket) -> None:
    """Close the connection with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@dataclass
class ScriptedServer:
    """Serves the program and revisions like an OPA with the policy, and answers every decision by `answer`."""

    answer: Callable[[socket.socket], None]
    program: dict[str, Any]
    state: object = "s1"
    port: int = 0
    decisions: int = 0
    """Number of decisions that were requested."""
    open: int = 0
    """Number of open connections."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[ScriptedServer]:
        """Serve during the block."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        try:
            yield self
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _count(self, change: int) -> None:
        with self._lock:
            self.open += change

    def _converse(self, connection: socket.socket) -> None:
        self._count(1)
        try:
            with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as reading:
                while line := reading.readline():
                    path = line.decode().split(" ")[1]
                    length = 0
                    while (header := reading.readline().decode().strip()) != "":
                        if header.lower().startswith("content-length:"):
                            length = int(header.partition(":")[2])
                    reading.read(length)
                    names = self._names(path)
                    if names is not None:
                        connection.sendall(reply(json.dumps(names)))
                    else:
                        with self._lock:
                            self.decisions += 1
                        self.answer(connection)
        finally:
            self._count(-1)

    def _names(self, path: str) -> dict[str, Any] | None:
        if path.startswith("/v1/data/privtab_state/"):
            return {} if self.state is None else {"result": self.state}
        if path.endswith("/revision"):
            return {"result": self.program["revision"]}
        if path.startswith("/v1/data/privtab_program"):
            return {"result": self.program if path.endswith(SYSTEM) else {SYSTEM: self.program}}
        return None

    def settled(self, seconds: float = 3.0) -> bool:
        """Wait for all connections to close; returns whether they did."""
        until = time.monotonic() + seconds
        while self.open and time.monotonic() < until:
            time.sleep(0.01)
        return self.open == 0


def scripted(folder: Path, answer: bytes | Callable[[socket.socket], None], **more: Any) -> ScriptedServer:
    """A server that answers every decision with the given bytes or by the given function."""

    def send(connection: socket.socket) -> None:
        if isinstance(answer, bytes):
            connection.sendall(answer)
        else:
            answer(connection)

    names = program_json(program(folder)) | {"revision": "p1"}
    return ScriptedServer(answer=send, program=names, **more)


# --- a proxy to a real OPA -------------------------------------------------------------------------------------------


class CuttableProxy:
    """A TCP proxy that counts requests; `on_request` is called with the number of each."""

    def __init__(self, port: int, on_request: Callable[[int], None] = lambda _: None) -> None:
        self._target = port
        self._on_request = on_request
        self._requests = 0
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in list(self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                reset(near)
                continue
            for source, sink, counted in ((near, far, True), (far, near, False)):
                self._ends.add(source)
                threading.Thread(target=self._pass, args=(source, sink, counted), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while piece := source.recv(65536):
                if counted and piece.startswith((b"POST", b"GET")):
                    with self._lock:
                        self._requests += 1
                        number = self._requests
                    self._on_request(number)
                sink.sendall(piece)
        except OSError:
            pass
        finally:
            self._ends.discard(source)
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            source.close()


# --- certificates ----------------------------------------------------------------------------------------------------

_CA_CONFIG = """\
[ca]
default_ca = here
[here]
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
[req]
distinguished_name = dn
[dn]
"""


class Authority:
    """Signs certificates for tests, with the `openssl` command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.txt").touch()
        (folder / "serial").write_text("01\n", encoding="ascii")
        self._config = folder / "openssl.cnf"
        self._config.write_text(_CA_CONFIG.format(folder=folder), encoding="ascii")
        self.certificate, self._key = folder / "ca.pem", folder / "ca.key"
        self._openssl(
            *["req", "-x509", "-config", str(self._config), "-days", "2", "-subj", "/CN=test authority", "-nodes"],
            *[
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-addext",
                "basicConstraints=critical,CA:TRUE",
            ],
            *["-keyout", str(self._key), "-out", str(self.certificate)],
        )

    def sign(self, name: str, host: str = "IP:127.0.0.1", *, expired: bool = False) -> tuple[Path, Path]:
        """Create a key and a certificate; returns their paths, the certificate first."""
        certificate, key, request_file = (self.folder / f"{name}{end}" for end in (".pem", ".key", ".csr"))
        self._openssl(
            *["req", "-new", "-config", str(self._config), "-subj", f"/CN={name}", "-nodes"],
            *["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-addext", f"subjectAltName={host}"],
            *["-keyout", str(key), "-out", str(request_file)],
        )
        dates = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"] if expired else ["-days", "2"]
        self._openssl(
            *["ca", "-batch", "-notext", "-config", str(self._config), "-cert", str(self.certificate)],
            *["-keyfile", str(self._key), "-in", str(request_file), "-out", str(certificate), *dates],
        )
        return certificate, key

    @staticmethod
    def _openssl(*arguments: str) -> None:
        command = shutil.which("openssl")
        assert command is not None
        subprocess.run([command, *arguments], check=True, capture_output=True)


# --- a real OPA with any arguments -----------------------------------------------------------------------------------


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def opa_process(binary: Path, log: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `opa run --server` with these arguments, without waiting until it is ready."""
    command = [
        str(binary),
        "run",
        "--server",
        "--skip-version-check",
        "--shutdown-grace-period=1",
        *map(str, arguments),
    ]
    with log.open("ab") as written:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(ready: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until `ready` returns true."""
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.02)
