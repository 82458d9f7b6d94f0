"""Decide a request for each row of a table: `python -m privtab_spark.jobs.decide --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from privtab.base import UsageError
from privtab_spark.jobs import _job as job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab_spark.jobs._session import ProgressReporter


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code."""
    parser = job.parser(
        "decide",
        "The output has the rows and columns of the input, and two more: `allowed` (never null) and `reason`\n"
        "(null where it is true). A denial is an answer: the exit code is 0.",
        [
            "-p cdap/final -s state.yaml -i requests.parquet -o decided --subject user --action get --resource entity",
            "-p cdap/final -s state.tar.gz -i asked.csv -o out.csv --subject who --action-column what --type dataset --path path",
            "-p cdap/final -s state.yaml -i requests.parquet --subject user --action get --resource entity --explain",
        ],
        job.POLICY_AND_STATE,
        job.INPUT,
        job.OUTPUT,
        (
            ("--subject COLUMN!", "a column of user names"),
            ("--action OPERATION", "the operation of all rows"),
            ("--action-column COLUMN", "a column of operations"),
        ),
        job.REQUESTS,
        [("--keep all|allowed|denied", "which rows to write")],
    )
    return job.run("decide", _decide, parser, arguments, _check_options)


def _check_options(options: argparse.Namespace) -> None:
    if bool(options.action) == bool(options.action_column):
        raise UsageError("give `--action OPERATION` or `--action-column COLUMN`")
    job.check_requests(options)


def _decide(options: argparse.Namespace, spark: SparkSession, progress: ProgressReporter) -> int:
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    from privtab_spark import decide, plan

    progress(f"reading {options.input}, the policy and the state")
    frame = job.read(spark, options)
    if options.action_column and options.action_column not in frame.columns:
        raise UsageError(f"no column `{options.action_column}`; there are: {', '.join(frame.columns)}")
    decide_arguments: dict[str, Any] = {
        "subject": options.subject,
        "action": options.action or F.col(f"`{options.action_column}`"),
        **job.requests(options, frame),
    }
    if options.explain:
        return job.explained(plan(frame, options.policy, options.state, **decide_arguments), options)
    with progress.choice():
        decided = decide(frame, options.policy, options.state, **decide_arguments)
    if options.keep != "all":
        decided = decided.where("allowed" if options.keep == "allowed" else "not allowed")
    result = job.write(decided, options, progress, answers=True)
    rows, allowed = result["rows"], result["allowed"]
    line = f"{options.output}  {rows:,} rows, {allowed:,} allowed, {rows - allowed:,} denied"
    if result["no_request"]:
        line += f", {result['no_request']:,} invalid (see `reason`)"
    job.show(options, result | {"denied": rows - allowed}, [line])
    return 0


if __name__ == "__main__":
    sys.exit(main())
