"""Write the matrix with figures, findings and a page: `python -m privtab_spark.jobs.certify --help`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from privtab.base import ExitCode, UsageError
from privtab_spark.jobs._job import OverwriteOption, SessionOptions, check_output, run
from privtab_spark.jobs._options import Option
from privtab_spark.jobs._session import where_spark_is
from privtab_spark.jobs.entitlements import MatrixOptions
from privtab_spark.matrix.opening import from_file, lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab_spark.certification.findings import Finding
    from privtab_spark.matrix.frame import EntitiesLike


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code, which is 1 for findings at the level of `--fail-on`."""
    return run("certify", write_certification, arguments)


def write_certification(
    *,
    question: MatrixOptions,
    output: Annotated[str, Option("output folder; must not exist", "FOLDER", "-o")],
    overwrite: OverwriteOption = False,
    data_format: Annotated[Literal["parquet", "csv"], Option("of the rows (parquet)")] = "parquet",
    people: Annotated[
        str | None, Option("the users that exist, one per line; others are reported as having left", "FILE")
    ] = None,
    title: Annotated[str | None, Option("the title of the page", "TITLE")] = None,
    by: Annotated[str | None, Option("who requested it; default: the user of this process", "NAME")] = None,
    plan: Annotated[
        Literal["auto", "process", "spark"], Option("where to work: in this process, on Spark, or by size (auto)")
    ] = "auto",
    shown: Annotated[int, Option("rows on the page (2000)", "ROWS")] = 2000,
    fail_on: Annotated[
        Literal["high", "medium", "low"] | None, Option("exit code 1 for findings of at least this level")
    ] = None,
    session: SessionOptions,
) -> int:
    """Write the matrix with figures, findings and a page to sign.

    The folder has report.html, which needs nothing else, summary.json, findings.csv, and entitlements/ with all rows.

    Example:
      privtab certify -p gravitino/1.1.0 -s state.yaml -o certified
      privtab certify -p gravitino/1.1.0 -s state.yaml -o certified --people staff.txt --fail-on high --by 'audit team'
    """
    users = None if people is None else [line.removeprefix("user:") for _, line in lines(Path(people))]
    if shown < 0:
        raise UsageError(f"`--shown {shown}`: give a number of rows")
    question.check_scope()
    elsewhere = any(where_spark_is(session.conf)[1:])
    if plan == "process" and elsewhere:
        raise UsageError("`--plan process` starts no Spark: leave `spark.master` and `spark.remote` off")
    check_output(output, overwrite=overwrite)
    question.check()

    def start() -> SparkSession:
        return session.start("certify")

    from privtab_spark import certify
    from privtab_spark.certification.findings import LEVELS

    written = certify(
        question.policy,
        question.state,
        output,
        _entities(question, plan, start),
        **question.arguments(),
        people=users,
        format=data_format,
        title=title,
        by=by,
        shown=shown,
        overwrite=overwrite,
        plan="spark" if plan == "auto" and elsewhere else plan,
        spark=start,
        progress=session.progress,
    )
    totals = written.totals
    page = Path(output) / "report.html"
    contents = f"{totals.entitlements:,} entitlements of {totals.principals:,} principals"
    shown_lines = [
        f"{page}  {contents}, {sum(finding.count for finding in written.findings):,} findings",
        *_kinds(written.findings),
    ]
    session.show(written.to_json() | {"output": output}, shown_lines)
    grave = LEVELS[: LEVELS.index(fail_on) + 1] if fail_on else ()
    return ExitCode.FINDINGS if any(finding.level in grave for finding in written.findings) else 0


def _entities(question: MatrixOptions, plan: str, spark: Callable[[], SparkSession]) -> EntitiesLike:
    """The entities, as a list if they can be read without Spark."""
    path = None if question.entities is None else Path(question.entities)
    if path is None or plan == "spark" or not path.is_file():
        return None if path is None else question.read_entities(spark())
    if path.suffix.lower() in (".csv", ".parquet"):
        return from_file(path)
    return question.read_entities(None)


def _kinds(findings: Sequence[Finding]) -> list[str]:
    counts: dict[tuple[str, str], int] = {}
    for finding in findings:
        counts[finding.level, finding.kind] = counts.get((finding.level, finding.kind), 0) + finding.count
    return [f"  {level:6}  {kind}: {count:,}" for (level, kind), count in counts.items()]


if __name__ == "__main__":
    sys.exit(main())
