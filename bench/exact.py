"""Policies that cost exact tools the most: seconds and memory of whole processes, for each command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from measure import Report, Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

import hostile

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "lint": ("lint", "p.yaml"),
    "compile": ("compile", "p.yaml", "-o", "build"),
    "describe": ("describe", "p.yaml"),
    "diff, itself": ("diff", "p.yaml", "p.yaml"),
    "diff, changed": ("diff", "p.yaml", "q.yaml"),
    "test --mutation": ("test", "p.yaml", "--mutation", "--suggest"),
}
SECONDS = 120
"""When a process is ended."""


def report(_sizes: Sequence[str], _repetitions: int) -> Report:
    """Each policy with each command, once: what counts is whether it ends."""
    rows = []
    for name, make in hostile.POLICIES.items():
        with tempfile.TemporaryDirectory(prefix="privtab-bench-") as folder:
            text = make()
            Path(folder, "p.yaml").write_text(text, encoding="utf-8")
            Path(folder, "q.yaml").write_text(hostile.changed(text), encoding="utf-8")
            rows.append((name, *(_cost(command, Path(folder)) for command in COMMANDS.values())))
    title = "Hostile policies: seconds and MB of `privtab`, exit code in brackets"
    return Report(part="hostile", tables=(Table(title=title, columns=("policy", *COMMANDS), rows=tuple(rows)),))


def _cost(arguments: Sequence[str], folder: Path) -> str:
    begun = time.perf_counter()
    command = ("timeout", str(SECONDS), sys.executable, "-m", "privtab", *arguments)
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begun
    if process.returncode == 124:
        return f"over {SECONDS} s"
    return f"{seconds:.1f} s, {used.ru_maxrss / 1024:.0f} MB ({process.returncode})"
