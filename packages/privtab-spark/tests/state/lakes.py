"""Run by a test in a process of its own: writes real tables of Delta and Iceberg, which the test then reads a state from."""

from __future__ import annotations

import sys
from typing import Any

import spark_sessions

from privtab_spark.jobs._session import with_packages

GRANTS = "role_name string, privilege string, lake string, name string"


def catalog(folder: str) -> dict[str, str]:
    """The settings of an Iceberg catalog in a folder."""
    return {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"{folder}/warehouse",
    }


def main(folder: str, *packages: str) -> None:
    """Grants in two versions, the second of which lacks a row of the first; memberships, and people."""
    iceberg = any("iceberg" in package for package in packages)
    settings = with_packages(packages, catalog(folder) if iceberg else {}, remote=False)
    named: dict[str, Any] = {name.replace(".", "__"): value for name, value in settings.items()}
    spark = spark_sessions.session(memory="1g", brief=True, **named)
    first = spark.createDataFrame([("clerk", "select", "l", "a/b"), ("old", "select", "l", "t")], GRANTS)
    if any("delta" in package for package in packages):
        first.write.format("delta").save(f"{folder}/grants")
        spark.sql(f"delete from delta.`{folder}/grants` where role_name = 'old'")  # noqa: S608 - a test's own folder
        people = spark.createDataFrame([("ann", 7)], "person string, team int")
        people.write.format("delta").save(f"{folder}/exports/memberships")
        spark.createDataFrame([("ann", "7")], "user string, group string").write.format("delta").mode(
            "overwrite"
        ).option("overwriteSchema", "true").save(f"{folder}/exports/memberships")
    if iceberg:
        first.writeTo("lake.iam.grants").create()
        spark.sql("delete from lake.iam.grants where role_name = 'old'")
        spark.createDataFrame([("lake:l", "ann")], "entity string, owner string").writeTo("lake.iam.owners").create()
        snapshots = spark.table("lake.iam.grants.snapshots").orderBy("committed_at").collect()
        sys.stdout.write(f"snapshot {snapshots[0].snapshot_id}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
