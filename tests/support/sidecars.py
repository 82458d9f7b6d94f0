"""Real OPA processes that fetch their bundles from a registry server."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from privtab.engines.opa import binary


def configuration(
    url: str,
    *,
    instance: str = "",
    labels: str = "",
    channel: str = "dev",
    system: str = "shop",
    files: Mapping[str, str] | None = None,
    token: str = "",
    authority: Path | None = None,
    wait: int | None = 20,
    headers: Mapping[str, str] | None = None,
    **polling_more: Any,
) -> dict[str, Any]:
    """The configuration of a sidecar with its bundles (name → file), status and decision logs, all at one server."""
    service: dict[str, Any] = {"url": url, "response_header_timeout_seconds": 5, "headers": dict(headers or {})}
    if instance:
        service["headers"] |= {"X-Privtab-Instance": instance, "X-Privtab-Labels": labels}
    if token:
        service["credentials"] = {"bearer": {"token": token}}
    if authority:
        service["tls"] = {"ca_cert": str(authority)}
    polling: dict[str, Any] = {"min_delay_seconds": 1, "max_delay_seconds": 1, **polling_more}
    if wait is not None:
        polling["long_polling_timeout_seconds"] = wait
    files = {"policy": "policy.tar.gz", "state": "state.tar.gz"} if files is None else files
    return {
        "services": {"registry": service},
        "bundles": {
            name: {"service": "registry", "resource": f"/channels/{channel}/{system}/{file}", "polling": polling}
            for name, file in files.items()
        },
        "status": {"service": "registry"},
        "decision_logs": {"service": "registry", "reporting": {"min_delay_seconds": 1, "max_delay_seconds": 1}},
    }


@dataclass
class Opa:
    """A running OPA."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    session: requests.Session = field(default_factory=requests.Session)

    def __post_init__(self) -> None:
        self.session.trust_env = False

    def data(self, path: str = "") -> Any:
        return self.session.get(f"{self.url}/v1/data/{path}", timeout=5).json().get("result")

    def status(self) -> Any:
        return self.session.get(f"{self.url}/v1/status", timeout=5).json().get("result")

    def revision(self, name: str = "policy") -> str | None:
        found = ((self.status() or {}).get("bundles") or {}).get(name) or {}
        return found.get("active_revision")

    def allows(self, user: str, operation: str, path: str, system: str = "shop") -> bool:
        request = {
            "subject": {"type": "user", "id": user},
            "action": {"name": operation},
            "resource": {"type": "item", "id": path},
        }
        answer = self.session.post(f"{self.url}/v1/data/privtab/{system}/allow", json={"input": request}, timeout=5)
        return bool(answer.json().get("result"))

    def stop(self) -> None:
        self.session.close()
        # Skip its grace period, since there are no callers.
        self.process.kill()
        self.process.wait()


def start(folder: Path, config: Mapping[str, Any]) -> Opa:
    """Start an OPA and wait until it answers; its bundles may not be active yet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    number = len(list(folder.glob("opa-*.log")))
    settings, log = folder / f"opa-{number}.json", folder / f"opa-{number}.log"
    settings.write_text(json.dumps(config), encoding="utf-8")
    command = [str(binary.find()), "run", "--server", "--skip-version-check", "--addr", f"127.0.0.1:{port}"]
    command += ["--config-file", str(settings), "--log-level", "info", "--shutdown-grace-period", "1"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    opa = Opa(url=f"http://127.0.0.1:{port}", process=process, log=log)

    def answers() -> bool:
        with contextlib.suppress(requests.ConnectionError):
            return opa.session.get(f"{opa.url}/health", timeout=5).ok
        return False

    until(answers, 20)
    return opa


def until(holds: Callable[[], object], seconds: float = 20.0) -> float:
    """Wait until something holds; returns the seconds it took."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < seconds, f"not within {seconds:g} seconds"
        time.sleep(0.02)
    return time.monotonic() - started


@contextlib.contextmanager
def running(folder: Path, *configs: Mapping[str, Any]) -> Iterator[list[Opa]]:
    """Run OPAs with these configurations."""
    started: list[Opa] = []
    try:
        for config in configs:
            started.append(start(folder, config))  # noqa: PERF401  (those already started must be stopped if one fails)
        yield started
    finally:
        for opa in started:
            opa.stop()
