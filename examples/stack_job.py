"""A Spark driver in a long-running job: it asks before each read, and says when the answer changes.

    python examples/stack_job.py

Needs an OPA at $OPA_URL with a policy and a state of Gravitino; `make stack` starts all of it, docker-compose.yml too. It
asks every $PRIVTAB_EVERY seconds (2), $PRIVTAB_ROUNDS times (0: until it is ended). While nobody decides, it waits: it
reads nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from privtab import AccessDenied, Client, DecisionError

HERE = Path(__file__).resolve().parent
TABLE = os.environ.get("PRIVTAB_TABLE", "demo/hive/sales/orders")
USERS = os.environ.get("PRIVTAB_USERS", "alice,bob").split(",")


def main() -> int:
    """Ask and read until told to stop."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    rounds = int(os.environ.get("PRIVTAB_ROUNDS", "0"))
    with tempfile.TemporaryDirectory(prefix="privtab-stack-") as folder:
        spark = session()
        try:
            orders = str(Path(folder) / "orders")
            spark.createDataFrame([(1, 120.0), (2, 35.5), (3, 80.25)], "id int, amount double").write.parquet(orders)
            say("Spark is ready")
            with Client(os.environ.get("OPA_URL", "http://127.0.0.1:8181"), system="gravitino") as client:
                follow(spark, client, orders, stop, rounds)
        finally:
            spark.stop()
    return 0


def follow(spark: SparkSession, client: Client, orders: str, stop: threading.Event, rounds: int) -> None:
    """A line for each user whenever something else comes out of it."""
    told: dict[str, str] = {}
    left = rounds or -1
    while left and not stop.is_set():
        answered = True
        for user in USERS:
            answer = read(spark, client, orders, user)
            answered = answered and not answer.startswith("waits")
            if told.get(user) != answer:
                told[user] = answer
                say(f"{user} {answer}")
        left -= 1 if answered and left > 0 else 0
        stop.wait(float(os.environ.get("PRIVTAB_EVERY", "2")) if left else 0)


def read(spark: SparkSession, client: Client, orders: str, user: str) -> str:
    """What comes of a read: rows, a refusal, or nothing yet."""
    try:
        client.require(user, "load", ("table", TABLE))
    except AccessDenied as denied:
        return f"may not read {TABLE}: refused by {denied.decision.rule}"
    except DecisionError as error:
        return f"waits: {type(error).__name__}"
    return f"reads {spark.read.parquet(orders).count()} rows of {TABLE}"


def session() -> SparkSession:
    """One local core is enough for a few rows."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = f"-Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}"
    return (
        SparkSession.builder.master("local[1]")
        .appName("stack job")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", quiet)
        .getOrCreate()
    )


def say(text: str) -> None:
    """One line of the job's log, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
