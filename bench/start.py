"""Processor time of whole commands on small and large policies, beside an interpreter that does nothing and OPA's own commands.

With the Python of another checkout in PRIVTAB_BENCH_OTHER, each command also runs there, by turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from compile import policy_text
from measure import Report, Spread, Table

from privtab.engines.opa import binary

ROWS = (20, 5000)
OTHER = "PRIVTAB_BENCH_OTHER"
MOST_LARGE = 3
TAB = {"_PRIVTAB_COMPLETE": "complete_bash", "COMP_WORDS": "privtab li", "COMP_CWORD": "1"}
STATE = "grants: []\n"
_TREE = "{tree}"
_OPA = "package a\n\nallow if input.user == data.owner\n"


def report(_sizes: Sequence[str], repetitions: int) -> Report:
    """Each command here, and in the other checkout, by turns."""
    trees = pythons()
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        folder = Path(name)
        others = [(what, (_times(line, repetitions, {}),)) for what, line in beside(folder).items()]
        ours = [
            # In the first turn modules are compiled.
            (what, tuple(zip(*[_turn(trees, line, environment) for _ in range(times + 1)][1:], strict=True)))
            for what, (line, environment, times) in commands(folder, repetitions).items()
        ]
    rows = [(what, *(Spread(values=tuple(values)).text(3) for values in found)) for what, found in others + ours]
    columns = ("command", *trees)
    padded = tuple((*row, *[""] * (len(columns) - len(row))) for row in rows)
    title = "Seconds of processor time of a command: median (min..max)"
    return Report(part="start", tables=(Table(title=title, columns=columns, rows=padded),), targets=())


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


def commands(folder: Path, repetitions: int) -> Mapping[str, tuple[list[str], Mapping[str, str], int]]:
    """Arguments, environment and repetitions of each command, by description."""
    state = folder / "state.yaml"
    state.write_text(STATE, encoding="utf-8")
    lines: dict[str, tuple[list[str], Mapping[str, str], int]] = {
        "`privtab --version`": (["--version"], {}, repetitions),
        "`privtab --help`": (["--help"], {}, repetitions),
        "`privtab`": ([], {}, repetitions),
        "completion of `privtab li`": ([], TAB, repetitions),
    }
    for rows in ROWS:
        path = folder / f"rows_{rows}.yaml"
        path.write_text("\n".join(policy_text(rows)) + "\n", encoding="utf-8")
        policy, times = str(path), repetitions if rows == ROWS[0] else min(repetitions, MOST_LARGE)
        question = ["explain", "ann", "load", "item_0:a/b/c/d", "-p", policy, "-s", str(state)]
        for line in (
            question,
            ["lint", policy],
            ["diff", policy, policy],
            ["fmt", "--check", policy],
            ["compile", policy, "-o", str(folder / f"out_{rows}_{_TREE}")],
        ):
            lines[f"`{line[0]}`, {rows:,} rows"] = line, {}, times
    return lines


def _turn(pythons: Mapping[str, str], line: Sequence[str], environment: Mapping[str, str]) -> list[float]:
    return [seconds(line_of(python, line), environment) for python in pythons.values()]


def line_of(python: str, line: Sequence[str]) -> list[str]:
    """The command line for a tree, which has outputs of its own: else each would remove what the other has written."""
    return [python, "-m", "privtab", *(word.replace(_TREE, python.replace("/", "-")) for word in line)]


def _times(line: Sequence[str], repetitions: int, environment: Mapping[str, str]) -> list[float]:
    return [seconds(line, environment) for _ in range(repetitions)]


def seconds(line: Sequence[str], environment: Mapping[str, str]) -> float:
    """The processor time of a process; raises CalledProcessError for an exit code that says it did not work."""
    before = os.times()
    done = subprocess.run(line, check=False, capture_output=True, env={**os.environ, **environment})
    after = os.times()
    if done.returncode not in (0, 1, 2 if line[3:] == [] else 0):
        done.check_returncode()
    return after.children_user + after.children_system - before.children_user - before.children_system
