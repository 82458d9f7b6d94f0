"""Small local Spark sessions for tests and benchmarks."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import privtab_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGING = Path(privtab_spark.__file__).parent / "jobs" / "log4j2.properties"


def session(
    *, connect: bool = False, cores: int = 2, memory: str = "2g", brief: bool = False, **settings: str
) -> SparkSession:
    """A session in this process; `settings`: additional Spark settings, with two underscores for a dot.

    `brief`: for many small jobs, which spend their time on JIT compilation; not for measurements.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if connect:
        # Let the server listen on a free port, not on the default one. For tests, Spark fails where a stage is too large to be
        # compiled, and does not interpret it as it does elsewhere.
        os.environ["SPARK_TESTING"] = "1"
        settings = {"spark__sql__codegen__wholeStage": "false", **settings}
    builder = SparkSession.builder
    builder = builder.remote(f"local[{cores}]") if connect else builder.master(f"local[{cores}]")
    own_settings = {
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
    for name, value in {**own_settings, **{key.replace("__", "."): value for key, value in settings.items()}}.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # Connect warns about settings that only take effect when a server starts, as it does here.
        warnings.simplefilter("ignore")
        return builder.getOrCreate()


def environment() -> dict[str, str]:
    """The environment for a process with its own Spark, without the variables that a Connect session of this process has set."""
    removed = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    remaining = {name: value for name, value in os.environ.items() if name not in removed}
    return {**remaining, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ":".join(sys.path)}
