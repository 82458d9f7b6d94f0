"""Time and memory of each command, as a whole process, on policies that are the most expensive for exact analysis."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from measure import Report, Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

import hostile

COMMANDS: Mapping[str, Sequence[str]] = {
    "lint": ("lint", "p.yaml"),
    "compile": ("compile", "p.yaml", "-o", "build"),
    "describe": ("describe", "p.yaml"),
    "diff, itself": ("diff", "p.yaml", "p.yaml"),
    "diff, changed": ("diff", "p.yaml", "q.yaml"),
    "deploy, changed": ("deploy", "q.yaml", "-r", "registry", "--fail-on", "none", "--accept", "untested=measured"),
    "test --mutation": ("test", "p.yaml", "--mutation"),
    "test --suggest": ("test", "p.yaml", "--mutation", "--suggest"),
    "explain": ("explain", "ann", "OPERATION", "RESOURCE", "-p", "p.yaml", "-s", "s.json", "WITH"),
    "explain, denied": ("explain", "u1", "OPERATION", "RESOURCE", "-p", "p.yaml", "-s", "s.json", "WITH"),
    "who-can": ("who-can", "OPERATION", "RESOURCE", "-p", "p.yaml", "-s", "s.json", "WITH"),
    "what-can": ("what-can", "all", "-p", "p.yaml", "-s", "s.json"),
    "paths": ("what-can", "ann", "--steps", "any", "-p", "g.yaml", "-s", "s.json"),
    "paths to an operation": ("what-can", "all", "RESOURCE", "--gain", "can OPERATION", "-p", "g.yaml", "-s", "s.json"),
}
SECONDS = 60
"""Processor time after which a process is ended."""


def report(_sizes: Sequence[str], _repetitions: int) -> Report:
    """Each policy with each command, once: the point is whether it ends in time."""
    only = os.environ.get("HOSTILE", "")
    rows = []
    for name, make in hostile.POLICIES.items():
        if only in name:
            with tempfile.TemporaryDirectory(prefix="privtab-bench-") as folder:
                rows.append((name, *_costs(make(), Path(folder))))
    title = "Hostile policies: seconds of processor and MB of `privtab`, exit code in brackets"
    return Report(part="hostile", tables=(Table(title=title, columns=("policy", *COMMANDS), rows=tuple(rows)),))


def _costs(text: str, folder: Path) -> Iterator[str]:
    for name, content in {
        "p.yaml": text,
        "q.yaml": hostile.changed(text),
        "g.yaml": hostile.granting(text),
        "s.json": hostile.state(text),
        "p.scenarios.yaml": hostile.scenarios(text),
    }.items():
        Path(folder, name).write_text(content, encoding="utf-8")
    said = {"OPERATION": [hostile.operation(text)], "RESOURCE": [hostile.resource(text)]}
    said["WITH"] = [word for one in hostile.objects(text) for word in ("--with", one)]
    _cost(("deploy", "p.yaml", "-r", "registry", "--accept", "untested=measured"), folder)
    for command in COMMANDS.values():
        yield _cost([word for words in command for word in said.get(words, [words])], folder)


def _cost(arguments: Sequence[str], folder: Path) -> str:
    command = (sys.executable, "-m", "privtab", *arguments)
    environ = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "modules")}
    null = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=null, stderr=null) as process:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (SECONDS, SECONDS))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode < 0:
        return f"over {SECONDS} s"
    return f"{used.ru_utime + used.ru_stime:.1f} s, {used.ru_maxrss / 1024:.0f} MB ({process.returncode})"
