"""A Spark driver that asks before it reads, and decides ten thousand requests in batches.

    python examples/driver_gate.py [FOLDER]      where the results go: build/demo/ where left off

Needs an OPA with the policy `gravitino/1.1.0` and its sample state at $OPA_URL; `make demo` starts one, and so does

    privtab opa run --policy gravitino/1.1.0 --state policy_src/gravitino/state.yaml
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name by which Spark users know it
from rich.console import Console
from rich.table import Table

from privtab import AccessDenied, Client, Entity, Request

HERE = Path(__file__).resolve().parent
SALES = "demo/hive/sales"
STAGING = "demo/hive/staging"
TABLES = [f"{SALES}/orders", f"{SALES}/customers", f"{SALES}/orders_old"]
USERS = ["mia", "carl", "sam", "alice", "bob", "ivan", "paul", "dora", "erik", "rex", "nick"]
OPERATIONS = ["load", "alter", "update_statistics", "drop"]
REQUESTS = 10_000

console = Console(highlight=False, emoji=False)


def main() -> None:
    """Run the four parts against one OPA and one Spark session."""
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "build" / "demo"
    spark = session()
    try:
        with Client(os.environ.get("OPA_URL", "http://127.0.0.1:8181"), system="gravitino") as client:
            gate(spark, client, output / "warehouse")
            listing(client)
            decisions = decide(spark, client)
        write(decisions, output)
    finally:
        spark.stop()


def session() -> SparkSession:
    """Two local cores, no web page, no progress bars, errors only."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = f"-Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}"
    with console.status("starting Spark"):
        return (
            SparkSession.builder.master("local[2]")
            .appName("driver gate")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.extraJavaOptions", quiet)
            .getOrCreate()
        )


# --- a read that asks first ------------------------------------------------------------------------------------------


def read(spark: SparkSession, client: Client, user: str, table: str, warehouse: Path) -> DataFrame:
    """The rows of a table for a user who may load it; raises AccessDenied, and DecisionUnavailable where nobody answers."""
    client.require(user, "load", ("table", table))
    return spark.read.parquet(str(warehouse / table))


def gate(spark: SparkSession, client: Client, warehouse: Path) -> None:
    """One user reads, another is refused before Spark touches a file."""
    orders = [(1, "Ada", 120.0), (2, "Ben", 35.5), (3, "Cleo", 80.25)]
    frame = spark.createDataFrame(orders, "id int, customer string, amount double")
    frame.write.mode("overwrite").parquet(str(warehouse / SALES / "orders"))
    for user in ("alice", "bob"):
        console.print(f"{user} reads {SALES}/orders", style="bold")
        try:
            rows = read(spark, client, user, f"{SALES}/orders", warehouse).orderBy("id").collect()
        except AccessDenied as denied:
            console.print("  ✗ ", style="red", end="")
            console.print(f"refused by {denied.decision.rule}, from {denied.decision.context['source']}")
            console.print("    any of these would do, or of a denial its end:", style="dim")
            for way in denied.decision.missing:
                console.print(f"      {' and '.join(way)}", style="dim", soft_wrap=True)
        else:
            console.print("  ✓ ", style="green", end="")
            console.print(f"{len(rows)} rows: " + ", ".join(f"{row.customer} {row.amount:g}" for row in rows))
    console.print()


# --- a listing that shows what one may see ---------------------------------------------------------------------------


def listing(client: Client) -> None:
    """The same listing for several users."""
    console.print("A listing, filtered", style="bold")
    shown = Table("who lists demo/hive/sales", "sees", box=None)
    for user in ("carl", "alice", "bob", "dora", "nick"):
        seen = client.visible(user, "list", "table", TABLES)
        shown.add_row(user, ", ".join(path.rpartition("/")[2] for path in seen) or "nothing")
    console.print(shown)
    console.print()


# --- ten thousand decisions ------------------------------------------------------------------------------------------


def requests(count: int) -> list[Request]:
    """Requests of a busy day: users at random on known and new tables; the same ones on every run."""
    chance = random.Random(7)
    tables = TABLES + [f"{schema}/t{number:03}" for schema in (SALES, STAGING, "demo/mysql/hr") for number in range(60)]
    return [
        Request(
            user=chance.choice(USERS),
            action=chance.choice(OPERATIONS),
            resource=Entity("table", chance.choice(tables)),
        )
        for _ in range(count)
    ]


def decide(spark: SparkSession, client: Client) -> DataFrame:
    """Every request with its answer, as a DataFrame."""
    asked = requests(REQUESTS)
    started = time.perf_counter()
    answers = client.check_many(asked)
    seconds = time.perf_counter() - started
    console.print(f"{len(asked):,} requests decided in {seconds:.2f} s", style="bold", end="")
    console.print(f"  ({len(asked) / seconds:,.0f} a second, {sum(answers):,} allowed)\n", style="dim")
    rows = [(r.user, r.action, r.resource.id, allowed) for r, allowed in zip(asked, answers, strict=True)]
    return spark.createDataFrame(rows, "user string, operation string, table string, allowed boolean")


def write(decisions: DataFrame, output: Path) -> None:
    """The share of allowed requests by user and operation: on the screen, and as CSV and Parquet."""
    summary = (
        decisions.groupBy("user")
        .pivot("operation", list(OPERATIONS))
        .agg(F.round(100 * F.avg(F.col("allowed").cast("int")), 1))
        .orderBy("user")
    )
    rows = summary.collect()
    console.print("Allowed requests by user and operation, per cent", style="bold")
    shown = Table("user", box=None)
    for operation in OPERATIONS:
        shown.add_column(operation, justify="right")
    for row in rows:
        shown.add_row(row["user"], *(f"{row[operation]:.1f}" for operation in OPERATIONS))
    console.print(shown)
    summary.coalesce(1).write.mode("overwrite").option("header", value=True).csv(str(output / "summary.csv"))
    decisions.write.mode("overwrite").parquet(str(output / "decisions.parquet"))
    console.print(f"\nwritten to {os.path.relpath(output)}/: summary.csv, decisions.parquet", style="dim")


if __name__ == "__main__":
    main()
