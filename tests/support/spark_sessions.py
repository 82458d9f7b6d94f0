"""The Spark sessions of tests and benchmarks: local, quiet, small."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import privtab.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = Path(privtab.spark.__file__).parent / "jobs" / "log4j2.properties"


def session(
    *, connect: bool = False, cores: int = 2, memory: str = "2g", brief: bool = False, **settings: str
) -> SparkSession:
    """A session of this process; `settings`: more of Spark's, dots written as two underscores.

    `brief`: for many small jobs, whose time is that of compiling; never where something is measured.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if connect:
        # The server listens on a free port, not on the one that everybody takes.
        os.environ["SPARK_TESTING"] = "1"
    builder = SparkSession.builder
    builder = builder.remote(f"local[{cores}]") if connect else builder.master(f"local[{cores}]")
    own = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
        + (" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC" if brief else ""),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in {**own, **{key.replace("__", "."): value for key, value in settings.items()}}.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # Connect warns of settings that only a server takes at its start; here they are given at its start.
        warnings.simplefilter("ignore")
        return builder.getOrCreate()


def environment() -> dict[str, str]:
    """For a process with a Spark of its own: what a Connect session of this process put into the environment is not for it."""
    own = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    kept = {name: value for name, value in os.environ.items() if name not in own}
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ":".join(sys.path)}
