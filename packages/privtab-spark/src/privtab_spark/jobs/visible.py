"""Keep the rows of a table that a user may see: `python -m privtab_spark.jobs.visible --help`."""

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
        "visible",
        "The output has the columns of the input, and those of its rows on whose resource the user may perform the action.",
        [
            "-p cdap/final -s state.yaml -i datasets.csv -o mine.csv --user alice --action get --type dataset --path path"
        ],
        job.POLICY_AND_STATE,
        job.INPUT,
        job.OUTPUT,
        [("--user NAME", "one user for all rows"), ("--subject COLUMN", "a column of user names")],
        [("--action OPERATION", "the operation (list)")],
        job.REQUESTS,
    )
    parser.set_defaults(action="list")
    return job.run("visible", _visible, parser, arguments, _check_options)


def _check_options(options: argparse.Namespace) -> None:
    if bool(options.user) == bool(options.subject):
        raise UsageError("give `--user NAME` or `--subject COLUMN`")
    job.check_requests(options)


def _visible(options: argparse.Namespace, spark: SparkSession, progress: ProgressReporter) -> int:
    from privtab_spark import plan, user, visible

    progress(f"reading {options.input}, the policy and the state")
    frame = job.read(spark, options)
    visible_arguments: dict[str, Any] = {
        "subject": user(options.user) if options.user else options.subject,
        "action": options.action,
        **job.requests(options, frame),
    }
    if options.explain:
        return job.explained(plan(frame, options.policy, options.state, **visible_arguments), options)
    with progress.choice():
        visible_rows = visible(frame, options.policy, options.state, **visible_arguments)
    result = job.write(visible_rows, options, progress)
    job.show(options, result, [f"{options.output}  {result['rows']:,} rows"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
