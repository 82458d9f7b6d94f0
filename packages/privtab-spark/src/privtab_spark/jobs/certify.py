"""Write the matrix of entitlements, with a page to sign or its rows alone: `python -m privtab_spark.jobs.certify --help`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from privtab.base import ExitCode, GivenAttributes, UsageError, count, parse_key_values
from privtab_analysis.given_options import attribute_values, parts_given
from privtab_spark.jobs._job import (
    AtOption,
    InputTable,
    JobSession,
    OutputTable,
    PolicyAndState,
    SessionOptions,
    flags_of,
    run,
)
from privtab_spark.jobs._options import Option
from privtab_spark.jobs._session import where_spark_is
from privtab_spark.matrix.opening import from_file, lines
from privtab_spark.policies import open_policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from privtab_spark.certification.findings import Finding
    from privtab_spark.matrix.frame import EntitiesLike


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code, which is 1 for findings at the level of `--fail-on`."""
    return run("certify", write_certification, arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions(PolicyAndState):
    """Options for a policy, a state, and the scope of a matrix."""

    entities: Annotated[
        str | None, Option("a column `entity`, or `type` and `path`; default: all that the state names", "TABLE", "-e")
    ] = None
    operation: Annotated[tuple[str, ...], Option("an operation, as table/load; may repeat; default: all", "NAME")] = ()
    user: Annotated[tuple[str, ...], Option("a user; may repeat; default: every user", "NAME")] = ()
    principal: Annotated[tuple[str, ...], Option("a principal, as role:analyst; may repeat", "NAME")] = ()
    with_: Annotated[
        tuple[str, ...],
        Option(
            "what every request carries: the second object of operations that look at one (SLOT=TYPE:PATH; without it they are "
            "left out), a flag (NAME), or an attribute (request.NAME=VALUE, SLOT.NAME=VALUE); may repeat",
            "PART",
        ),
    ] = ()

    def check_scope(self) -> None:
        """Raise for an invalid scope."""
        objects = self._objects()
        if parts_given(self.with_)[2]:
            from privtab_spark.matrix.question import check_attributes
            from privtab_spark.matrix.question import objects as parsed

            check_attributes(self._attributes(), parsed(objects), open_policy(self.policy).vocabulary)
        if self.entities is not None and not _listed(self.entities):
            InputTable(input=self.entities).check()
        else:
            self.read_entities(None)

    def arguments(self) -> dict[str, Any]:
        """The options as arguments of `entitlements` and `certify`, except the entities."""
        return {
            "operations": self.operation or None,
            "users": self.user or None,
            "principals": self.principal or None,
            "with_": self._objects(),
            "flags": flags_of(self.with_),
            "attributes": self._attributes(),
        }

    def read_entities(self, spark: SparkSession | None) -> DataFrame | list[str] | None:
        """The `entities` argument; a table needs a session."""
        if self.entities is None:
            return None
        if _listed(self.entities):
            return from_file(Path(self.entities))
        if spark is None:
            raise UsageError(f"{self.entities} is read by Spark: take the plan `spark`")
        return InputTable(input=self.entities).read(spark)

    def _objects(self) -> dict[str, str]:
        form, example = "SLOT=TYPE:PATH", "to=schema:m/c/s"
        found = parse_key_values(parts_given(self.with_)[1], "--with", form, example=example)
        for slot, text in found.items():
            if not text.partition(":")[0] or ":" not in text:
                raise UsageError(f"`--with {slot}={text}`: write {form}, as in {example}")
        return found

    def _attributes(self) -> GivenAttributes:
        given = parts_given(self.with_)[2]
        return attribute_values(given, open_policy(self.policy).vocabulary) if given else GivenAttributes.NONE


def _listed(path: str) -> bool:
    return Path(path).suffix.lower() in (".txt", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsOptions:
    """Options for the rows of a matrix that are written without a page."""

    at: AtOption = None
    ways: Annotated[Literal["first", "all"], Option("of rows alone: one for each way, or for the first way")] = "first"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """Options for the page of a certification, its findings, and where they are computed."""

    people: Annotated[
        str | None, Option("the users that exist, one per line; others are reported as having left", "FILE")
    ] = None
    title: Annotated[str | None, Option("the title of the page", "TITLE")] = None
    by: Annotated[str | None, Option("who requested it; default: the user of this process", "NAME")] = None
    plan: Annotated[
        Literal["auto", "process", "spark"], Option("where to work: in this process, on Spark, or by size (auto)")
    ] = "auto"
    shown: Annotated[int | None, Option("rows on the page; default: 2000", "ROWS")] = None
    fail_on: Annotated[
        Literal["high", "medium", "low"] | None, Option("exit code 1 for findings of at least this level")
    ] = None


def _given(options: RowsOptions | PageOptions) -> str:
    """The options that are not as they are by default, as they are written."""
    changed = [field.name for field in fields(options) if getattr(options, field.name) != field.default]
    return ", ".join(f"`--{name.replace('_', '-')}`" for name in changed)


def write_certification(
    *,
    question: MatrixOptions,
    output: OutputTable,
    rows: RowsOptions,
    page: PageOptions,
    session: SessionOptions,
) -> int:
    """Write who may do what, and through which grants: figures, findings and a page to sign, or the rows alone.

    The folder has report.html, which needs nothing else, summary.json, findings.csv, and entitlements/ with all rows. An output
    with the suffix of a format, as matrix.parquet or matrix.csv, has the rows alone, one for each entitlement, and is made by Spark.

    Example:
      privtab certify -p gravitino/1.1.0 -s state.yaml -o certified
      privtab certify -p gravitino/1.1.0 -s state.yaml -o certified --people staff.txt --fail-on high --by 'audit team'
      privtab certify -p gravitino/1.1.0 -s state.yaml -e tables.csv -o matrix.csv --operation load --principal role:analyst
    """
    if output.output is None:
        raise UsageError("give `--output FOLDER`")
    alone = output.format is not None
    if unused := _given(page) if alone else _given(rows):
        other = "the page: leave the suffix of the output off" if alone else "rows alone: give `-o FOLDER.parquet`"
        raise UsageError(f"{unused}: for {other}")
    question.check_scope()
    return _write_rows(question, output, rows, session) if alone else _write_page(question, output, page, session)


def _write_rows(question: MatrixOptions, output: OutputTable, rows: RowsOptions, session: JobSession) -> int:
    output.check()
    question.check()
    spark = session.start("certify")
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    from privtab_spark import entitlements

    session.progress("reading the policy and the state")
    entities = question.read_entities(spark)
    options = question.arguments()
    found = entitlements(question.policy, question.rows, entities, **options, ways=rows.ways, spark=spark, at=rows.at)
    if output.format == "csv":
        found = found.withColumn("via", F.to_json("via"))
    result = output.write(found, session.progress)
    session.show(result, [f"{output.output}  {result['rows']:,} entitlements"])
    return 0


def _write_page(question: MatrixOptions, output: OutputTable, page: PageOptions, session: JobSession) -> int:
    users = None if page.people is None else [line.removeprefix("user:") for _, line in lines(Path(page.people))]
    if page.shown is not None and page.shown < 0:
        raise UsageError(f"`--shown {page.shown}`: give a number of rows")
    elsewhere = any(where_spark_is(session.conf)[1:])
    if page.plan == "process" and elsewhere:
        raise UsageError("`--plan process` starts no Spark: leave `spark.master` and `spark.remote` off")
    output.check()
    question.check()

    def start() -> SparkSession:
        return session.start("certify")

    from privtab_spark import certify
    from privtab_spark.certification.certifying import SHOWN
    from privtab_spark.certification.findings import LEVELS

    folder = output.output or ""
    written = certify(
        question.policy,
        question.rows,
        folder,
        _entities(question, page.plan, start),
        **question.arguments(),
        people=users,
        title=page.title,
        by=page.by,
        shown=SHOWN if page.shown is None else page.shown,
        overwrite=output.overwrite,
        plan="spark" if page.plan == "auto" and elsewhere else page.plan,
        spark=start,
        progress=session.progress,
    )
    totals = written.totals
    contents = f"{count(totals.entitlements, 'entitlement')} of {count(totals.principals, 'principal')}"
    findings = count(sum(finding.count for finding in written.findings), "finding")
    shown_lines = [
        f"{Path(folder) / 'report.html'}  {contents}, {findings}",
        *_kinds(written.findings),
    ]
    session.show(written.to_json() | {"output": folder}, shown_lines)
    grave = LEVELS[: LEVELS.index(page.fail_on) + 1] if page.fail_on else ()
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
