"""Memory and processor time of a process and its descendants: a Spark driver includes a JVM and Python workers."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

EVERY = 0.1
_TICK = os.sysconf("SC_CLK_TCK")


def process_tree(pid: int) -> set[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # ended meanwhile
            # The name in parentheses may itself contain spaces and parentheses.
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, left = {pid}, [pid]
    while left:
        new = children.get(left.pop(), [])
        found.update(new)
        left += new
    return found


def spent() -> float:
    """Seconds of processor time of this process and its descendants, also of those that have ended and were waited for."""
    ticks = 0
    for pid in process_tree(os.getpid()):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # ended meanwhile
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / _TICK


def proportional(pid: int) -> float:
    """Proportional set size of a process in MiB, which divides shared memory among its users; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


class Peak:
    """Watches this process and its descendants while the block runs; `mib` is the peak of their total memory."""

    def __init__(self) -> None:
        self.mib = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        own = os.getpid()
        while True:
            self.mib = max(self.mib, sum(map(proportional, process_tree(own))))
            if self._end.wait(EVERY):
                return
