"""The stack as `make stack` runs it: from an edited table to a Spark driver that decides by it, and back."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from privtab import AccessDenied, DecisionUnavailable
from privtab.base.request import Decision, Entity, Request
from privtab_server.registry import Registry

PRIVTAB = [sys.executable, "-m", "privtab"]
PATIENCE = 300.0
LOAD = re.compile(r"(^  table:\n(?:.*\n)*?    load:\n(?:      .*\n)*?      requires: ).*$", re.MULTILINE)


@pytest.mark.slow
def test_the_commands_it_prints_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No PATH is needed, and names with spaces are no two words."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    stack = importlib.import_module("stack")
    for place in (ROOT, tmp_path):
        monkeypatch.chdir(place)
        command = stack.typed("describe", "cdap/final", "--format", "json")
        ran = subprocess.run(
            ["/bin/sh", "-c", command], capture_output=True, text=True, check=True, env={"PATH": "/bin"}
        )
        assert json.loads(ran.stdout)["system"] == "cdap"
    assert stack.typed("registry", "status", "--registry", "a b").endswith("privtab registry status --registry 'a b'")


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
    def report(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.folder / "stack.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content

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
        before = self.report["pids"][part]
        os.kill(before, signal.SIGKILL)
        self.wait(lambda: self.report.get("pids", {}).get(part) not in {None, before})

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        running = self.report
        options = [
            "--registry",
            running["registry"],
            "--server",
            running["server"],
            "--wait",
            "sidecars=2",
            "--wait",
            "seconds=100",
        ]
        done = subprocess.run([*PRIVTAB, command, *arguments, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


CASE = "{user: eve, action: load, resource: 'table:m/c/s/t', decision: deny, why: nobody gave her anything}"
"""A scenario, without which nothing is deployed."""


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
    for stack in started:
        if stack.process.poll() is None:
            stack.process.terminate()
            stack.process.wait(60)


@pytest.mark.slow
@pytest.mark.spark
def test_from_an_edited_table_to_the_spark_driver_and_back(stack: Callable[..., Stack], tmp_path: Path) -> None:
    policy = tmp_path / "gravitino.yaml"
    text = (ROOT / "policy_src" / "gravitino" / "1.1.0.yaml").read_text(encoding="utf-8")
    policy.write_text(text, encoding="utf-8")
    case = CASE.replace("load", "drop")
    (tmp_path / "gravitino.scenarios.yaml").write_text(f"scenarios: 1\ncases: [{case}]\n", encoding="utf-8")
    edited = LOAD.sub(r"\g<1>anyone", text, count=1)
    assert edited != text

    running = stack("--policy", str(policy), "--restart")
    running.says("bob may not read")
    assert "alice reads 3 rows" in running.log
    pids = running.report["pids"]
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

    assert Registry.open(running.report["registry"]).channel("dev", "gravitino").why == "rollback"

    pids = running.report["pids"]
    assert running.end() == 0
    assert not [name for name, pid in pids.items() if alive(pid)]
    assert not running.report


JOB = """\
import os
from privtab import Client

with Client(os.environ["OPA_URL"], system="gravitino") as client:
    print("alice", client.check("alice", "load", "table:demo/hive/sales/orders"), os.environ["PRIVTAB_ROUNDS"], "round")
"""


@pytest.mark.slow
def test_once_ends_with_the_job(stack: Callable[..., Stack], tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB, encoding="utf-8")
    tables = ("--policy", str(small(tmp_path)), "--state", str(tmp_path / "state.yaml"))
    running = stack("--sidecars", "1", "--once", "--job", str(job), *tables)
    assert running.process.wait(PATIENCE) == 0, running.log
    assert "there is no registry at" in running.log, "the server was there before it"
    assert "alice True 1 round" in running.log
    assert "job is done" in running.log


def test_the_job_ends_after_its_rounds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A round in which nobody answered is none."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setenv("PRIVTAB_EVERY", "0.01")
    job = importlib.import_module("stack_job")
    users: list[str] = []

    class Client:
        def require(self, user: str, *_: object) -> None:
            users.append(user)
            if len(users) <= 2:
                raise DecisionUnavailable("not yet")
            request = Request(user=user, action="load", resource=Entity("table", "t"))
            raise AccessDenied(request, Decision(allowed=False, context={"rule": "gravitino/table/load"}))

    job.follow(None, Client(), "", threading.Event(), rounds=2)
    assert users == ["alice", "bob"] * 3
    printed = capsys.readouterr().out
    assert printed.count("waits: DecisionUnavailable") == 2
    assert printed.count("may not read demo/hive/sales/orders: refused by gravitino/table/load") == 2


@pytest.mark.slow
def test_a_part_that_dies_ends_the_others(stack: Callable[..., Stack], tmp_path: Path) -> None:
    running = stack("--policy", str(small(tmp_path)), "--state", str(tmp_path / "state.yaml"), "--sidecars", "1")
    running.wait(lambda: running.report.get("ready"))
    pids = running.report["pids"]
    os.kill(pids["registry"], signal.SIGKILL)
    assert running.process.wait(60) == 1
    assert "registry ended with -9: all parts end" in running.log
    assert not [name for name, pid in pids.items() if alive(pid)]


@pytest.mark.slow
def test_a_policy_that_cannot_be_deployed_is_not_started(stack: Callable[..., Stack], tmp_path: Path) -> None:
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
    (folder / "small.scenarios.yaml").write_text(f"scenarios: 1\ncases: [{CASE}]\n", encoding="utf-8")
    (folder / "state.yaml").write_text(
        'grants: [{grantee: "user:alice", effect: allow, privilege: READ, entity: "table:demo/hive/sales/orders"}]\n',
        encoding="utf-8",
    )
    return policy
