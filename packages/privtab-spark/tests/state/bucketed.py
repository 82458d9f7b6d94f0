"""Run by a test in a process of its own: commands that keep a state in a bucket of S3, with Spark's own S3 client."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import spark_sessions

from privtab.command._app import run
from privtab_spark.jobs._session import with_packages


def main(endpoint: str, package: str, commands: str) -> None:
    """Run the command lines of a file one after the other; a line of standard output for each: its exit code."""
    settings = {
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "some",
        "spark.hadoop.fs.s3a.secret.key": "thing",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.change.detection.mode": "none",
    }
    settings = with_packages([package], settings, remote=False)
    named: dict[str, Any] = {name.replace(".", "__"): value for name, value in settings.items()}
    spark = spark_sessions.session(memory="1g", brief=True, **named)
    steps: Sequence[object] = json.loads(Path(commands).read_text(encoding="utf-8"))
    for step in steps:
        if isinstance(step, str):
            # Between two commands the sources change.
            name, _, text = step.partition("\n")
            with Path(name).open("a", encoding="utf-8") as file:
                file.write(text)
            continue
        assert isinstance(step, list)
        sys.stdout.write(f"{run(step)}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
