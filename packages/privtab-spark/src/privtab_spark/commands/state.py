"""`privtab state build`: the rows of a state on Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from privtab.base import ExitCode, UsageError, count, needing
from privtab.command import (
    FormatOption,
    PartialOption,
    PolicyOptions,
    SigningOptions,
    argument,
    err,
    fail_if,
    option,
    out,
    print_error,
    print_if_data,
    row_counts,
    stop,
    table,
)
from privtab.state import StateFinding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab_spark.state import Build


MAX_SHARDS_SHOWN = 10
FINDING = ("table", "code", "severity", "rows")
"""The parts of a finding about the rows of a table."""

SourcesArgument = Annotated[
    str, argument("SOURCES", "A YAML or JSON file that lists the tables, or a folder with one file for each table.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The Spark session of a command."""

    conf: Annotated[
        list[str] | None,
        option(
            "--conf NAME=VALUE",
            "Setting of Spark, as spark.master=local[4], spark.remote=sc://…, spark.jars.packages=…; repeatable.",
        ),
    ] = None

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """A Spark session for one command; an existing session of this process is used and left open.

        Errors of Spark in the block exit with code 3, without a traceback.
        """
        with needing("this", "compiler", "spark"):
            import pyspark.sql  # noqa: F401
        from privtab_spark.failures import first_lines, spark_errors
        from privtab_spark.jobs._session import session

        opening = session("state", conf=self.conf or ())
        try:
            with ExitStack() as stack:
                with err().spinner("starting Spark"):
                    spark = stack.enter_context(opening)
                yield spark
        except spark_errors() as error:
            stop(f"Spark: {first_lines(str(error))}", ExitCode.EXTERNAL)


def build(
    sources: SourcesArgument,
    policy: PolicyOptions,
    output: Annotated[
        str | None, option("--output -o FOLDER", "A folder that the driver and all executors can reach.")
    ] = None,
    rows: Annotated[
        Literal["parquet", "orc", "json"] | None,
        option("--rows parquet|orc|json", "Write valid rows, findings and counts in this format instead of bundles."),
    ] = None,
    allow_partial: PartialOption = False,
    full: Annotated[bool, option("--full", "Rebuild every shard, changed or not.")] = False,
    *,
    sign: SigningOptions,
    session: SparkOptions,
    format_: FormatOption = "text",
) -> None:
    """Validate a state with Spark; with `-o`, bundle it in shards by root entity, of which unchanged ones are kept.

    For a policy compiled with `--sharded`. Exits with 1 if any row is invalid: the last build stays, and `rejected/` has every finding.
    With `--rows`, the output has all valid rows instead, and the findings.

    Example:
      privtab state build state/ --policy lake.yaml
      privtab state build state/ --policy lake.yaml -o build/state
      privtab state build sources.yaml --policy gravitino/1.1.0 -o /lake/iam/checked --rows parquet
      privtab state build sources.yaml --policy gravitino/1.1.0 -o /shared/state --conf 'spark.master=local[4]' --format json
      privtab state build sources.yaml --policy gravitino/1.1.0 -o /shared/state --signing-key prod.pem --signature sequence=812
    """
    if output is None or rows is not None:
        _check_only_rows(output, rows, sign, allow_partial=allow_partial, full=full)
        _read(sources, policy, output, rows, session, format_)
        return
    signing = sign.signing_key()
    from privtab.bundle import Provenance

    program = policy.program()
    origin = Provenance.of(Path(sources), policy=f"{program.system}/{program.version}")
    with session.session() as spark:
        from privtab_spark.state import build as built

        started = time.perf_counter()
        with err().spinner("building") as show_stage:
            result = built(
                spark, sources, program, output, allow_partial=allow_partial, full=full,
                provenance=origin, signing=signing, progress=show_stage,
            )  # fmt: skip
        seconds = time.perf_counter() - started
    findings = result.manifest["findings"]
    if print_if_data(format_, _build_json(result, seconds)):
        return
    _show_findings(findings)
    _show_build(result, seconds)


def _check_only_rows(
    output: str | None, rows: str | None, sign: SigningOptions, *, allow_partial: bool, full: bool
) -> None:
    """Raise UsageError for options about bundles, which are not written."""
    if output is None and rows is not None:
        raise UsageError("`--rows` says how to write them: give `--output FOLDER`")
    given = {
        "--allow-partial": allow_partial,
        "--full": full,
        "--signing-key": sign.key and sign.key != os.environ.get("PRIVTAB_SIGNING_KEY"),
        "--signature": sign.signature,
    }
    for name, value in given.items():
        if value:
            raise UsageError(f"`{name}` is about bundles: give `--output FOLDER`, without `--rows`")


def _read(
    sources: str,
    policy: PolicyOptions,
    output: str | None,
    rows: str | None,
    session: SparkOptions,
    format_: FormatOption,
) -> None:
    """Check the rows, and write the valid ones where there is an output."""
    program = policy.program()
    with session.session() as spark:
        from privtab_spark.state import read_state

        checked_state = read_state(spark, sources, program)
        with err().spinner("checking rows"):
            if output is not None:
                manifest = checked_state.write(output, rows or "parquet")
                valid_counts, findings = manifest["rows"], manifest["findings"]
            else:
                counted = [row.asDict() for row in checked_state.summary().collect()]
                valid_counts = {row["table"]: row["rows"] for row in counted if row["code"] == "good"}
                bad = [row for row in counted if row["code"] != "good"]
                findings = [[row[name] for name in FINDING] for row in bad]
    if not print_if_data(format_, {"good": valid_counts, "findings": _finding_rows(findings), "output": output}):
        _show_findings(findings)
        out().print(f"good rows: {row_counts(valid_counts)}")
        if output is not None:
            out().print(f"written to {output}")
    fail_if(any(severity == "error" for _, _, severity, _ in findings))


def _show_findings(findings: list[list[Any]]) -> None:
    if not findings:
        return
    lines = ((name, code, StateFinding.NAMES[code], severity, f"{rows:,}") for name, code, severity, rows in findings)
    err().print(table("table", "code", "what", "severity", "rows", rows=lines, right=("rows",)))
    error_rows = sum(rows for *_, severity, rows in findings if severity == "error")
    if error_rows:
        print_error(f"{count(error_rows, 'finding')} in rows that were left out")


def _finding_rows(findings: list[list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(FINDING, row, strict=True)) for row in findings]


def _build_json(result: Build, seconds: float) -> Mapping[str, Any]:
    manifest = result.manifest
    return {
        "folder": result.folder, "revision": manifest["revision"], "unchanged": result.unchanged,
        "rebuilt": list(result.rebuilt), "removed": list(result.removed), "people_changed": result.people,
        "signed": list(result.signed),
        "people": manifest["people"], "shards": manifest["shards"], "findings": _finding_rows(manifest["findings"]),
        "seconds": {"all": seconds, **result.seconds},
    }  # fmt: skip


def _show_build(result: Build, seconds: float) -> None:
    console, manifest = out(), result.manifest
    shards = manifest["shards"]
    if result.unchanged:
        console.print(f"{result.folder}/  unchanged: {count(len(shards), 'shard')}, revision {manifest['revision']}")
        return
    total = manifest["people"]["bytes"] + sum(shard["bytes"] for shard in shards.values())
    grid = table("part", "bytes", "grants", "owners", "members", right=("bytes", "grants", "owners", "members"))
    grid.add_row("people", f"{manifest['people']['bytes']:,}", "", "", "")
    largest = sorted(shards.items(), key=lambda item: (-item[1]["bytes"], item[0]))
    for key, shard in largest[:MAX_SHARDS_SHOWN]:
        grants = shard["allow"] + shard["deny"]
        grid.add_row(key, *(f"{number:,}" for number in (shard["bytes"], grants, shard["owners"], shard["members"])))
    console.print(grid)
    if len(largest) > MAX_SHARDS_SHOWN:
        console.print(f"and {len(largest) - MAX_SHARDS_SHOWN} smaller ones")
    parts = f"{count(len(shards), 'shard')}, {len(result.rebuilt)} rebuilt, {len(result.removed)} removed"
    signature = manifest["people"].get("signature")
    signed = "" if signature is None else f", {len(result.signed)} signed with {signature['key']}"
    console.print(
        f"{result.folder}/  {total:,} bytes: {parts}{signed}, revision {manifest['revision']}, {seconds:.1f} s"
    )
