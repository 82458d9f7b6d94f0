"""Report the progress of a job on standard error: phases, heartbeats, and the chosen plan."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEAT = 10.0
"""Seconds between heartbeats while Spark is working."""
LOG = logging.getLogger("privtab.spark")


@dataclass
class ProgressReporter:
    """Prints phases on standard error, with heartbeats while a phase lasts."""

    quiet: bool
    detail: str = ""
    """A description of the progress within the phase, if known."""
    place: Path | None = None
    """The folder to which rows are being written, if it is local."""
    started: float = field(default_factory=time.monotonic)
    _stop: threading.Event = field(default_factory=threading.Event)
    _heartbeat: threading.Thread | None = None

    def __call__(self, phase: str) -> None:
        """Begin a new phase."""
        self.end()
        self.detail = ""
        if self.quiet:
            return
        sys.stderr.write(f"{self._clock()}  {phase}\n")
        sys.stderr.flush()
        self._stop.clear()
        self._heartbeat = threading.Thread(target=self._report_regularly, args=(phase,), daemon=True)
        self._heartbeat.start()

    def end(self) -> None:
        """End the current phase; nothing more is printed about it."""
        if self._heartbeat is not None:
            self._stop.set()
            self._heartbeat.join()
            self._heartbeat = None

    def _report_regularly(self, phase: str) -> None:
        while not self._stop.wait(BEAT):
            known = ", ".join(filter(None, (self.detail, written_so_far(self.place) if self.place else "")))
            sys.stderr.write(f"{self._clock()}  {phase} … {known}".rstrip() + "\n")
            sys.stderr.flush()

    def watch(self, spark: SparkSession) -> None:
        """Follow the number of completed tasks of a Connect session; a Classic session draws its own progress bar on a terminal."""

        def show_tasks(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: FBT001, ARG001  (the signature is given by Spark)
            found = list(stages or ())
            ready, all_ = sum(s.num_completed_tasks for s in found), sum(s.num_tasks for s in found)
            self.detail = f"{ready:,} of {all_:,} tasks" if all_ else ""

        if not self.quiet and "connect" in type(spark).__module__:
            spark.registerProgressHandler(show_tasks)  # type: ignore[arg-type]  # a function is accepted, too

    @contextmanager
    def choice(self) -> Iterator[None]:
        """Report the plan that is chosen meanwhile, and why."""
        handler = _ChoiceHandler(self)
        level = LOG.level
        LOG.addHandler(handler)
        LOG.setLevel(min(level or logging.INFO, logging.INFO))
        try:
            yield
        finally:
            LOG.removeHandler(handler)
            LOG.setLevel(level)

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self.started)
        return f"{seconds // 60:3d}:{seconds % 60:02d}"


def written_so_far(place: Path) -> str:
    """What completed tasks have written: `1,200 rows so far` for Parquet, otherwise bytes; empty if there is nothing yet."""
    rows = size = 0
    try:
        files = [file for file in place.rglob("part-*") if not any(p.startswith("attempt_") for p in file.parts)]
        for file in files:
            size += file.stat().st_size
            if file.suffix == ".parquet":
                from pyarrow import parquet

                rows += parquet.read_metadata(file).num_rows
    except (OSError, ValueError):
        return ""  # the output of a task is being moved
    return f"{rows:,} rows so far" if rows else f"{size / 2**20:,.1f} MiB so far" if size else ""


class _ChoiceHandler(logging.Handler):
    def __init__(self, progress: ProgressReporter) -> None:
        super().__init__(logging.INFO)
        self.progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        """Report the first line of a choice; the rest is in the log."""
        if hasattr(record, "plan"):
            self.progress(record.getMessage().partition("\n")[0])
