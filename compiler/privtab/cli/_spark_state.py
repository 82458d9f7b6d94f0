"""`privtab state read` and `build`: the commands that need Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab._install import how_to_install
from privtab.cli._options import FormatOption, PartialOption, PolicyOption, VariantOption
from privtab.cli._output import Format, err, fail_if, out, print_error, print_if_data, table
from privtab.cli._signing import KeyIdOption, ScopeOption, SequenceOption, SigningKeyOption, signing_key
from privtab.errors import UsageError
from privtab.exit_codes import ExitCode
from privtab.key_values import key_values
from privtab.plural import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab.spark.state import Build

MAX_SHARDS_SHOWN = 10

SourcesArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCES", help="A YAML or JSON file that lists the tables, or a folder with one file for each table."
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Setting of the Spark session; repeatable."),
]
PackageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--package",
        metavar="GROUP:ARTIFACT:VERSION",
        help="Maven packages to load, such as Delta, Iceberg or a JDBC driver; repeatable.",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark master: local[4], a cluster, or sc://… (Connect)."),
]


def read(
    sources: SourcesArgument,
    policy: PolicyOption,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write valid rows, findings and counts to this folder."),
    ] = None,
    files: Annotated[
        str, typer.Option("--files", metavar="FORMAT", help="Output format: parquet, orc or json.")
    ] = "parquet",
    variant: VariantOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    package: PackageOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Validate the rows of a state with Spark, and write valid rows, findings and counts.

    Exits with 1 if any row is invalid.

    Example:

    \b
      privtab state read exports/ --policy gravitino/1.1.0
      privtab state read sources.yaml --policy gravitino/1.1.0 -o /lake/iam/checked --master 'local[4]'
    """
    from privtab.pipeline import load_program

    program = load_program(policy, variant=variant)
    with _session(master, conf, package) as spark:
        from privtab.spark.state import read_state

        checked_state = read_state(spark, sources, program)
        with _stage_display() as show_stage:
            show_stage("checking rows")
            if output is not None:
                manifest = checked_state.write(output, files)
                valid_counts, findings = manifest["rows"], manifest["findings"]
            else:
                rows = [row.asDict() for row in checked_state.summary().collect()]
                valid_counts = {row["table"]: row["rows"] for row in rows if row["code"] == "good"}
                findings = [
                    [summary_row["table"], summary_row["code"], summary_row["severity"], summary_row["rows"]]
                    for summary_row in rows
                    if summary_row["code"] != "good"
                ]
    if not print_if_data(format_, {"good": valid_counts, "findings": _finding_rows(findings), "output": output}):
        _show_findings(findings)
        out().print(
            "good rows: "
            + ", ".join(count(number, name.replace("_", " ")[:-1]) for name, number in valid_counts.items())
        )
        if output is not None:
            out().print(f"written to {output}", soft_wrap=True)
    fail_if(any(severity == "error" for _, _, severity, _ in findings))


def build(
    sources: SourcesArgument,
    policy: PolicyOption,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FOLDER", help="A folder that the driver and all executors can reach."),
    ],
    variant: VariantOption = None,
    allow_partial: PartialOption = False,
    full: Annotated[bool, typer.Option("--full", help="Rebuild every shard, changed or not.")] = False,
    key: SigningKeyOption = None,
    key_id: KeyIdOption = None,
    scope: ScopeOption = "",
    sequence: SequenceOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    package: PackageOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Validate, index and bundle a state with Spark, in shards by root entity. Unchanged shards are kept.

    For a policy compiled with `--sharded`. Exits with 1 if any row is invalid: the last build stays, and `rejected/` has every finding.

    Example:

    \b
      privtab state build exports/ --policy gravitino/1.1.0 -o build/state
      privtab state build sources.yaml --policy gravitino/1.1.0 -o /shared/state --master 'local[4]' --format json
      privtab state build sources.yaml --policy gravitino/1.1.0 -o /shared/state --signing-key prod.pem --sequence 812
    """
    signing = signing_key(key, key_id, scope, sequence)
    from privtab.bundle.provenance import provenance
    from privtab.pipeline import load_program

    program = load_program(policy, variant=variant)
    origin = provenance(Path(sources), policy=f"{program.system}/{program.version}")
    with _session(master, conf, package) as spark:
        from privtab.spark.state import build as built

        started = time.perf_counter()
        with _stage_display() as show_stage:
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


@contextmanager
def _session(master: str | None, conf: list[str] | None, packages: list[str] | None) -> Iterator[SparkSession]:
    """A Spark session for one command; an existing session of this process is used and left open.

    Errors of Spark in the block exit with code 3, without a traceback.
    """
    settings = key_values(conf, "--conf", example="spark.driver.memory=8g", allow_empty=True)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError(f"this needs the extra `spark`: {how_to_install('compiler', 'spark')}") from error
    from privtab.spark.failures import first_lines, spark_errors
    from privtab.spark.packages import with_packages

    connect = master is not None and master.startswith("sc://")
    settings = with_packages(packages or [], settings, remote=connect)
    try:
        with _opened(SparkSession, master, settings) as spark:
            yield spark
    except spark_errors() as error:
        print_error(f"Spark: {first_lines(str(error))}")
        raise typer.Exit(ExitCode.EXTERNAL) from None


@contextmanager
def _opened(session: type[SparkSession], master: str | None, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """The existing session, or a new one that ends with the command."""
    import os
    import sys

    active = session.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = session.builder.appName("privtab state")
    if master is not None:
        builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    for name, value in {"spark.ui.showConsoleProgress": "false", **settings}.items():
        builder = builder.config(name, value)
    with _stage_display() as show_stage:
        show_stage("starting Spark")
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stage_display() -> Iterator[Any]:
    """A status line on standard error for the current step; none without a terminal."""
    console = err()
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield status.update


def _show_findings(findings: list[list[Any]]) -> None:
    from privtab.state.findings import CODES

    if not findings:
        return
    lines = ((name, code, CODES[code], severity, f"{rows:,}") for name, code, severity, rows in findings)
    err().print(table("table", "code", "what", "severity", "rows", rows=lines, right=("rows",)))
    error_rows = sum(rows for *_, severity, rows in findings if severity == "error")
    if error_rows:
        print_error(f"{count(error_rows, 'finding')} in rows that were left out")


def _finding_rows(findings: list[list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(("table", "code", "severity", "rows"), row, strict=True)) for row in findings]


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
        console.print(
            f"{result.folder}/  unchanged: {count(len(shards), 'shard')}, revision {manifest['revision']}",
            soft_wrap=True,
        )
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
        f"{result.folder}/  {total:,} bytes: {parts}{signed}, revision {manifest['revision']}, {seconds:.1f} s",
        soft_wrap=True,
    )


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("read")(read)
    app.command("build")(build)
