"""The stack of docker-compose.yml without containers: real processes, free ports, one log.

A registry server, OPA sidecars that follow a channel of it, and a Spark job that asks the first of them:

    python examples/stack.py [--policy FILE] [--state FILE] [--job FILE] [--folder DIR] [--sidecars N] [--once] [--restart]

It ends on Ctrl-C, on SIGTERM, and when a part ends that should not; then all other parts end, too. `--restart` starts a
part again, as containers are. `--once` ends with the job, after it has asked once. What runs where stands in
`stack.json` of the folder; the registry in it stays from one run to the next, unless the folder is a temporary one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.text import Text

from privtab.base.errors import PrivtabError
from privtab.command import Terminal
from privtab.engines.opa import binary
from privtab.pipeline import load_program
from privtab_testing.scenarios.collect import plans

ROOT = Path(__file__).resolve().parent.parent
CHANNEL = "dev"
GRACE = 8.0
"""Seconds that a part has to end by itself."""
COLOURS = ("cyan", "green", "magenta", "yellow", "blue")
HUSH = '"level":"info"'
"""Of OPA's own log only what is no routine is shown; decisions are counted at the server."""

console = Terminal(highlight=False, emoji=False, markup=False, soft_wrap=True)


@dataclass(kw_only=True)
class Part:
    """One process: how it is started, whether it may end, and the process while it runs."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    ends: bool = False
    """Whether it is done at some time."""
    process: subprocess.Popen[str] | None = None
    started: float = 0.0


class Stack:
    """The parts and their log. Whatever happens, `end` leaves nothing running."""

    def __init__(self, folder: Path, *, restart: bool) -> None:
        self.folder = folder
        self.restart = restart
        self.parts: list[Part] = []
        self.told: dict[str, object] = {"folder": str(folder)}
        self.stopping = threading.Event()
        self._events: queue.Queue[tuple[Part, subprocess.Popen[str]] | None] = queue.Queue()

    def start(self, part: Part) -> None:
        """Start a part, and its lines in the log."""
        if part not in self.parts:
            self.parts.append(part)
        part.started = time.monotonic()
        part.process = subprocess.Popen(
            part.command,
            env={**os.environ, **part.environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C comes to us alone: the parts end in their order.
            start_new_session=True,
        )
        threading.Thread(target=self._follow, args=(part, part.process), daemon=True).start()
        self.write()

    def _follow(self, part: Part, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            # At the end each complains of those that ended before it.
            if HUSH not in line and not (self.stopping.is_set() and line.startswith("{")):
                self.log(part, line.rstrip())
        process.wait()
        self._events.put((part, process))

    def log(self, part: Part | None, line: str) -> None:
        """One line of the one log."""
        number = self.parts.index(part) if part in self.parts else -1
        prefix = f"{part.name if part else 'stack':<9}│ "
        console.print(Text.assemble((prefix, COLOURS[number % len(COLOURS)] if part else "bold"), line))

    def write(self) -> None:
        """What runs where, for people and tests."""
        pids = {part.name: part.process.pid for part in self.parts if part.process and part.process.poll() is None}
        staged = self.folder / ".stack.json"
        staged.write_text(json.dumps(self.told | {"pids": pids}, indent=1) + "\n", encoding="utf-8")
        staged.replace(self.folder / "stack.json")

    def run(self) -> int:
        """Until something ends that should not, the job is done, or somebody says so; the exit code."""
        while True:
            event = self._events.get()
            if event is None:
                return 0
            part, process = event
            if self.stopping.is_set() or process is not part.process:
                continue
            code = process.returncode
            if part.ends and code == 0:
                self.log(None, f"{part.name} is done")
                return 0
            if not self.restart:
                self.log(None, f"{part.name} ended with {code}: all parts end")
                return 1
            self.log(None, f"{part.name} ended with {code}: it is started again")
            # Who ends at once is not started a hundred times a second.
            self.stopping.wait(max(0.2, 1.0 - (time.monotonic() - part.started)))
            if not self.stopping.is_set():
                self.start(part)

    def stop(self) -> None:
        """Let `run` return; safe in a signal handler."""
        self.stopping.set()
        self._events.put(None)

    def end(self) -> None:
        """End every part, the last one first."""
        self.stopping.set()
        for part in reversed(self.parts):
            process = part.process
            if process is None or process.poll() is not None:
                continue
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self.log(part, "does not end: it is killed")
            # What it has started itself (Spark's JVM) is in its session.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        (self.folder / "stack.json").unlink(missing_ok=True)


def main() -> int:
    """Start the parts in their order, and stay until the end."""
    options = arguments()
    with contextlib.ExitStack() as closing:
        if options.folder is None:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="privtab-stack-")))
        else:
            folder = options.folder.resolve()
            folder.mkdir(parents=True, exist_ok=True)
        stack = Stack(folder, restart=options.restart)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stack.stop())
        try:
            return build(stack, options)
        except (Trouble, PrivtabError) as trouble:
            for line in str(trouble).splitlines():
                stack.log(None, line)
            return 0 if stack.stopping.is_set() else 3
        finally:
            stack.end()


class Trouble(Exception):
    """A part did not become ready."""


def build(stack: Stack, options: argparse.Namespace) -> int:
    """The wiring, in the order in which the parts need each other."""
    registry = stack.folder / "registry"
    ports = free_ports(1 + options.sidecars)
    server = f"http://127.0.0.1:{ports[0]}"
    privtab = [sys.executable, "-m", "privtab"]
    stack.told |= {"registry": str(registry), "server": server, "channel": CHANNEL}
    command = [*privtab, "serve", f"registry:{registry}", "--listen", str(ports[0]), "--quiet"]
    stack.start(Part(name="registry", command=command))
    wait(stack, f"{server}/health", "the registry server")

    deploy = [*privtab, "deploy", options.policy, "--registry", str(registry), "--channel", CHANNEL]
    deploy += ["--state", options.state, "--fail-on", "none", "--why", "the stack was started"]
    if not any(plan.files for plan in plans([options.policy])):
        deploy += ["--accept", "untested=there are no scenarios beside this policy"]
    stack.log(None, typed(*deploy[3:]))
    done = subprocess.run(deploy, capture_output=True, text=True, check=False)
    for line in (done.stdout + done.stderr).splitlines():
        stack.log(None, line)
    if done.returncode:
        raise Trouble(f"the first deployment ended with {done.returncode}")

    system = load_program(options.policy).system
    urls = [f"http://127.0.0.1:{port}" for port in ports[1:]]
    stack.told |= {"opa": urls, "system": system}
    for number, url in enumerate(urls, start=1):
        stack.start(sidecar(f"opa-{number}", url, server, system, zone="abcdefgh"[(number - 1) % 8]))
    for number, url in enumerate(urls, start=1):
        wait(stack, f"{url}/health?bundles=true", f"opa-{number}")
    rounds = {"PRIVTAB_ROUNDS": "1"} if options.once else {}
    job = [sys.executable, options.job]
    stack.start(Part(name="job", command=job, environment={"OPA_URL": urls[0], **rounds}, ends=options.once))
    stack.log(None, f"everything runs; OPA at {', '.join(urls)}. Change the tables, and then:")
    place = ["--registry", str(registry), "--server", server]
    for words in (["deploy", options.policy], ["registry", "rollback", system], ["registry", "status"]):
        stack.log(None, f"  {typed(*words, *place)}")
    stack.told["ready"] = True
    stack.write()
    return stack.run()


def typed(*words: str) -> str:
    """A command line of privtab as a shell takes it: by the program of this environment, which need not be on PATH."""
    program = Path(sys.executable).with_name("privtab")
    here = Path.cwd()
    shown = program.relative_to(here) if program.is_relative_to(here) else program
    return shlex.join([str(shown), *words])


def sidecar(name: str, url: str, server: str, system: str, zone: str) -> Part:
    """An OPA with the configuration that the containers have."""
    address = url.removeprefix("http://")
    command = [str(binary.find()), "run", "--server", "--addr", address, "--skip-version-check"]
    command += ["--config-file", str(ROOT / "opa" / "config-registry.yaml"), "--shutdown-grace-period", "2"]
    environment = {
        "PRIVTAB_REGISTRY_URL": server,
        "PRIVTAB_CHANNEL": CHANNEL,
        "PRIVTAB_SYSTEM": system,
        "PRIVTAB_INSTANCE": name,
        "PRIVTAB_LABELS": f"app=stack,zone={zone}",
    }
    return Part(name=name, command=command, environment=environment)


def wait(stack: Stack, url: str, what: str, seconds: float = 30.0) -> None:
    """Until something answers with 200; raises Trouble."""
    deadline = time.monotonic() + seconds
    while not answers(url):
        if stack.stopping.is_set():
            raise Trouble("stopped")
        part = stack.parts[-1]
        if part.process is not None and part.process.poll() is not None:
            time.sleep(0.2)  # its last words
            raise Trouble(f"{part.name} ended with {part.process.returncode}")
        if time.monotonic() > deadline:
            raise Trouble(f"{what} was not ready after {seconds:g} seconds")
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Whether somebody says 200 there."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at just now."""
    with contextlib.ExitStack() as held:
        found = []
        for _ in range(count):
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found.append(int(probe.getsockname()[1]))
        return found


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--policy", default="gravitino/1.1.0", help="a policy by name or path")
    parser.add_argument("--state", default=str(ROOT / "policy_src" / "gravitino" / "state.yaml"))
    parser.add_argument("--job", default=str(ROOT / "examples" / "stack_job.py"), help="what asks; it finds $OPA_URL")
    parser.add_argument("--folder", type=Path, help="where the registry is kept; a temporary one where left off")
    parser.add_argument("--sidecars", type=int, default=2, choices=range(1, 9), metavar="N")
    parser.add_argument("--once", action="store_true", help="end when the job has asked once")
    parser.add_argument("--restart", action="store_true", help="start parts again that end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
