"""The Spark session of a job, the active one or a new one that logs only errors, and its progress on standard error."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.base import UsageError, parse_key_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MASTER, REMOTE = "spark.master", "spark.remote"
PACKAGES, EXTENSIONS = "spark.jars.packages", "spark.sql.extensions"
_SETTINGS_OF_PACKAGES: Mapping[str, Mapping[str, str]] = {
    "io.delta:delta-spark": {
        EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "org.apache.iceberg:iceberg-spark-runtime": {
        EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    },
}
"""The settings that Spark needs to read the tables of a package, by the prefix of the package."""


def with_packages(packages: Sequence[str], settings: Mapping[str, str], *, remote: bool) -> dict[str, str]:
    """The settings of a session that fetches packages (`group:artifact:version`) from a Maven repository.

    Settings given in `settings` take precedence. Raises UsageError for an invalid package, and if the session is on a server
    (`remote`), which has its own jars.
    """
    found = dict(settings)
    if not packages:
        return found
    if remote:
        raise UsageError(f"`{PACKAGES}` is for a session that starts here: a Spark Connect server has jars of its own")
    for package in packages:
        parts = package.split(":")
        if len(parts) != 3 or not all(parts) or "," in package:
            raise UsageError(f"`{PACKAGES}` has `{package}`: write GROUP:ARTIFACT:VERSION")
    configured = [name for name in settings.get(PACKAGES, "").split(",") if name]
    found[PACKAGES] = ",".join(dict.fromkeys([*configured, *packages]))
    needed_settings = [
        package_settings
        for prefix, package_settings in _SETTINGS_OF_PACKAGES.items()
        if any(package.startswith(prefix) for package in packages)
    ]
    if EXTENSIONS not in settings and needed_settings:
        found[EXTENSIONS] = ",".join(package_settings[EXTENSIONS] for package_settings in needed_settings)
    for package_settings in needed_settings:
        for name, value in package_settings.items():
            found.setdefault(name, value)
    return found


LOGGING = Path(__file__).with_name("log4j2.properties")
"""Log configuration of a Spark that a job starts: errors only."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_WARNING = b"WARNING: Using incubator modules"
_INCUBATOR = re.compile(_WARNING + rb"[^\n]*\n")


def where_spark_is(conf: Sequence[str]) -> tuple[dict[str, str], str | None, str | None]:
    """The settings of `--conf`, and of these the master and the Spark Connect server, if they are named. Raises UsageError."""
    settings = parse_key_values(conf, "--conf", "KEY=VALUE", example="spark.driver.memory=8g", allow_empty=True)
    master, remote = settings.pop(MASTER, None), settings.pop(REMOTE, None)
    if master and remote:
        raise UsageError(f"give `--conf {MASTER}=…` or `--conf {REMOTE}=…`, not both")
    return settings, master, remote


@contextmanager
def session(name: str, *, conf: Sequence[str] = (), bars: bool = False) -> Iterator[SparkSession]:
    """The active session, which is left open, or a new one as set by the options; raises UsageError for conflicting options.

    `conf`: also says where Spark is (`spark.master`, `spark.remote`), and which packages it fetches, with what these need.
    `bars`: whether Spark draws progress bars, which it does by default even if standard error is not a terminal.
    """
    from pyspark.sql import SparkSession as Session

    settings, master, remote = where_spark_is(conf)
    named = [name for name in settings.get(PACKAGES, "").split(",") if name]
    settings = with_packages(named, settings, remote=remote is not None and remote.startswith("sc://"))
    active = Session.getActiveSession()
    if active is not None:
        yield active
        return
    if (master or remote or "local").startswith("local") and "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Local executors should use this Python, which has privtab; whatever `python3` is may lack it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = Session.builder.appName(f"privtab {name}")
    if master:
        builder = builder.master(master)
    if remote:
        builder = builder.remote(remote)
    else:
        builder = builder.config("spark.ui.showConsoleProgress", str(bars).lower())
        settings = dict(_quiet(settings))
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _java_warning_dropped():
        spark: SparkSession = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _quiet(settings: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of a session that logs only errors, unless the user has their own log configuration."""
    java_options = settings.get(_JAVA_OPTIONS, "")
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    if "log4j" in java_options or (folder is not None and (Path(folder) / "log4j2.properties").exists()):
        return settings
    return {**settings, _JAVA_OPTIONS: f"{java_options} -Dlog4j2.configurationFile={LOGGING.as_uri()}".strip()}


@contextmanager
def _java_warning_dropped() -> Iterator[None]:
    """Drop the warning about incubator modules that every JVM of Spark prints when it starts; no JVM option suppresses it."""
    reader, writer = os.pipe()
    before = os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    threading.Thread(target=_pass_on, args=(reader, before), daemon=True).start()
    try:
        yield
    finally:
        os.dup2(before, 2)


def _pass_on(reader: int, writer: int) -> None:
    """Copy the output of a JVM until it exits, without warnings about incubator modules."""
    rest = b""
    with os.fdopen(reader, "rb", 0) as source, os.fdopen(writer, "wb", 0) as target, suppress(OSError):
        while chunk := source.read(1 << 16):
            rest = _INCUBATOR.sub(b"", rest + chunk)
            tail = rest[rest.rfind(b"\n") + 1 :]
            withheld = len(tail) if tail.startswith(_WARNING) or _WARNING.startswith(tail) else 0
            target.write(rest[: len(rest) - withheld])
            rest = tail if withheld else b""
        target.write(rest)


BEAT = 10.0
"""Seconds between heartbeats while Spark is working."""
LOG = logging.getLogger("privtab.spark")


@dataclass
class ProgressReporter:
    """Prints phases on standard error, with heartbeats while a phase lasts."""

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

        if "connect" in type(spark).__module__:
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
    """The output of completed tasks: `1,200 rows so far` for Parquet, otherwise bytes; empty if there is nothing yet."""
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
