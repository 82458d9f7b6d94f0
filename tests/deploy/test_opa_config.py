"""opa/config.yaml, as a sidecar runs it: a real OPA, a real static server, bundles as `privtab compile` writes them."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from checkout import ROOT

from privtab import Client, DecisionError
from privtab.command._app import run
from privtab.engines.opa import binary

STATE = {
    "alice": 'grants: [{grantee: "user:alice", effect: allow, privilege: READ, entity: "dataset:i/n/d"}]\n',
    "bob": 'grants: [{grantee: "user:bob", effect: allow, privilege: READ, entity: "dataset:i/n/d"}]\n',
}
ASKED = ("get", "dataset:i/n/d")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class calls it so
        del format, args


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """build/ with the bundles of cdap/final and a state in which alice may read a dataset."""
    state = tmp_path / "state.yaml"
    state.write_text(STATE["alice"], encoding="utf-8")
    policy = ROOT / "policy_src" / "cdap" / "final.yaml"
    assert run(["compile", str(policy), "-o", str(tmp_path / "build"), "--state", str(state)]) == 0
    return tmp_path / "build"


@pytest.fixture
def bundles(build: Path) -> Iterator[str]:
    """A static server for build/."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(build)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def opa(bundles: str, tmp_path: Path) -> Iterator[Client]:
    """OPA with the shipped configuration, its variables set as docker-compose.yml sets them."""
    port = free_port()
    variables = {"PRIVTAB_BUNDLES_URL": bundles, "PRIVTAB_POLICY": "cdap/final", "PRIVTAB_POLL_SECONDS": "1"}
    command = [str(binary.find()), "run", "--server", "--skip-version-check", "--addr", f"127.0.0.1:{port}"]
    with (tmp_path / "opa.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--config-file", str(ROOT / "opa" / "config.yaml")],
            env={**os.environ, **variables},
            stdout=log,
            stderr=log,
        )
    with Client(f"http://127.0.0.1:{port}", system="cdap") as client:
        deadline = time.monotonic() + 20
        while not client.health():
            assert process.poll() is None, (tmp_path / "opa.log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "opa.log").read_text()
            time.sleep(0.05)
        yield client
    process.terminate()
    process.wait(10)


def test_the_sidecar_decides_by_the_served_bundles(opa: Client, tmp_path: Path) -> None:
    assert opa.check("alice", *ASKED) is True
    assert opa.check("bob", *ASKED) is False
    log = (tmp_path / "opa.log").read_text()
    assert '"path":"privtab/cdap/check"' in log, "decisions are logged"


@pytest.mark.slow
def test_a_newer_state_is_taken_over_without_a_restart(opa: Client, build: Path, tmp_path: Path) -> None:
    assert opa.check("bob", *ASKED) is False
    state = tmp_path / "state.yaml"
    state.write_text(STATE["bob"], encoding="utf-8")
    # The static server tells versions apart by whole seconds.
    time.sleep(1.1)
    policy = str(ROOT / "policy_src" / "cdap" / "final.yaml")
    bundle = build / "cdap" / "final" / "state.tar.gz"
    assert run(["state", "pack", str(state), "--policy", policy, "-o", str(bundle)]) == 0
    deadline = time.monotonic() + 20
    while not opa.check("bob", *ASKED):
        assert time.monotonic() < deadline, "the new state never came"
        time.sleep(0.1)
    assert opa.check("alice", *ASKED) is False


def test_without_bundles_nothing_is_ever_allowed(tmp_path: Path) -> None:
    port = free_port()
    variables = {
        "PRIVTAB_BUNDLES_URL": "http://127.0.0.1:9",
        "PRIVTAB_POLICY": "cdap/final",
        "PRIVTAB_POLL_SECONDS": "1",
    }
    command = [str(binary.find()), "run", "--server", "--skip-version-check", "--addr", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [*command, "--config-file", str(ROOT / "opa" / "config.yaml")],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 20
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with Client(f"http://127.0.0.1:{port}", system="cdap") as client:
            assert client.health() is False
            with pytest.raises(DecisionError):
                client.check("alice", *ASKED)
    finally:
        process.terminate()
        process.wait(10)
