"""A small system written by hand, with the packages and data that a compiled bundle has, and servers to ask it.

space                     READ on a space counts for what is in it
  doc                     read: READ; list: READ each; create: WRITE (space); copy: WRITE (space) and READ (source),
                          with the flag `force` also ADMIN (space)
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from privtab import Client, Request
from privtab.engines.opa import binary
from privtab.engines.opa.server import OpaServer

SYSTEM = "demo"
REGO = (Path(__file__).parent / "demo.rego").read_text()
STATE: dict[str, Any] = {
    "revision": "s1",
    "principals": {"alice": ["role:writer", "user:alice"], "bob": ["user:bob"]},
    "allow": {
        "READ": {"space:s": {"role:writer": True}, "doc:t/d": {"user:bob": True}, "doc:t/ü%2F1": {"user:bob": True}},
        "WRITE": {"space:s": {"role:writer": True}},
        "ADMIN": {"space:u": {"role:writer": True}},
    },
}


def shape(
    *, unnamed: bool = False, withs: dict[str, list[str]] | None = None, flags: Sequence[str] = ()
) -> dict[str, Any]:
    return {"unnamed": unnamed, "with": withs or {}, "flags": list(flags)}


class Demo:
    """Writes the demo's bundles, as deploying does: in one step, under a name that stays."""

    system = SYSTEM
    rego = REGO
    state = STATE

    def program(self, revision: str = "p1", **operations: dict[str, Any]) -> dict[str, Any]:
        space = {"type": "space", "depth": 1}
        return {
            "system": SYSTEM,
            "revision": revision,
            "entities": {"space": {"chain": [space]}, "doc": {"chain": [space, {"type": "doc", "depth": 2}]}},
            "semantics": {"groups": ["state"]},
            "rules": {
                "space": {"read": shape()},
                "doc": {
                    "read": shape(),
                    "list": shape(unnamed=True),
                    "create": shape(unnamed=True),
                    "copy": shape(withs={"source": ["doc"]}, flags=("force",)),
                    **operations,
                },
            },
        }

    def policy(self, folder: Path, revision: str = "p1", rego: str = REGO, package: str = SYSTEM) -> Path:
        data = {"privtab_program": {package: self.program(revision)}}
        roots = [f"privtab/{package}", f"privtab_program/{package}"]
        rego = rego.replace("package privtab.demo", f"package privtab.{package}")
        return _pack(folder / "demo-policy.tar.gz", roots, revision, data, {"demo.rego": rego})

    def write_state(self, folder: Path, state: dict[str, Any] = STATE) -> Path:
        data = {"privtab_state": {SYSTEM: state}}
        return _pack(folder / "demo-state.tar.gz", [f"privtab_state/{SYSTEM}"], state["revision"], data, {})


def _pack(path: Path, roots: list[str], revision: str, data: dict[str, Any], rego: dict[str, str]) -> Path:
    manifest = {"roots": roots, "revision": revision, "rego_version": 1}
    files = {".manifest": json.dumps(manifest), "data.json": json.dumps(data), **rego}
    staged = path.with_suffix(".new")
    with tarfile.open(staged, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return staged.replace(path)


@dataclass(frozen=True)
class DecisionBundle:
    """Bundles of one system, and requests with the right answers."""

    system: str
    bundles: tuple[Path, ...]
    cases: tuple[tuple[Request, bool], ...]


@pytest.fixture(scope="session")
def demo() -> Demo:
    return Demo()


@pytest.fixture(scope="session")
def opa_binary() -> Path:
    return binary.find()


@pytest.fixture(scope="session")
def decision_bundle(tmp_path_factory: pytest.TempPathFactory) -> DecisionBundle:
    folder = tmp_path_factory.mktemp("demo")
    source = {"context": {"with": {"source": {"type": "doc", "id": "s/e"}}}}
    requested: list[tuple[str, str, str, str, dict[str, Any], bool]] = [
        ("alice", "read", "doc", "s/d", {}, True),
        ("alice", "read", "doc", "t/d", {}, False),
        ("alice", "read", "space", "s", {}, True),
        ("bob", "read", "doc", "t/d", {}, True),
        ("bob", "read", "doc", "t/ü%2F1", {}, True),
        ("bob", "read", "doc", "s/d", {}, False),
        ("nobody", "read", "doc", "s/d", {}, False),
        ("alice", "create", "doc", "s", {}, True),
        ("alice", "create", "doc", "t/new", {}, False),
        ("alice", "copy", "doc", "s/d", source, True),
        ("bob", "copy", "doc", "s/d", source, False),
        ("alice", "copy", "doc", "s/d", {"context": {**source["context"], "force": True}}, False),
    ]
    cases = tuple(
        (
            Request.from_json(
                {"subject": {"type": "user", "id": u}, "action": {"name": a}, "resource": {"type": t, "id": i}, **more}
            ),
            expected,
        )
        for u, a, t, i, more, expected in requested
    )
    return DecisionBundle(SYSTEM, (Demo().policy(folder), Demo().write_state(folder)), cases)


@pytest.fixture(scope="session")
def opa(decision_bundle: DecisionBundle, opa_binary: Path) -> Iterator[OpaServer]:
    with OpaServer(decision_bundle.bundles, binary=opa_binary) as server:
        yield server


@pytest.fixture
def client(opa: OpaServer) -> Iterator[Client]:
    with Client(opa.url) as asking:
        yield asking


# --- servers that misbehave ---


@dataclass
class RawServer:
    """A real socket that answers as told: GETs of the names as OPA does, everything else by `answer`."""

    answer: Callable[[socket.socket, str], None]
    program: object = field(default_factory=lambda: {"result": Demo().program()})
    state: object = field(default_factory=lambda: {"result": "s1"})
    connections: int = 0
    requests: list[str] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    url: str = ""

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as reading:
            while line := reading.readline():
                method, target, _ = line.decode().split(" ")
                path = "/" + target.partition("://")[2].partition("/")[2] if "://" in target else target
                head, length = "", 0
                while (header := reading.readline().decode().strip()) != "":
                    head += header + "\n"
                    if header.lower().startswith("content-length:"):
                        length = int(header.partition(":")[2])
                reading.read(length)
                self.requests.append(f"{method} {path}")
                self.headers.append(head)
                if method == "GET" and path.startswith("/v1/data/privtab_program"):
                    if path.endswith("/revision"):
                        result = self.program.get("result", {}) if isinstance(self.program, dict) else {}
                        connection.sendall(reply(json.dumps({"result": result.get("revision")})))
                    elif path.endswith("privtab_program") and isinstance(self.program, dict) and self.program:
                        connection.sendall(reply(json.dumps({"result": {SYSTEM: self.program["result"]}})))
                    else:
                        connection.sendall(reply(json.dumps(self.program)))
                elif method == "GET" and path.startswith("/v1/data/privtab_state"):
                    connection.sendall(reply(json.dumps(self.state)))
                else:
                    self.answer(connection, path)


def reply(body: str | bytes, status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def reset(connection: socket.socket) -> None:
    """Close so that the other side sees a reset, not an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.fixture
def raw_server() -> Iterator[Callable[..., RawServer]]:
    """Start a server that answers every POST with `answer(connection, path)`, or with given bytes."""
    listeners: list[socket.socket] = []

    def start(answer: bytes | Callable[[socket.socket, str], None], **more: Any) -> RawServer:
        def send(connection: socket.socket, path: str) -> None:
            if isinstance(answer, bytes):
                connection.sendall(answer)
            else:
                answer(connection, path)

        server = RawServer(answer=send, **more)
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threading.Thread(target=server.serve, args=(listener,), daemon=True).start()
        return server

    yield start
    for listener in listeners:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def http_reply() -> Callable[..., bytes]:
    return reply


@pytest.fixture
def http_reset() -> Callable[[socket.socket], None]:
    return reset
