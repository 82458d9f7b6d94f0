"""A registry, its server and OPA sidecars with the shipped configuration: real processes that can be killed and restarted."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests
from checkout import ROOT
from failing_servers import free_port

from privtab.engines.opa import binary

CONFIG = ROOT / "opa" / "config-registry.yaml"
POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {site: {store: {item:}}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {creator: true}}
tables:
  item:
    read: READ (item)
    write: WRITE (item)
"""
WIDER = POLICY.replace("read: READ (item)", "read: READ (item) or owner (item)")
STATE = """\
grants:
  - {grantee: user:ann, effect: allow, privilege: READ, entity: site:s}
owners:
  - {entity: item:s/a/i, owner: user:olga}
"""
SCENARIOS = """\
scenarios: 1
cases:
  - {user: eve, action: read, resource: "item:s/a/i", decision: deny, why: nobody gave her anything}
"""
"""A deployment needs scenarios; this one passes for every policy of these tests."""
ITEM = "item:s/a/i"


@dataclass
class SidecarFleet:
    """A folder with a policy and a state, a registry, a server, and sidecars by name; a context manager."""

    folder: Path
    extra: tuple[str, ...] = ()
    """Additional options of the server."""
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policy.write_text(POLICY, encoding="utf-8")
        self.policy.with_name("shop.scenarios.yaml").write_text(SCENARIOS, encoding="utf-8")
        self.state.write_text(STATE, encoding="utf-8")

    @property
    def policy(self) -> Path:
        return self.folder / "shop.yaml"

    @property
    def state(self) -> Path:
        return self.folder / "state.yaml"

    @property
    def registry(self) -> str:
        return str(self.folder / "registry")

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self.processes):
            # Skip their grace period, since there are no callers.
            self.end(name, kill=True)

    def serve(self) -> None:
        command = [sys.executable, "-m", "privtab", "serve", f"registry:{self.registry}", "--listen", str(self.port)]
        self._start("server", [*command, "--quiet", *self.extra])
        self.wait(lambda: answers(f"{self.server}/health"))

    def sidecar(self, name: str, labels: str = "zone=a", *, system: str = "shop", **environment: str) -> str:
        port = int(self.urls[name].rpartition(":")[2]) if name in self.urls else free_port()
        command = [str(binary.find()), "run", "--server", "--skip-version-check", "--addr", f"127.0.0.1:{port}"]
        settings = {
            "PRIVTAB_REGISTRY_URL": self.server,
            "PRIVTAB_CHANNEL": "dev",
            "PRIVTAB_SYSTEM": system,
            "PRIVTAB_INSTANCE": name,
            "PRIVTAB_LABELS": labels,
        }
        self._start(name, [*command, "--config-file", str(CONFIG)], **{**settings, **environment})
        self.urls[name] = f"http://127.0.0.1:{port}"
        self.wait(lambda: answers(f"{self.urls[name]}/health"))
        return self.urls[name]

    def end(self, name: str, *, kill: bool = False) -> None:
        process = self.processes.pop(name)
        if kill:
            process.kill()
        else:
            process.terminate()
        process.wait(20)

    def decides(self, name: str, user: str, action: str = "read") -> Any:
        """The decision of a sidecar; None if it is undefined."""
        request = {
            "subject": {"type": "user", "id": user},
            "action": {"name": action},
            "resource": {"type": "item", "id": ITEM.partition(":")[2]},
        }
        with session() as http:
            answer = http.post(f"{self.urls[name]}/v1/data/privtab/shop/allow", json={"input": request}, timeout=5)
        return answer.json().get("result")

    def reported(self) -> dict[str, Any]:
        with session() as http:
            found: dict[str, Any] = http.get(f"{self.server}/fleet", timeout=5).json()
        return found

    def wait(self, condition: Callable[[], object], seconds: float = 40.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.03)

    def logs(self) -> str:
        texts = [f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*.log")]
        return "\n".join(texts)

    def _start(self, name: str, command: list[str], **environment: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


@contextlib.contextmanager
def session() -> Iterator[requests.Session]:
    with requests.Session() as http:
        http.trust_env = False
        yield http


def answers(url: str) -> bool:
    with session() as http, contextlib.suppress(requests.RequestException):
        return http.get(url, timeout=2).ok
    return False


def outcome(text: str) -> dict[str, Any]:
    """The output of a command with `--format json`."""
    document: dict[str, Any] = json.loads(text)
    return document
