"""The stack as `make stack` runs it: from an edited table to a Spark driver that decides by it, and back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRIVTAB = [sys.executable, "-m", "privtab"]
PATIENCE = 150.0
LOAD = re.compile(r"(^  table:\n(?:.*\n)*?    load:\n(?:      .*\n)*?      requires: ).*$", re.MULTILINE)


class Stack:
    """A running stack, its log and what it tells of itself."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self.folder = folder / "stack"
        self.path = folder / "stack.log"
        command = [sys.executable, str(ROOT / "examples" / "stack.py"), "--folder", str(self.folder), *options]
        with self.path.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PRIVTAB_EVERY": "0.3", **environment}
            )

    @property
    def log(self) -> str:
        return self.path.read_text(encoding="utf-8", errors="replace")

    @property
    def told(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = json.loads((self.folder / "stack.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return told

    def wait(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log[-6000:]
            time.sleep(0.05)

    def says(self, line: str, since: int = 0) -> None:
        self.wait(lambda: line in self.log[since:])

    def kill(self, part: str) -> None:
        """Kill a part, and wait until it runs again."""
        before = self.told["pids"][part]
        os.kill(before, signal.SIGKILL)
        self.wait(lambda: self.told.get("pids", {}).get(part) not in {None, before})

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        told = self.told
        given = ["--registry", told["registry"], "--server", told["server"], "--expect", "2", "--timeout", "100"]
        done = subprocess.run([*PRIVTAB, command, *arguments, *given], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be looked at does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return not Path("/proc").exists()
        return False


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Starts stacks in the test's folder; those that run still are ended."""
    started: list[Stack] = []

    def start(*options: str, **environment: str) -> Stack:
        started.append(Stack(tmp_path, *options, **environment))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(60)


@pytest.mark.slow
@pytest.mark.spark
def test_from_an_edited_table_to_the_spark_driver_and_back(stack: Callable[..., Stack], tmp_path: Path) -> None:
    policy = tmp_path / "gravitino.yaml"
    text = (ROOT / "policy_src" / "gravitino" / "1.1.0.yaml").read_text(encoding="utf-8")
    policy.write_text(text, encoding="utf-8")
    edited = LOAD.sub(r"\g<1>anyone", text, count=1)
    assert edited != text

    running = stack("--policy", str(policy), "--restart")
    running.says("bob may not read")
    assert "alice reads 3 rows" in running.log
    pids = running.told["pids"]
    assert set(pids) == {"registry", "opa-1", "opa-2", "job"}

    running.kill("registry")
    policy.write_text(edited, encoding="utf-8")
    deployed = running.run("deploy", str(policy), "--fail-on", "none", "--why", "open to all")
    assert "2 of 2 sidecars active" in deployed.stderr
    running.says("bob reads 3 rows")

    before = len(running.log)
    running.kill("opa-1")
    back = running.run("rollback", "gravitino")
    assert "2 of 2 sidecars active" in back.stderr
    running.says("bob may not read", before)

    history = json.loads(running.run("rollback", "gravitino", "--to", "1", "--format", "json").stdout)
    assert history["before"]["why"] == "rollback"

    pids = running.told["pids"]
    assert running.end() == 0
    assert not [name for name, pid in pids.items() if alive(pid)]
    assert not running.told


@pytest.mark.slow
@pytest.mark.spark
def test_once_ends_with_the_job(stack: Callable[..., Stack]) -> None:
    running = stack("--sidecars", "1", "--once", "--policy", str(ROOT / "policy_src/gravitino/1.1.0.yaml"))
    assert running.process.wait(PATIENCE) == 0, running.log
    assert "alice reads 3 rows" in running.log
    assert "job is done" in running.log


def test_a_part_that_dies_ends_the_others(stack: Callable[..., Stack], tmp_path: Path) -> None:
    running = stack("--policy", str(small(tmp_path)), "--state", str(tmp_path / "state.yaml"), "--sidecars", "1")
    running.wait(lambda: running.told.get("ready"))
    pids = running.told["pids"]
    os.kill(pids["registry"], signal.SIGKILL)
    assert running.process.wait(60) == 1
    assert "registry ended with -9: all parts end" in running.log
    assert not [name for name, pid in pids.items() if alive(pid)]


def test_what_cannot_be_deployed_is_not_started(stack: Callable[..., Stack], tmp_path: Path) -> None:
    policy = small(tmp_path)
    policy.write_text(policy.read_text(encoding="utf-8").replace("READ (table)", "REED (table)"), encoding="utf-8")
    running = stack("--policy", str(policy), "--state", str(tmp_path / "state.yaml"))
    assert running.process.wait(60) == 3
    assert "unknown privilege" in running.log


def small(folder: Path) -> Path:
    """A policy that is read at once, of the system that the job asks about."""
    policy = folder / "small.yaml"
    policy.write_text(
        "privtab: 1\nsystem: gravitino\nversion: small\n"
        "entities: {metalake: {catalog: {schema: {table:}}}}\nprivileges: [READ]\n"
        "tables:\n  table:\n    load: READ (table)\n",
        encoding="utf-8",
    )
    (folder / "state.yaml").write_text(
        'grants: [{grantee: "user:alice", effect: allow, privilege: READ, entity: "table:demo/hive/sales/orders"}]\n',
        encoding="utf-8",
    )
    return policy
