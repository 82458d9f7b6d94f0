from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from privtab import Client, DecisionUnavailable
from privtab.engines.opa import binary

MAIN = "from privtab.command import main; main()"


def test_path_prints_the_opa_that_is_used(privtab: Callable[..., Any]) -> None:
    ran = privtab("opa", "path")
    assert (ran.code, ran.out) == (0, f"{binary.find()}\n")


def test_an_installed_opa_is_not_installed_again(privtab: Callable[..., Any]) -> None:
    for words in (["install"], ["path", "--install"], ["install", "--require-built"]):
        ran = privtab("opa", *words)
        assert (ran.code, ran.out) == (0, f"{binary.find()}\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_serves_the_policy_until_it_is_stopped(policy: Path, state: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", MAIN, "opa", "run", "-p", str(policy), "-s", str(state), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        curl = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line + (process.stderr.read() if process.stderr and process.poll() is not None else "")
        with Client(found[0]) as client:
            assert client.check("ann", "read", "item:s/a/x")
            assert not client.check("cleo", "read", "item:s/a/x")
        completed = subprocess.run(["/bin/sh", "-c", curl], check=True, capture_output=True, text=True, timeout=30)
        assert '"rule":"shop/store/' in completed.stdout
    finally:
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    with Client(found[0], system="shop", timeout=1) as client, pytest.raises(DecisionUnavailable):
        client.check("ann", "read", "item:s/a/x")


class Running:
    """`privtab opa run` as a process: its lines as they come, and the OPA that it started."""

    def __init__(self, *options: str | Path) -> None:
        command = [sys.executable, "-c", MAIN, "opa", "run", *map(str, options)]
        # As most users have it: what is not flushed is not seen in a pipe.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self.until(r"at (http://\S+);")

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def until(self, pattern: str, seconds: float = 60) -> str:
        """What a pattern finds in what has been printed, once it is there."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, "".join(self.lines))):
            assert time.monotonic() < deadline, self.lines
            time.sleep(0.05)
        return found[found.lastindex or 0]

    def opa(self) -> int:
        """The process of OPA."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        [found] = [int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text().strip() == "opa"]
        return found

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    """Starts `privtab opa run`; what still runs at the end is killed."""
    started: list[Running] = []

    def start(*options: str | Path) -> Running:
        started.append(Running(*options))
        return started[-1]

    yield start
    for command in started:
        command.process.kill()
        command.process.wait()


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, 137), (signal.SIGTERM, 0)])
def test_run_ends_with_its_opa_and_says_why(
    policy: Path, state: Path, running: Callable[..., Running], number: signal.Signals, code: int
) -> None:
    run = running("-p", policy, "-s", state, "--port", "0")
    os.kill(run.opa(), number)
    assert run.process.wait(30) == code
    run.until(r"OPA ended by signal 9 \(SIGKILL\)" if code else r"OPA ended with exit code 0")
    assert "Traceback" not in "".join(run.lines)


@pytest.mark.slow
@needs_proc
def test_run_restarts_opa_on_request(policy: Path, state: Path, running: Callable[..., Running]) -> None:
    run = running("-p", policy, "-s", state, "--port", "0", "--restart")
    for times in (1, 2):
        before = run.opa()
        os.kill(before, signal.SIGKILL)
        run.until(rf"(?s)(SIGKILL.*OPA was started again at {re.escape(run.url)}.*){{{times}}}")
        assert run.opa() != before
        with Client(run.url) as client:
            assert client.check("ann", "read", "item:s/a/x")
    assert run.end() == 0


def test_a_busy_port_is_named_before_anything_else(privtab: Callable[..., Any], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = privtab("opa", "run", "-p", tmp_path / "none.yaml", "--port", port)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == f"privtab: port {port} of 127.0.0.1 is taken: give another, or 0 for a free one\n"


@pytest.mark.slow
def test_an_edited_policy_and_state_are_reloaded_and_broken_ones_are_not(
    policy: Path, state: Path, running: Callable[..., Running]
) -> None:
    run = running("-p", policy, "-s", state, "--port", "0", "--watch")
    with Client(run.url, system="shop") as client:
        assert not client.check("cleo", "read", "item:s/a/x")
        good, rows = policy.read_text(), state.read_text()
        state.write_text(rows + '  - {entity: "item:s/a/x", owner: "user:cleo"}\n')
        run.until(r"reloaded: policy \w+, state \w+")
        assert client.check("cleo", "read", "item:s/a/x")

        policy.write_text(good.replace("READ (item)", "REED (item)"))
        run.until(r"(?s)unknown privilege `REED`.*not reloaded")
        assert client.check("cleo", "read", "item:s/a/x")

        policy.write_text(good.replace("READ (item) or owner (shelf, item)", "WRITE (item)"))
        run.until(r"(?s)(reloaded: policy \w+, state \w+.*){2}")
        assert not client.check("cleo", "read", "item:s/a/x")

        state.write_text("grants: [{")
        run.until(r"(?s)(not reloaded.*){2}")
        state.unlink()
        run.until(r"(?s)(not reloaded.*){3}")
        assert client.check("ann", "open", "store:s") is False
    assert run.end() == 0


def test_the_line_to_try_is_one_that_a_shell_takes(tmp_path: Path, running: Callable[..., Running]) -> None:
    policy = tmp_path / "it's.yaml"
    policy.write_text(
        'privtab: 1\nsystem: shop\nversion: "1"\nentities: {store: }\nprivileges: [READ]\n'
        "semantics: {inheritance: none, deny: none}\ntables: {store: {open: READ (store)}}\n"
    )
    run = running("-p", policy, "--port", "0")
    command = run.until(r"(curl .*)\n")
    completed = subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True, text=True, timeout=30)
    assert '"decision":false' in completed.stdout
