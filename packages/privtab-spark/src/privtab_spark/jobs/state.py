"""Read a state from any Spark source, validate it and write the valid rows: `python -m privtab_spark.jobs.state --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from privtab.base import ExitCode, FileError, state_location
from privtab_spark.jobs import _job as job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab_spark.jobs._session import ProgressReporter


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code, which is 1 if rows are invalid."""
    parser = job.parser(
        "state",
        "Valid rows, findings and a summary are written below the folder. Its manifest is written last; files that it does not\n"
        "name are not part of the result. `privtab state build` makes bundles in shards from the same sources.\n\n"
        "The exit code is 1 if rows are invalid.",
        ["sources.yaml -p gravitino/1.1.0 -o checked"],
        (
            ("-p --policy POLICY!", "a policy by name (cdap/final) or a path"),
            ("-o --output FOLDER!", "output folder"),
            ("--data-format NAME", "format of the rows (parquet)"),
        ),
    )
    parser.add_argument(
        "sources", metavar="SOURCES", help="a YAML file that says where each table is, or a folder with one for each"
    )
    parser.set_defaults(data_format="parquet")
    return job.run("state", _state, parser, arguments, _check_options)


def _check_options(options: argparse.Namespace) -> None:
    if "://" not in options.sources and not state_location(options.sources)[0].exists():
        raise FileError(f"no such file or folder: {options.sources}")


def _state(options: argparse.Namespace, spark: SparkSession, progress: ProgressReporter) -> int:
    from privtab_spark import read_state

    progress(f"reading {options.sources}")
    found = read_state(spark, options.sources, options.policy)
    progress(f"checking the rows, writing {options.output}")
    written = found.write(options.output, options.data_format)
    lines = [f"{options.output}  " + ", ".join(f"{count:,} {table}" for table, count in written["rows"].items())]
    lines += [
        f"  {severity:7}  {code} in {table}: {count:,} row(s)" for table, code, severity, count in written["findings"]
    ]
    job.show(options, written, lines)
    return ExitCode.FINDINGS if any(severity == "error" for _, _, severity, _ in written["findings"]) else 0


if __name__ == "__main__":
    sys.exit(main())
