"""Decisions by the million, cell by cell: the same policy and the same state as everywhere, asked from Spark.

    python examples/spark_walkthrough.py [FOLDER]     where the certification goes: build/demo/certified where left off

Each `# %%` begins a cell; editors and Jupyter (with Jupytext) run them one by one.
"""

from __future__ import annotations

# %% A session, as small as can be
import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name by which Spark users know it
from rich.console import Console

from privtab import AccessDenied
from privtab_spark import certify, decide, entitlements, plan, require, user, visible

HERE = Path(__file__).resolve().parent
POLICY, STATE = "gravitino/1.1.0", str(HERE.parent / "policy_src" / "gravitino" / "state.yaml")
SALES = "demo/hive/sales"
ROWS = 200_000
USERS = ["mia", "carl", "sam", "alice", "bob", "ivan", "paul", "dora", "erik", "rex", "nick"]
TABLES = ["orders", "customers", "orders_old", None]

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
console = Console(highlight=False, emoji=False)
output = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "build" / "demo" / "certified"
spark = (
    SparkSession.builder.master("local[2]")
    .appName("walkthrough")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={(HERE / 'log4j2.properties').as_uri()}")
    .getOrCreate()
)

# %% A driver goes on only if it may
console.print("[bold]require[/]: a driver goes on only if it may")
for name in ("alice", "nick"):
    try:
        require(POLICY, STATE, name, "load", f"table:{SALES}/orders")
        console.print(f"  {name} may load table:{SALES}/orders")
    except AccessDenied as denied:
        console.print(f"  {denied}", soft_wrap=True)

# %% A request for each row: the rows stay, `allowed` and `reason` come
console.print(f"\n[bold]decide[/]: {ROWS:,} rows, {len(USERS)} users; one table in four has no name")
users = F.array(*map(F.lit, USERS))
tables = F.array(*map(F.lit, TABLES))
requests = spark.range(ROWS).select(
    "id",
    users[F.col("id") % len(USERS)].alias("who"),
    F.concat(F.lit(f"{SALES}/"), tables[F.col("id") % len(TABLES)]).alias("path"),
)
decided = decide(requests, POLICY, STATE, subject="who", action="load", resource=("table", "path"))
for row in decided.groupBy("allowed", "reason").count().orderBy(F.desc("allowed"), "reason").collect():
    console.print(f"  {'allowed' if row.allowed else row.reason:12} {row['count']:>9,}")
choice = plan(requests, POLICY, STATE, subject="who", action="load", resource=("table", "path"))
console.print(f"  how: {str(choice).splitlines()[0]}", style="dim", soft_wrap=True)

# %% The rows that one user may see
listing = spark.createDataFrame([(f"{SALES}/{name}",) for name in TABLES if name], "path string")
seen = visible(listing, POLICY, STATE, subject=user("bob"), resource=("table", "path"), action="load")
console.print("\n[bold]visible[/]: what bob sees of them")
console.print("  " + ", ".join(sorted(row.path.rpartition("/")[2] for row in seen.collect())))

# %% The whole matrix, and through what each entitlement holds
matrix = entitlements(POLICY, STATE, [f"table:{SALES}/orders"], operations=["load", "drop"], spark=spark)
console.print("\n[bold]entitlements[/]: who may load or drop the orders, and through what")
for row in matrix.orderBy("operation", "user").collect():
    console.print(f"  {row.operation:5} {row.user:6} {row.via_kind} {row.via_principal} at {row.via_entity}")

# %% The same in SQL, worked out for one user alone
entitlements(POLICY, STATE, users=["bob"], spark=spark).createOrReplaceTempView("of_bob")
console.print("\n[bold]SQL[/]: what bob may do with tables, by operation")
query = "SELECT operation, count(*) AS tables FROM of_bob WHERE type = 'table' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5"
for row in spark.sql(query).collect():
    console.print(f"  {row.operation:28} {row.tables}")

# %% What an auditor signs: all of it, with figures and findings, in a page that needs nothing else
shutil.rmtree(output, ignore_errors=True)
certificate = certify(POLICY, STATE, output, operations=["load", "drop", "alter"], by="the walkthrough", spark=spark)
found = certificate.to_json()["findings"]
console.print("\n[bold]certify[/]: the matrix written down")
console.print(
    f"  {certificate.totals.entitlements:,} entitlements; {', '.join(f'{kind}: {n}' for kind, n in found.items())}"
)
console.print(f"  {os.path.relpath(output / 'report.html')}", soft_wrap=True)

# %% The end
spark.stop()
