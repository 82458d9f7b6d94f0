"""Write the matrix with figures, findings and a page: `python -m privtab_spark.jobs.certify --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privtab.base import ExitCode, UsageError
from privtab_spark.jobs import _job as job
from privtab_spark.jobs.entitlements import MATRIX, check_options, entities, matrix
from privtab_spark.matrix.opening import from_file, lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab_spark.certification.findings import Finding
    from privtab_spark.jobs._session import ProgressReporter
    from privtab_spark.matrix.frame import EntitiesLike


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code, which is 1 for findings at the level of `--fail-on`."""
    parser = job.parser(
        "certify",
        "The folder has report.html, which needs nothing else, summary.json, findings.csv, and entitlements/ with all rows.",
        [
            "-p gravitino/1.1.0 -s state.yaml -o certified",
            "-p gravitino/1.1.0 -s state.yaml -o certified --people staff.txt --fail-on high --by 'audit team'",
        ],
        job.POLICY_AND_STATE,
        MATRIX,
        (
            ("-o --output FOLDER!", "output folder; must not exist"),
            ("--overwrite", "replace an existing output"),
            ("--data-format parquet|csv", "of the rows (parquet)"),
            ("--people FILE", "the users that exist, one per line; others are reported as having left"),
            ("--title TITLE", "the title of the page"),
            ("--by NAME", "who requested it; default: the user of this process"),
            ("--plan auto|process|spark", "where to work: in this process, on Spark, or by size (auto)"),
        ),
    )
    job.add(parser, "--shown ROWS", "rows on the page (2000)", type=int, default=2000)
    level = "exit code 1 for findings of at least this level"
    job.add(parser, "--fail-on high|medium|low", level, default=None)
    return job.run("certify", _certify, parser, arguments, _check_options, lazily=True)


def _check_options(options: argparse.Namespace) -> None:
    _people(options.people)
    if options.shown < 0:
        raise UsageError(f"`--shown {options.shown}`: give a number of rows")
    check_options(options)
    if options.plan == "process" and (options.master or options.remote):
        raise UsageError("`--plan process` starts no Spark: leave `--master` and `--remote` off")


def _certify(options: argparse.Namespace, spark: Callable[[], SparkSession], progress: ProgressReporter) -> int:
    from privtab_spark import certify
    from privtab_spark.certification.findings import LEVELS

    written = certify(
        options.policy,
        options.state,
        options.output,
        _entities(options, spark),
        **matrix(options),
        people=_people(options.people),
        format=options.data_format,
        title=options.title,
        by=options.by,
        shown=options.shown,
        overwrite=options.overwrite,
        plan="spark" if options.plan == "auto" and (options.master or options.remote) else options.plan,
        spark=spark,
        progress=progress,
    )
    totals = written.totals
    page = Path(options.output) / "report.html"
    contents = f"{totals.entitlements:,} entitlements of {totals.principals:,} principals"
    lines = [
        f"{page}  {contents}, {sum(finding.count for finding in written.findings):,} findings",
        *_kinds(written.findings),
    ]
    job.show(options, written.to_json() | {"output": options.output}, lines)
    grave = LEVELS[: LEVELS.index(options.fail_on) + 1] if options.fail_on else ()
    return ExitCode.FINDINGS if any(finding.level in grave for finding in written.findings) else 0


def _entities(options: argparse.Namespace, spark: Callable[[], SparkSession]) -> EntitiesLike:
    """The entities, as a list if they can be read without Spark."""
    path = None if options.entities is None else Path(options.entities)
    if path is None or options.plan == "spark" or not path.is_file():
        return None if path is None else entities(spark(), options)
    if path.suffix.lower() in (".csv", ".parquet"):
        return from_file(path)
    return entities(None, options)


def _kinds(findings: Sequence[Finding]) -> list[str]:
    counts: dict[tuple[str, str], int] = {}
    for finding in findings:
        counts[finding.level, finding.kind] = counts.get((finding.level, finding.kind), 0) + finding.count
    return [f"  {level:6}  {kind}: {count:,}" for (level, kind), count in counts.items()]


def _people(path: str | None) -> list[str] | None:
    if path is None:
        return None
    return [line.removeprefix("user:") for _, line in lines(Path(path))]


if __name__ == "__main__":
    sys.exit(main())
