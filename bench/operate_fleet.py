"""Time from a saved policy to a fleet that decides by it, and back: a registry server, twenty OPA processes, `privtab deploy`.

python bench/operate_fleet.py --sidecars 4 --deploys 3     a quick run of this part only
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from measure import Caller, Report, Spread, Table, WrongAnswerError, markdown

from privtab.engines.opa import binary

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "policy_src" / "gravitino"
CONFIG = ROOT / "opa" / "config-registry.yaml"
SYSTEM, NAME = "gravitino", "1.1.0.yaml"
SIDECARS = 20
DEPLOYS_A_REPETITION = 4
STEPS = ("lint", "state", "tests", "diff", "pack", "put", "release", "watch")
ASKED = {
    "subject": {"type": "user", "id": "alice"},
    "action": {"name": "probe"},
    "resource": {"type": "table", "id": "demo/hive/sales/orders"},
}
"""A request for an operation that is added to the policy and removed again; no scenario covers it, and all still run."""
TABLE, PROBE = "\n  table:\n", "    probe: member (metalake)\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One deployment or rollback, in seconds from its start."""

    activated: tuple[float, ...]
    """Until each sidecar activated it, by the sidecar's own report."""
    ended: float
    """Until the command had seen all activations and ended."""
    steps: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Fleet:
    """The processes, and the policies that are edited."""

    folder: Path
    server: str
    urls: list[str] = field(default_factory=list)

    @property
    def policy(self) -> Path:
        """The policy that is edited, next to its scenarios."""
        return self.folder / "tables" / NAME

    def command(self, *arguments: str) -> tuple[float, dict[str, Any]]:
        """Run a command of privtab; returns the time at which it ended, and its output."""
        given = [
            "--registry",
            str(self.folder / "registry"),
            "--server",
            self.server,
            "--wait",
            f"sidecars={len(self.urls)}",
        ]
        command = [sys.executable, "-m", "privtab", *arguments, *given, "--wait", "seconds=120", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        ended = time.time()
        if done.returncode:
            raise WrongAnswerError(f"{' '.join(arguments[:2])} ended with {done.returncode}: {done.stderr[-500:]}")
        told: dict[str, Any] = json.loads(done.stdout)
        return ended, told

    def activations(self, revision: str, since: float) -> tuple[float, ...]:
        """Seconds until each sidecar activated a revision, by its own report; raises WrongAnswerError if one did not."""
        found = []
        for url in self.urls:
            status = json.loads(Caller(url).read("/v1/status"))["result"]["bundles"]["policy"]
            if status["active_revision"] != revision:
                raise WrongAnswerError(f"{url} runs {status['active_revision']}, not {revision}")
            found.append(datetime.fromisoformat(status["last_successful_activation"]).timestamp() - since)
        return tuple(found)

    def check(self, allowed: bool) -> None:  # noqa: FBT001  (it is the answer)
        """Check the decision of every sidecar; raises WrongAnswerError."""
        wrong = [url for url in self.urls if Caller(url).ask(f"privtab/{SYSTEM}/allow", ASKED) is not allowed]
        if wrong:
            raise WrongAnswerError(f"{len(wrong)} of {len(self.urls)} sidecars decide by something else")


def report(_sizes: Sequence[str], repetitions: int, *, sidecars: int = SIDECARS, deploys: int | None = None) -> Report:
    """Deployments one after the other, each followed by a rollback."""
    deploys = deploys or max(3, DEPLOYS_A_REPETITION * repetitions)
    with fleet(sidecars) as running:
        forward, backward = [], []
        for _ in range(deploys):
            forward.append(_deploy(running))
            backward.append(_rollback(running))
    return Report(
        part="fleet",
        tables=(
            Table(
                title=f"{sidecars} OPA processes on one machine, {deploys} times each, seconds",
                columns=("from → until", "p50", "p99", "most"),
                rows=(
                    _row("table saved → a sidecar decides by it", [s for one in forward for s in one.activated]),
                    _row("table saved → every sidecar decides by it", [max(one.activated) for one in forward]),
                    _row("table saved → `privtab deploy` has seen all of them and ended", [o.ended for o in forward]),
                    _row(
                        "`privtab registry rollback` begins → every sidecar is back",
                        [max(o.activated) for o in backward],
                    ),
                    _row(
                        "`privtab registry rollback` begins → it has seen all of them and ended",
                        [o.ended for o in backward],
                    ),
                ),
            ),
            _steps(forward),
        ),
    )


def _deploy(running: Fleet) -> Round:
    text = running.policy.read_text(encoding="utf-8")
    running.policy.write_text(text.replace(TABLE, TABLE + PROBE, 1), encoding="utf-8")
    saved = time.time()
    ended, told = running.command("deploy", str(running.policy), "--fail-on", "none")
    made = Round(
        activated=running.activations(told["after"]["policy"], saved), ended=ended - saved, steps=told["seconds"]
    )
    running.check(allowed=True)
    running.policy.write_text(text, encoding="utf-8")
    return made


def _rollback(running: Fleet) -> Round:
    begun = time.time()
    ended, told = running.command("registry", "rollback", SYSTEM)
    made = Round(activated=running.activations(told["after"]["policy"], begun), ended=ended - begun)
    running.check(allowed=False)
    return made


def _steps(rounds: Sequence[Round]) -> Table:
    known = [name for name in STEPS if any(name in one.steps for one in rounds)]
    rows = [(name, [1000 * one.steps.get(name, 0.0) for one in rounds]) for name in known]
    told = [sum(one.steps.values()) for one in rounds]
    rows.append(("start of the process, its end", [1000 * (o.ended - t) for o, t in zip(rounds, told, strict=True)]))
    return Table(
        title="The parts of `privtab deploy`, milliseconds: median (min..max)",
        columns=("part", "ms"),
        rows=tuple((name, Spread(values=tuple(values)).text()) for name, values in rows),
    )


def _row(name: str, seconds: Sequence[float]) -> tuple[str, ...]:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]
    return (name, f"{statistics.median(ordered):.2f}", f"{p99:.2f}", f"{ordered[-1]:.2f}")


@contextmanager
def fleet(sidecars: int) -> Iterator[Fleet]:
    """Run a server and its sidecars, all with the shipped policy and state."""
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        shutil.copytree(SOURCE, folder / "tables")
        ports = _ports(1 + sidecars)
        server = f"http://127.0.0.1:{ports[0]}"
        running = Fleet(folder=folder, server=server)
        serve = [sys.executable, "-m", "privtab", "serve", f"registry:{folder / 'registry'}", "--quiet"]
        stack.enter_context(_process([*serve, "--listen", str(ports[0])], {}))
        running.command("deploy", str(running.policy), "--state", str(SOURCE / "state.yaml"))
        for number, port in enumerate(ports[1:], start=1):
            url = f"http://127.0.0.1:{port}"
            environment = {
                "PRIVTAB_REGISTRY_URL": server,
                "PRIVTAB_CHANNEL": "dev",
                "PRIVTAB_SYSTEM": SYSTEM,
                "PRIVTAB_INSTANCE": f"opa-{number}",
                "PRIVTAB_LABELS": "app=bench",
            }
            command = [str(binary.find()), "run", "--server", "--skip-version-check", "--config-file", str(CONFIG)]
            stack.enter_context(_process([*command, "--addr", url.removeprefix("http://")], environment))
            running.urls.append(url)
        _wait(running)
        running.check(allowed=False)
        yield running


def _wait(running: Fleet) -> None:
    deadline = time.monotonic() + 60
    for url in running.urls:
        while True:
            with suppress(OSError, ValueError):
                if json.loads(Caller(url).read("/health?bundles=true")) == {}:
                    break
            if time.monotonic() > deadline:
                raise WrongAnswerError(f"{url} was never ready")
            time.sleep(0.05)


@contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sidecars", type=int, default=SIDECARS)
    parser.add_argument("--deploys", type=int, default=5)
    options = parser.parse_args()
    print(markdown(report((), 1, sidecars=options.sidecars, deploys=options.deploys)))
