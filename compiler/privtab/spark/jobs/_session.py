"""The Spark session of a job: the active one, or a new one that logs only errors."""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from privtab.errors import UsageError
from privtab.key_values import key_values
from privtab.spark.packages import with_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")
"""Log configuration of a Spark that a job starts: errors only."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_WARNING = b"WARNING: Using incubator modules"
_INCUBATOR = re.compile(_WARNING + rb"[^\n]*\n")


@contextmanager
def session(options: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """The active session, which is left open, or a new one as set by the options; raises UsageError for conflicting options."""
    from pyspark.sql import SparkSession as Session

    if options.master and options.remote:
        raise UsageError("give `--master` or `--remote`, not both")
    settings = with_packages(
        options.package,
        key_values(options.conf, "--conf", "KEY=VALUE", example="spark.driver.memory=8g", allow_empty=True),
        remote=_on_a_server(options.remote),
    )
    active = Session.getActiveSession()
    if active is not None:
        yield active
        return
    if (options.master or options.remote or "local").startswith("local") and "PYSPARK_GATEWAY_PORT" not in os.environ:
        # Local executors should use this Python, which has privtab; whatever `python3` is may lack it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = Session.builder.appName(f"privtab {name}")
    if options.master:
        builder = builder.master(options.master)
    if options.remote:
        builder = builder.remote(options.remote)
    else:
        # By default, Spark draws progress bars even if standard error is not a terminal.
        bars = sys.stderr.isatty() and not options.quiet
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


def _on_a_server(remote: str | None) -> bool:
    return remote is not None and remote.startswith("sc://")


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
