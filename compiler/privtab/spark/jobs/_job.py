"""The common parts of all jobs: options, the session, progress on standard error, exit codes, atomic output."""

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
from privtab.formats import SPARK
from privtab.key_values import key_values
from privtab.printable import printable_json, printable_output
from privtab.spark.failures import first_lines, spark_errors
from privtab.spark.jobs import JOBS
from privtab.spark.jobs._before import check, check_input, ending, near
from privtab.spark.jobs._progress import ProgressReporter
from privtab.spark.jobs._session import session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from privtab.spark.choose import Choice

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


class _Help(argparse.RawDescriptionHelpFormatter):
    """Formats help like the other commands: a usage line, paragraphs, an example."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)


def parser(job: str, more: str, examples: Sequence[str]) -> argparse.ArgumentParser:
    """A parser with the options that all jobs have."""
    shown = "\n".join(f"  privtab spark {job} {example}" for example in examples)
    script = Path(__file__).with_name(f"{job}.py")
    module = f"  spark-submit {script} [OPTIONS]\n  python -m privtab.spark.jobs.{job} [OPTIONS]"
    parser_ = argparse.ArgumentParser(
        prog=f"privtab spark {job}",
        usage=f"privtab spark {job} [OPTIONS]",
        description=f"{JOBS[job]}\n\n{more}\n\nExample:\n{shown}",
        epilog=f"The same as a program:\n{module}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    common = parser_.add_argument_group("session and output")
    common.add_argument("--master", metavar="URL", help="Spark's master, as in local[4]; spark-submit gives its own")
    common.add_argument("--remote", metavar="URL", help="a Spark Connect server, as in sc://host")
    common.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; may repeat"
    )
    common.add_argument(
        "--package", action="append", default=[], metavar="GROUP:ARTIFACT:VERSION",
        help="jars that Spark fetches, as those of Delta or Iceberg; may repeat",
    )  # fmt: skip
    common.add_argument("--format", choices=("text", "json"), default="text", help="for a person, or for a program")
    common.add_argument("--quiet", action="store_true", help="no progress")
    return parser_


def policy_options(parser_: argparse.ArgumentParser) -> None:
    """Add `--policy` and `--state`."""
    parser_.add_argument(
        "-p", "--policy", required=True, metavar="POLICY", help="a policy by name (cdap/final), a path, or a bundle"
    )
    parser_.add_argument(
        "-s", "--state", required=True, metavar="STATE", help="a file, a folder of tables, or a state bundle"
    )


def time_option(parser_: argparse.ArgumentParser) -> None:
    """Add `--at`."""
    parser_.add_argument("--at", metavar="TIME", help="the moment to answer for, as in 2026-03-03T12:00Z; default: now")


def table_options(parser_: argparse.ArgumentParser, *, inputs: bool = True) -> None:
    """Add the options for input and output."""
    if inputs:
        parser_.add_argument(
            "-i", "--input", required=True, metavar="TABLE", help="a file, a folder, or the name of a table"
        )
        parser_.add_argument(
            "--input-format", metavar="NAME", help="csv, json, parquet, delta …; default: by the suffix"
        )
        parser_.add_argument(
            "--input-option", action="append", default=[], metavar="KEY=VALUE", help="of the reader; may repeat"
        )
    parser_.add_argument("-o", "--output", metavar="FOLDER", help="where the result goes; must not exist")
    parser_.add_argument(
        "--output-format", metavar="NAME", help="like --input-format; default: by the suffix, else parquet"
    )
    parser_.add_argument("--overwrite", action="store_true", help="replace what is there")


def named_options(parser_: argparse.ArgumentParser) -> None:
    """Add the options for resources, `with` objects, flags, groups, the time and the plan."""
    time_option(parser_)
    parser_.add_argument("--resource", metavar="COLUMN", help="a column of entities (type:path)")
    parser_.add_argument(
        "--type", metavar="TYPE", help="the type of all resources; --path says which column has their paths"
    )
    parser_.add_argument("--path", metavar="COLUMN", help="a column of paths, beside --type")
    parser_.add_argument(
        "--with",
        dest="with_",
        action="append",
        default=[],
        metavar="SLOT=COLUMN",
        help="a second object: SLOT=COLUMN, or SLOT=TYPE:COLUMN",
    )
    parser_.add_argument(
        "--flag", action="append", default=[], metavar="NAME", help="a flag that is set for all rows; may repeat"
    )
    parser_.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="KIND.NAME=COLUMN",
        help="an attribute that each row gives: user.NAME, entity.NAME, request.NAME or SLOT.NAME; may repeat",
    )
    parser_.add_argument(
        "--groups", metavar="COLUMN", help="a column of arrays of groups, for policies that take them from requests"
    )
    parser_.add_argument(
        "--groups-separator",
        metavar="TEXT",
        help="separator of groups where --groups is a column of strings; an empty string is no group, and so is an empty cell "
        "of CSV, where nothing tells it from null",
    )
    parser_.add_argument(
        "--active-roles",
        metavar="COLUMN",
        help="a column of arrays of roles, for policies whose requests name the active ones; a null denies its row",
    )
    parser_.add_argument(
        "--active-roles-separator",
        metavar="TEXT",
        help="separator of roles where --active-roles is a column of strings; an empty string is no role, and so is an empty cell of CSV",
    )
    parser_.add_argument("--plan", choices=("auto", "kernel", "joins"), default="auto", help="how Spark decides")
    parser_.add_argument("--explain", action="store_true", help="print the plan and write nothing")


def resource(options: argparse.Namespace) -> str | tuple[str, str]:
    """The `resource` argument given by the options; raises UsageError."""
    if options.resource and not (options.type or options.path):
        return str(options.resource)
    if options.type and options.path and not options.resource:
        return str(options.type), str(options.path)
    raise UsageError("give `--resource COLUMN`, or `--type TYPE` and `--path COLUMN`")


def check_options(options: argparse.Namespace) -> None:
    """Raise UsageError for options of `named_options` that cannot be combined, or a missing output."""
    resource(options)
    objects(options)
    attributes(options)
    for what, column, separator in (
        ("groups", options.groups, options.groups_separator),
        ("active-roles", options.active_roles, options.active_roles_separator),
    ):
        if separator is not None and not (column and separator):
            raise UsageError(f"`--{what}-separator TEXT` goes with `--{what} COLUMN`")
    if options.output is None and not options.explain:
        raise UsageError("give `--output FOLDER`, or `--explain`")


def groups(options: argparse.Namespace, frame: DataFrame) -> Column | str | None:
    """The `groups` argument given by the options; raises UsageError for a column of strings without `--groups-separator`."""
    return _names(options, frame, "groups", options.groups, options.groups_separator)


def active_roles(options: argparse.Namespace, frame: DataFrame) -> Column | str | None:
    """The `active_roles` argument given by the options; raises UsageError as `groups`."""
    return _names(options, frame, "active-roles", options.active_roles, options.active_roles_separator)


def _names(
    options: argparse.Namespace, frame: DataFrame, what: str, column: str | None, separator: str | None
) -> Column | str | None:
    """A column of lists of names: as it is, or of texts that are divided at a separator."""
    if column is None or column not in frame.columns:
        return column  # `decide` reports a missing column
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)
    from pyspark.sql.types import StringType

    if not isinstance(frame.schema[column].dataType, StringType):
        return column
    if separator is None:
        nouns = what.rpartition("-")[2]
        raise UsageError(f"`{column}` is a column of strings: give the separator of {nouns} by `--{what}-separator`")
    text = F.col(f"`{column}`")
    if (options.input_format or _format(options.input)) == "csv":
        text = F.coalesce(text, F.lit(""))
    # `F.trim` itself would also receive the position in the array.
    names = F.transform(F.split(text, f"\\Q{separator}\\E"), lambda name: F.trim(name))  # noqa: PLW0108
    return F.when(F.trim(text) == "", F.array().cast("array<string>")).otherwise(names)


def named(options: argparse.Namespace, frame: DataFrame) -> dict[str, Any]:
    """The options of `named_options` as arguments of `decide`, `visible` and `plan`."""
    return {
        "resource": resource(options),
        "with_": objects(options),
        "flags": options.flag,
        "groups": groups(options, frame),
        "active_roles": active_roles(options, frame),
        "attributes": attributes(options),
        "plan": options.plan,
        "at": options.at,
    }


def explained(choice: Choice, options: argparse.Namespace) -> int:
    """Print the plan that would be used."""
    show(
        options,
        {"plan": choice.plan, "why": choice.why, "figures": choice.figures, "steps": choice.steps},
        [str(choice)],
    )
    return 0


def objects(options: argparse.Namespace) -> dict[str, str | tuple[str, str]]:
    """The `with_` argument given by the options."""
    found: dict[str, str | tuple[str, str]] = {}
    for slot, text in key_values(options.with_, "--with", "SLOT=COLUMN", example="to=target_schema").items():
        kind, colon, column = text.partition(":")
        found[slot] = (kind, column) if colon else text
    return found


def attributes(options: argparse.Namespace) -> dict[str, Any]:
    """The `attributes` argument given by the options; raises UsageError."""
    found: dict[str, Any] = {}
    form, example = "KIND.NAME=COLUMN", "request.mfa=mfa"
    for place, column in key_values(options.attribute, "--attribute", form, example=example).items():
        kind, dot, name = place.partition(".")
        if not dot:
            raise UsageError(f"`--attribute {place}={column}`: write {form}, as in {example}")
        of_kind = found if kind in ("user", "entity", "request") else found.setdefault("with", {})
        of_kind.setdefault(kind, {})[name] = column
    return found


def read(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The table that a job reads."""
    kind = options.input_format or _format(options.input)
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
    frame: DataFrame, options: argparse.Namespace, tell: ProgressReporter, *, answers: bool = False
) -> dict[str, Any]:
    """Write a result atomically; returns its location and number of rows and, for answers, the numbers of allowed and invalid ones."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    kind = options.output_format or _format(options.output) or "parquet"
    observation = Observation("privtab")
    counted = [F.count(F.lit(1)).alias("rows")]
    if answers:
        counted.append(F.count_if(F.col("allowed")).alias("allowed"))
        counted.append(F.count_if(F.col("reason") != NOT_GRANTED).alias("no_request"))
    with atomic_output(options.output, overwrite=options.overwrite) as place:
        tell(f"writing {options.output}")
        tell.place = Path(url2pathname(urlsplit(place).path)) if place.startswith("file://") else None
        writer = (
            frame.observe(observation, *counted).write.format(kind).mode("overwrite" if options.overwrite else "error")
        )
        writer.options(**WRITING.get(kind, {})).save(place)
        tell.place = None
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
    from privtab.spark.folders import atomic_folder

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


def run(
    job: str,
    body: Callable[[argparse.Namespace, Any, ProgressReporter], int],
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
    with printable_output():
        return _run(job, body, parser_, arguments, before, lazily=lazily)


def _run(
    job: str,
    body: Callable[[argparse.Namespace, Any, ProgressReporter], int],
    parser_: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    before: Callable[[argparse.Namespace], object] | None,
    *,
    lazily: bool,
) -> int:
    try:
        options = parser_.parse_args(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else ExitCode.USAGE
    tell = ProgressReporter(quiet=options.quiet)
    try:
        if before is not None:
            before(options)
        check(options)
        with ExitStack() as stack:

            def start() -> SparkSession:
                tell("starting Spark")
                spark = stack.enter_context(session(options, job))
                tell.watch(spark)
                return spark

            return body(options, start if lazily else start(), tell)
    except (PolicyInvalid, StateInvalid) as error:
        _complain(_error_text(error))
        return ExitCode.FINDINGS
    except (UsageError, InvalidRequest) as error:
        _complain(str(error))
        return ExitCode.USAGE
    except (PrivtabError, OSError) as error:
        _complain(str(error))
        return ExitCode.EXTERNAL
    except spark_errors() as error:
        _complain(f"Spark: {first_lines(str(error))}")
        return ExitCode.EXTERNAL
    finally:
        tell.end()


def _error_text(error: PrivtabError) -> str:
    if isinstance(error, StateInvalid):
        from privtab.state.findings import render_text
        from privtab.state.nodes import StateFinding

        first = str(error).partition("\n")[0]
        found = [finding for finding in error.findings if isinstance(finding, StateFinding)]
        more = f"and {len(found) - SHOWN:,} more\n" if len(found) > SHOWN else ""
        return f"{first}\n{render_text(found[:SHOWN])}{more}".rstrip()
    return str(error)


def _complain(message: str) -> None:
    sys.stderr.write(f"privtab: {message}\n")


def _format(path: str) -> str | None:
    return SPARK.get(ending(path))
