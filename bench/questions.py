"""Processor time of questions about a state in files, each as a whole process: start, policy, reading, checking, answer."""

from __future__ import annotations

import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from measure import Report, Spread, Table, WrongAnswerError
from prepared import POLICY, tables
from workload import World, world

COMMANDS: Mapping[str, Sequence[str]] = {
    "decide": ("decide", "-r", "asked.jsonl"),
    "explain": ("explain", "USER", "load", "table:TABLE"),
    "what-can": ("what-can", "USER", "table:TABLE"),
    "what-can, everything": ("what-can", "USER"),
    "who-can": ("who-can", "load", "table:TABLE"),
    "state diff, rows alone": ("diff", "-s", "STATE", "-s", "STATE-changed"),
    "state diff, a row of each table": ("diff", "-s", "STATE", "-s", "STATE-changed"),
    "state diff, 1 grant": ("diff", "-s", "STATE", "-s", "STATE-1"),
    "state diff, 10 grants": ("diff", "-s", "STATE", "-s", "STATE-10"),
    "state diff, 100 grants and 50 assignments": ("diff", "-s", "STATE", "-s", "STATE-100"),
    "state pack": ("state", "pack", "STATE", "-o", "state.tar.gz"),
}
WITHOUT_POLICY = "state diff, rows alone"
CHANGED: Mapping[str, Mapping[str, int]] = {
    "1": {"grants": 1},
    "10": {"grants": 10},
    "100": {"grants": 100, "assignments": 50},
}
"""Further states, by suffix: how many rows of which tables are left out, chosen by chance."""


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Seconds by command, size and format."""
    columns, rows = ["command"], {name: [name] for name in COMMANDS}
    for size in sizes:
        of_size = world(size)
        with tempfile.TemporaryDirectory() as folder:
            write(of_size, Path(folder))
            for kind in ("csv", "parquet"):
                columns.append(f"{size} from {kind}")
                for name, command in COMMANDS.items():
                    policy = () if name == WITHOUT_POLICY else ("-p", POLICY)
                    spent = tuple(seconds(of_size, (*command, *policy), Path(folder), kind) for _ in range(repetitions))
                    rows[name].append(Spread(values=spent).text(1, " s"))
    return Report(
        part="questions",
        tables=(
            Table(
                title="Questions about a state in files", columns=tuple(columns), rows=tuple(map(tuple, rows.values()))
            ),
        ),
    )


def write(of_size: World, folder: Path) -> None:
    """The state in both formats, the same with rows less, and a request."""
    for name, all_rows in tables(of_size).items():
        chance = random.Random(51)
        states = {"": all_rows, "-changed": all_rows[1:]}
        for suffix, numbers in CHANGED.items():
            less = set(chance.sample(range(len(all_rows)), numbers.get(name, 0)))
            states[f"-{suffix}"] = [row for number, row in enumerate(all_rows) if number not in less]
        for suffix, rows in states.items():
            columns = {column: [row[column] for row in rows] for column in rows[0]}
            for kind in ("csv", "parquet"):
                (folder / f"{kind}{suffix}").mkdir(exist_ok=True)
            with (folder / f"csv{suffix}" / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
            pyarrow.parquet.write_table(pa.table(columns), folder / f"parquet{suffix}" / f"{name}.parquet")
    user, table = of_size.requests[0]
    request = {
        "subject": {"type": "user", "id": user},
        "action": {"name": "load"},
        "resource": {"type": "table", "id": table},
    }
    (folder / "asked.jsonl").write_text(json.dumps(request), encoding="utf-8")


def seconds(of_size: World, command: Sequence[str], folder: Path, kind: str, python: str = sys.executable) -> float:
    """User and system time of one process. `command`: with `-p`, if it takes a policy. `python`: that of a checkout."""
    user, table = of_size.requests[0]
    said = [part.replace("USER", user).replace("TABLE", table).replace("STATE", kind) for part in command]
    state = [] if "STATE" in command else ["-s", kind]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([python, "-m", "privtab", *said, *state], cwd=folder, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode:
        raise WrongAnswerError(ran.stderr.decode())
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
