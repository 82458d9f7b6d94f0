"""Processor time of whole commands on small and large policies, beside an interpreter that does nothing and OPA's own commands.

With the Python of another checkout in PRIVTAB_BENCH_OTHER, each command also runs there, by turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from compile import policy_text

from privtab.engines.opa import binary

ROWS = (20, 5000)
OTHER = "PRIVTAB_BENCH_OTHER"
TAB = {"_PRIVTAB_COMPLETE": "complete_bash", "COMP_WORDS": "privtab li", "COMP_CWORD": "1"}
STATE = "grants: []\n"
_TREE = "{tree}"
_OPA = "package a\n\nallow if input.user == data.owner\n"


def pythons() -> Mapping[str, str]:
    """The Python of each tree to measure: this one and, if there is another, that one."""
    return {"this tree": sys.executable} | ({"other tree": other} if (other := os.environ.get(OTHER)) else {})


def beside(folder: Path) -> Mapping[str, list[str]]:
    """Command lines that ours are compared with, by description."""
    opa = str(binary.find())
    (folder / "a.rego").write_text(_OPA, encoding="utf-8")
    return {
        "`python -c pass`": [sys.executable, "-c", "pass"],
        "`opa version`": [opa, "version"],
        "`opa check`, one module": [opa, "check", str(folder / "a.rego")],
    }


def commands(folder: Path) -> Mapping[str, tuple[list[str], Mapping[str, str]]]:
    """Arguments and environment of each command, by description."""
    state = folder / "state.yaml"
    state.write_text(STATE, encoding="utf-8")
    lines: dict[str, tuple[list[str], Mapping[str, str]]] = {
        "`privtab --version`": (["--version"], {}),
        "`privtab --help`": (["--help"], {}),
        "`privtab`": ([], {}),
        "completion of `privtab li`": ([], TAB),
    }
    for rows in ROWS:
        path = folder / f"rows_{rows}.yaml"
        path.write_text("\n".join(policy_text(rows)) + "\n", encoding="utf-8")
        policy = str(path)
        question = ["explain", "ann", "load", "item_0:a/b/c/d", "-p", policy, "-s", str(state)]
        for line in (
            question,
            ["lint", policy],
            ["diff", policy, policy],
            ["fmt", "--check", policy],
            ["compile", policy, "-o", str(folder / f"out_{rows}_{_TREE}")],
        ):
            lines[f"`{line[0]}`, {rows:,} rows"] = line, {}
    return lines


def line_of(python: str, line: Sequence[str]) -> list[str]:
    """The command line for a tree, which has outputs of its own: else each would remove what the other has written."""
    return [python, "-m", "privtab", *(word.replace(_TREE, python.replace("/", "-")) for word in line)]


def seconds(line: Sequence[str], environment: Mapping[str, str]) -> float:
    """The processor time of a process; raises CalledProcessError for an exit code that says it did not work."""
    before = os.times()
    done = subprocess.run(line, check=False, capture_output=True, env={**os.environ, **environment})
    after = os.times()
    if done.returncode not in (0, 1, 2 if line[3:] == [] else 0):
        done.check_returncode()
    return after.children_user + after.children_system - before.children_user - before.children_system
