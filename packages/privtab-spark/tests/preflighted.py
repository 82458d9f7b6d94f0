"""Run by a test in a process of its own: a plain session whose executors have another Python, which may lack privtab."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def main(policy: str, state: str, bundles: str, remote: str) -> None:
    """One JSON document: for each entry point what it raises or answers, and the plan that `auto` takes."""
    from pyspark.sql import SparkSession

    from privtab.base import DecisionUnavailable
    from privtab_spark import decide, decide_with, entitlements, plan, read_state, register_function

    if remote:
        os.environ["SPARK_TESTING"] = "1"  # the server listens on a free port
    builder = SparkSession.builder.remote("local[1]") if remote else SparkSession.builder.master("local[1]")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    requests = spark.sql("SELECT 'ann' AS user, 's/a/1' AS path UNION ALL SELECT 'nobody', 's/a/1'")
    arguments: dict[str, Any] = {"subject": "user", "action": "look", "resource": ("box", "path")}

    def rows(frame: Any) -> list[Any]:
        return sorted(tuple(row) for row in frame.select("user", "allowed").collect())

    def may() -> list[Any]:
        register_function(spark, policy, state, type="box", refresh=None)
        requests.createOrReplaceTempView("asked")
        return sorted(tuple(row) for row in spark.sql("SELECT user, may(user, 'look', path) FROM asked").collect())

    def grants() -> int:
        table = spark.sql("SELECT 'user:ann' AS grantee, 'allow' AS effect, 'LOOK' AS privilege, 'box:s/a/1' AS entity")
        return int(read_state(spark, {"grants": table}, policy).findings().count())

    doors: dict[str, Callable[[], Any]] = {
        "kernel": lambda: rows(decide(requests, policy, state, plan="kernel", **arguments)),
        "auto": lambda: rows(decide(requests, policy, state, **arguments)),
        "decide_with": lambda: rows(decide_with(requests, bundles, **arguments)),
        "entitlements": lambda: entitlements(policy, state, operations=["look"], spark=spark).count(),
        "register_function": may,
        "read_state": grants,
    }
    text: dict[str, Any] = {"plan": str(plan(requests, policy, state, **arguments))}
    for name, door in doors.items():
        try:
            text[name] = door()
        except DecisionUnavailable as error:
            text[name] = str(error)
    sys.stdout.write(json.dumps(text))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
