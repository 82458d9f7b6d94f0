"""Run by a test in a process of its own: a plain session whose executors have a Python without privtab."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


def main(policy: str, state: str, bundles: str) -> None:
    """One line for each front door: what it raises, or that it answers."""
    from pyspark.sql import SparkSession

    from privtab.errors import DecisionUnavailable
    from privtab.spark import decide, decide_with, entitlements, read_state, register, register_function

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    asked = spark.sql("SELECT 'ann' AS user, 's/a/1' AS path")
    given: dict[str, Any] = {"subject": "user", "action": "look", "resource": ("box", "path")}
    doors: dict[str, Callable[[], Any]] = {
        "kernel": lambda: decide(asked, policy, state, plan="kernel", **given),
        "decide_with": lambda: decide_with(asked, bundles, **given),
        "entitlements": lambda: entitlements(policy, state, spark=spark),
        "read_state": lambda: read_state(spark, {"grants": "grants"}, policy),
        "register": lambda: register(spark),
        "register_function": lambda: register_function(spark, policy, state),
        "joins": lambda: decide(asked, policy, state, plan="joins", **given).collect(),
    }
    for name, door in doors.items():
        started = time.monotonic()
        try:
            door()
            told = "answers"
        except DecisionUnavailable as error:
            told = str(error)
        sys.stdout.write(f"{name}\t{time.monotonic() - started:.1f}\t{told}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
