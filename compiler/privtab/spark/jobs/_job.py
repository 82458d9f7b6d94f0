"""The common parts of all jobs: the session, progress on standard error, exit codes, atomic output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from privtab.errors import FileError, InvalidRequest, PolicyInvalid, PrivtabError, StateInvalid, UsageError
from privtab.exit_codes import ExitCode
from privtab.key_values import key_values
from privtab.printable import printable_json, printable_output
from privtab.spark.failures import first_lines, spark_errors
from privtab.spark.jobs._options import check, check_input, format_of, near
from privtab.spark.jobs._session import ProgressReporter, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from privtab.spark.choose import Choice

Body = Callable[[argparse.Namespace, Any, ProgressReporter], int]
SHOWN = 20
"""Most invalid rows of a state that are printed."""
NOT_GRANTED = "not granted"
READING: Mapping[str, dict[str, str]] = {
    "csv": {"header": "true", "escape": '"', "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
}
WRITING: Mapping[str, dict[str, str]] = {
    # Spaces are part of a name; by default, Spark would trim them.
    "csv": {
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
}


def explained(choice: Choice, options: argparse.Namespace) -> int:
    """Print the plan that would be used."""
    show(
        options,
        {"plan": choice.plan, "why": choice.why, "figures": choice.figures, "steps": choice.steps},
        [str(choice)],
    )
    return 0


def read(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The table that a job reads."""
    kind = options.input_format or format_of(options.input)
    settings = key_values(options.input_option, "--input-option", "KEY=VALUE", allow_empty=True)
    if kind is None and "/" not in options.input and not Path(options.input).exists():
        return _table(spark, options.input)
    check_input(options.input, options.input_format)
    # Otherwise a line with an extra cell would lose it and be decided as a different request.
    settings = READING.get(kind or "", {}) | settings
    return spark.read.format(kind or "parquet").options(**settings).load(options.input)


def _table(spark: SparkSession, name: str) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        frame = spark.table(name)
        frame.schema  # noqa: B018  (Connect looks up the table only now)
    except AnalysisException as error:
        if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
        raise FileError(f"no such file, and no such table: {name}{near(name)}") from error
    return frame


def write(
    frame: DataFrame, options: argparse.Namespace, progress: ProgressReporter, *, answers: bool = False
) -> dict[str, Any]:
    """Write a result atomically; returns its location and number of rows and, for answers, the numbers of allowed and invalid ones."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    kind = options.output_format or format_of(options.output) or "parquet"
    observation = Observation("privtab")
    counted = [F.count(F.lit(1)).alias("rows")]
    if answers:
        counted.append(F.count_if(F.col("allowed")).alias("allowed"))
        counted.append(F.count_if(F.col("reason") != NOT_GRANTED).alias("no_request"))
    with atomic_output(options.output, overwrite=options.overwrite) as place:
        progress(f"writing {options.output}")
        progress.place = Path(url2pathname(urlsplit(place).path)) if place.startswith("file://") else None
        writer = (
            frame.observe(observation, *counted).write.format(kind).mode("overwrite" if options.overwrite else "error")
        )
        writer.options(**WRITING.get(kind, {})).save(place)
        progress.place = None
    return {"output": options.output, "format": kind, **observation.get}


@contextmanager
def atomic_output(output: str, *, overwrite: bool) -> Iterator[str]:
    """Yield a location to write to, which replaces `output` on success. Remote locations rely on Spark's own commit."""
    if "://" in output and not output.startswith("file://"):
        yield output
        return
    target = Path(output.removeprefix("file://"))
    if target.exists() and not overwrite:
        raise UsageError(f"{target} exists: name another folder, or add `--overwrite`")
    from privtab._staged import atomic_folder

    with atomic_folder(target) as place:
        part = place / "part"
        yield part.as_uri()
        for path in list(part.iterdir()):
            path.rename(place / path.name)
        part.rmdir()


def show(options: argparse.Namespace, result: Mapping[str, Any], lines: Sequence[str]) -> None:
    """Print the result of a job on standard output, as JSON or as lines."""
    text = printable_json(result, indent=True, default=str) if options.format == "json" else "\n".join(lines)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@printable_output()
def run(
    job: str,
    body: Body,
    parser_: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    before: Callable[[argparse.Namespace], object] | None = None,
    *,
    lazily: bool = False,
) -> int:
    """Run a job and return its exit code, one of `ExitCode`. Expected errors end without a traceback.

    `before` checks the options before Spark is started. `body` receives the session, or with `lazily` a function that
    starts it.
    """
    try:
        options = parser_.parse_args(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else ExitCode.USAGE
    progress = ProgressReporter(quiet=options.quiet)
    try:
        if before is not None:
            before(options)
        check(options)
        with ExitStack() as stack:

            def start() -> SparkSession:
                progress("starting Spark")
                spark = stack.enter_context(
                    session(
                        job,
                        master=options.master,
                        remote=options.remote,
                        conf=options.conf,
                        packages=options.package,
                        bars=sys.stderr.isatty() and not options.quiet,
                    )
                )
                progress.watch(spark)
                return spark

            return body(options, start if lazily else start(), progress)
    except (PolicyInvalid, StateInvalid) as error:
        _print_error(_error_text(error))
        return ExitCode.FINDINGS
    except (UsageError, InvalidRequest) as error:
        _print_error(str(error))
        return ExitCode.USAGE
    except (PrivtabError, OSError) as error:
        _print_error(str(error))
        return ExitCode.EXTERNAL
    except spark_errors() as error:
        _print_error(f"Spark: {first_lines(str(error))}")
        return ExitCode.EXTERNAL
    finally:
        progress.end()


def _error_text(error: PrivtabError) -> str:
    if isinstance(error, StateInvalid):
        from privtab.state.findings import render_text
        from privtab.state.nodes import StateFinding

        first = str(error).partition("\n")[0]
        found = [finding for finding in error.findings if isinstance(finding, StateFinding)]
        more = f"and {len(found) - SHOWN:,} more\n" if len(found) > SHOWN else ""
        return f"{first}\n{render_text(found[:SHOWN])}{more}".rstrip()
    return str(error)


def _print_error(message: str) -> None:
    sys.stderr.write(f"privtab: {message}\n")
