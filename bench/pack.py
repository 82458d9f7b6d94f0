"""Time and memory of `privtab state pack` for ten million grants on one machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from measure import Report, Spread, Table, Target, WrongAnswerError
from prepared import POLICY

GRANTS = 10_000_000
ROLES = 10_000
TABLES = 1_000_000
USERS = 100_000
PRIVILEGES = ("SELECT_TABLE", "MODIFY_TABLE")


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Seconds and GiB; `sizes` are those of other parts."""
    del sizes
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        runs = [_pack(Path(folder)) for _ in range(repetitions)]
    wall, processor, memory = (Spread(values=values) for values in zip(*runs, strict=True))
    name = f"{GRANTS:,} grants, {TABLES:,} tables, {ROLES:,} roles, {USERS:,} users"
    return Report(
        part="pack",
        tables=(
            Table(
                title="`state pack` of one machine",
                columns=("state", "seconds", "seconds of processor", "GiB of memory"),
                rows=((name, wall.text(), processor.text(), memory.text(1)),),
            ),
        ),
        targets=(
            Target(what="seconds", spread=wall, wanted=60, sense="at most", digits=0, unit=" s"),
            Target(what="memory", spread=memory, wanted=6, sense="at most", digits=1, unit=" GiB"),
        ),
    )


def write(folder: Path) -> None:
    """The tables of the state as Parquet."""
    random = np.random.default_rng(1)
    distinct = np.unique(random.integers(0, ROLES * TABLES * len(PRIVILEGES), GRANTS + GRANTS // 500))[:GRANTS]
    random.shuffle(distinct)
    users = np.arange(3 * USERS)
    tables = {
        "grants": {
            "grantee": _coded(distinct % ROLES, [f"role:r{n}" for n in range(ROLES)]),
            "effect": _coded(distinct % 97 == 0, ["allow", "deny"]),
            "privilege": _coded(distinct // ROLES % len(PRIVILEGES), PRIVILEGES),
            "entity": _coded(
                distinct // (ROLES * len(PRIVILEGES)),
                [f"table:m/c{n // 50_000}/s{n // 100}/t{n}" for n in range(TABLES)],
            ),
        },
        "assignments": {
            "principal": _coded(users // 3, [f"user:u{n}" for n in range(USERS)]),
            "role": _coded(users * 7 % ROLES, [f"r{n}" for n in range(ROLES)]),
        },
        "members": {"user": pa.array([f"u{n}" for n in range(USERS)]), "of": pa.array(["metalake:m"] * USERS)},
    }
    for name, columns in tables.items():
        pyarrow.parquet.write_table(pa.table(columns), folder / f"{name}.parquet")


def _coded(codes: np.ndarray, texts: Sequence[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(texts))


def _pack(folder: Path) -> tuple[float, float, float]:
    command = [sys.executable, "-m", "privtab", "state", "pack", str(folder), "-p", POLICY]
    began = time.perf_counter()
    with subprocess.Popen([*command, "-o", str(folder / "state.tar.gz")], stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise WrongAnswerError(f"`state pack` exited with {process.returncode}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / (1 << 20)
