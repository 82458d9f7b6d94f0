"""Run by a test in a process of its own: a session with a JDBC driver, and a state from a real database."""

from __future__ import annotations

import sys

import spark_sessions

from privtab.base import UsageError
from privtab_spark.state import read_state


def show(value: object) -> None:
    """One line for the test."""
    sys.stdout.write(f"{value}\n")


def main(policy: str, address: str) -> None:
    """Print the good rows, what is wrong, and whether a message would have told the password."""
    spark = spark_sessions.session(memory="1g", spark__jars__packages="org.postgresql:postgresql:42.7.4")
    options = {
        "url": f"jdbc:postgresql://{address}/postgres", "user": "reader", "password": "${DB_PASSWORD}",
        "driver": "org.postgresql.Driver",
    }  # fmt: skip
    grants = {
        "format": "jdbc", "options": {**options, "dbtable": "iam_grants"}, "where": "active",
        "columns": {
            "grantee": "concat('role:', role_name)", "effect": {"value": "allow"},
            "entity": {"type": "lake", "names": ["lake"]},
        },
    }  # fmt: skip
    teams = {"format": "jdbc", "table": "teams", "options": options, "columns": {"user": "person", "group": "id"}}
    read = read_state(spark, {"grants": grants, "memberships": teams}, policy)
    show([tuple(row) for row in read.good("grants").collect()])
    show([tuple(row) for row in read.good("memberships").collect()])
    show(sorted((row.table, row.code, row.source) for row in read.findings().collect()))
    wrong = {**options, "user": "nobody", "url": options["url"] + "?ApplicationName=${DB_PASSWORD}"}
    try:
        read_state(spark, {"grants": {**grants, "options": {**wrong, "dbtable": "iam_grants"}}}, policy)
    except UsageError as error:
        show("the password" if "pa55word" in str(error) else "no secret")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
