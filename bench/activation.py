"""Time and memory that OPA takes to load bundles of generated policies, as whole processes: one module for each package, and one for each type."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from compile import policy_text
from measure import Report, Spread, Table, Target

from privtab.bundle import PolicyArtifacts
from privtab.engines.opa import binary
from privtab.pipeline import load_program, policy_artifacts

ROWS = (1_000, 5_000)
ONE, EACH = "one module", "a module for each type"
_BLOCK = re.compile(r"^# METADATA$", re.MULTILINE)
_TYPE = re.compile(r'^#     row: "(\w+)/', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Costs of a process: processor time and wall time in seconds, and the most memory in MiB."""

    processor: float
    wall: float
    memory: float


def report(_sizes: Sequence[str], repetitions: int) -> Report:
    """Load each bundle in turn, `repetitions` times."""
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        with ProcessPoolExecutor(1) as pool:  # a child's peak of memory is at least its parent's when it starts
            bundles = pool.submit(_bundles, Path(name)).result()
        costs: dict[tuple[int, str], list[Cost]] = {key: [] for key in bundles}
        for _ in range(repetitions):
            for key, path in bundles.items():
                costs[key].append(load(path))
    table = Table(
        title="OPA with a bundle, from its start to an answer: median (min..max)",
        columns=("rows", "modules", "processor s", "wall s", "MiB"),
        rows=tuple(
            (
                f"{rows:,}",
                form,
                _spread(spent, "processor").text(2),
                _spread(spent, "wall").text(2),
                _spread(spent, "memory").text(),
            )
            for (rows, form), spent in costs.items()
        ),
    )
    small, large = (_spread(costs[rows, ONE], "processor") for rows in ROWS)
    return Report(
        part="activation",
        tables=(table,),
        targets=(
            Target(
                what="time of a row, 5,000 rows / 1,000 rows",
                spread=Spread(values=tuple(ratio * ROWS[0] / ROWS[1] for ratio in large.over(small).values)),
                wanted=1.17,  # an exponent of 1.1
                sense="at most",
            ),
        ),
    )


def _bundles(folder: Path) -> dict[tuple[int, str], Path]:
    """The bundles, by the number of rows and the form of their modules."""
    found: dict[tuple[int, str], Path] = {}
    for rows in ROWS:
        policy = folder / f"rows_{rows}.yaml"
        policy.write_text("\n".join(policy_text(rows)) + "\n", encoding="utf-8")
        artifacts = policy_artifacts(load_program(policy))
        for form, written in ((EACH, divided(artifacts)), (ONE, artifacts)):
            path = folder / f"{rows}-{form.replace(' ', '-')}.tar.gz"
            path.write_bytes(written.bundle())
            found[rows, form] = path
    return found


def divided(artifacts: PolicyArtifacts) -> PolicyArtifacts:
    """The same policy with its rows in a module for each type, as bundles were before."""
    base = f"privtab/{artifacts.name}"
    path = f"{base}/policy.rego"
    modules: dict[str, list[str]] = {}
    text = artifacts.modules[path]
    starts = [match.start() for match in _BLOCK.finditer(text)]
    for begin, end in zip(starts, (*starts[1:], len(text)), strict=True):
        block = text[begin:end]
        row = _TYPE.search(block)
        modules.setdefault(f"{base}/rows_{row[1]}.rego" if row else path, []).append(block)
    package = f"privtab.{artifacts.name}"
    header = f"package {package}\n\nimport data.{package}.lib\n\n"
    texts = {name: ("" if name == path else header) + "".join(blocks) for name, blocks in modules.items()}
    return replace(artifacts, modules={**artifacts.modules, **texts})


def load(bundle: Path) -> Cost:
    """Let OPA load a bundle and answer; raises CalledProcessError if it fails."""
    command = [str(binary.find()), "eval", "--bundle", str(bundle), "--format", "raw", "data.privtab.generated.allow"]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    if code := os.waitstatus_to_exitcode(status):
        raise subprocess.CalledProcessError(code, command)
    memory = usage.ru_maxrss / (1024 if sys.platform == "linux" else 1024 * 1024)
    return Cost(processor=usage.ru_utime + usage.ru_stime, wall=wall, memory=memory)


def _spread(costs: Sequence[Cost], what: str) -> Spread:
    return Spread(values=tuple(getattr(cost, what) for cost in costs))
