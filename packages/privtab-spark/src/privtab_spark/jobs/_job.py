"""The common parts of all jobs: options, the session, progress on standard error, exit codes, atomic output.

Options are checked before Spark is started, and give the arguments of `privtab_spark`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from privtab.base import (
    ExitCode,
    FileError,
    InvalidRequest,
    PolicyInvalid,
    PrivtabError,
    StateInvalid,
    UsageError,
    nearest,
    parse_key_values,
    printable_json,
)
from privtab.base.printable import printable_output
from privtab_spark.failures import first_lines, spark_errors
from privtab_spark.formats import SPARK
from privtab_spark.jobs import JOBS
from privtab_spark.jobs._session import ProgressReporter, session
from privtab_spark.policies import open_policy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from privtab_spark.choose import Choice


_NO_FORMAT = (".tsv", ".txt", ".xls", ".xlsx", ".html", ".pdf", ".zip")
"""Suffixes of formats that are not recognised by suffix."""
_PACKED = (".gz", ".bz2", ".zst")
_ENDINGS = (*SPARK, *_NO_FORMAT, *_PACKED)
SPARK_SESSION = (
    ("--master URL", "Spark's master, as in local[4]; spark-submit gives its own"),
    ("--remote URL", "a Spark Connect server, as in sc://host"),
    ("--conf KEY=VALUE…", "a setting of Spark; may repeat"),
    ("--package GROUP:ARTIFACT:VERSION…", "jars that Spark fetches, as those of Delta or Iceberg; may repeat"),
    ("--format text|json", "output format: for people or for programs"),
    ("--quiet", "do not report progress"),
)
"""Options of every job; see `add`."""
POLICY_AND_STATE = (
    ("-p --policy POLICY!", "a policy by name (cdap/final), a path, or a bundle"),
    ("-s --state STATE!", "a file, a folder of tables, or a state bundle"),
)
INPUT = (
    ("-i --input TABLE!", "a file, a folder, or the name of a table"),
    ("--input-format NAME", "csv, json, parquet, delta …; default: by the suffix"),
    ("--input-option KEY=VALUE…", "an option of the reader; may repeat"),
)
OUTPUT = (
    ("-o --output FOLDER", "output folder; must not exist"),
    ("--output-format NAME", "like --input-format; default: by the suffix, else parquet"),
    ("--overwrite", "replace an existing output"),
)
TIME = (("--at TIME", "the moment to answer for, as in 2026-03-03T12:00Z; default: now"),)
REQUESTS = (
    *TIME,
    ("--resource COLUMN", "a column of entities (type:path)"),
    ("--type TYPE", "the type of all resources; --path says which column has their paths"),
    ("--path COLUMN", "a column of paths, beside --type"),
    ("--with SLOT=COLUMN…", "a second object: SLOT=COLUMN, or SLOT=TYPE:COLUMN"),
    ("--flag NAME…", "a flag that is set for all rows; may repeat"),
    (
        "--attribute KIND.NAME=COLUMN…",
        "an attribute that each row gives: user.NAME, entity.NAME, request.NAME or SLOT.NAME; may repeat",
    ),
    ("--groups COLUMN", "a column of arrays of groups, for policies that take them from requests"),
    (
        "--groups-separator TEXT",
        (
            "separator of groups where --groups is a column of strings; an empty string is no group, and so is an empty cell "
            "of CSV, where nothing tells it from null"
        ),
    ),
    (
        "--active-roles COLUMN",
        "a column of arrays of roles, for policies whose requests name the active ones; a null denies its row",
    ),
    (
        "--active-roles-separator TEXT",
        "separator of roles where --active-roles is a column of strings; an empty string is no role, and so is an empty cell of CSV",
    ),
    ("--plan auto|kernel|portions", "how Spark decides"),
    ("--explain", "print the plan and write nothing"),
)
"""Options for resources, `with` objects, flags, groups, the time and the plan."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Formats help like the other commands: a usage line, paragraphs, an example."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)


def parser(
    job: str, more: str, examples: Sequence[str], *options: Sequence[tuple[str, str]]
) -> argparse.ArgumentParser:
    """A parser with the options that all jobs have, and these."""
    name = f"privtab {job}" if job == "certify" else f"privtab spark {job}"
    shown = "\n".join(f"  {name} {example}" for example in examples)
    script = Path(__file__).with_name(f"{job}.py")
    module = f"  spark-submit {script} [OPTIONS]\n  python -m privtab_spark.jobs.{job} [OPTIONS]"
    parser_ = argparse.ArgumentParser(
        prog=name,
        usage=f"{name} [OPTIONS]",
        description=f"{JOBS[job]}\n\n{more}\n\nExample:\n{shown}",
        epilog=f"The same as a program:\n{module}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    common = parser_.add_argument_group("session and output")
    for written, meaning in SPARK_SESSION:
        add(common, written, meaning)
    for written, meaning in (option for group in options for option in group):
        add(parser_, written, meaning)
    return parser_


def add(parser_: argparse._ActionsContainer, written: str, meaning: str, **settings: Any) -> None:
    """Add an option as a command line has it: its names, and its value, if it takes one.

    `!` after the value: it must be given. `…`: it may be given several times. `a|b`: the choices, the first by default.
    """
    *names, value = written.split()
    if value.startswith("-"):
        parser_.add_argument(*names, value, action="store_true", help=meaning)
        return
    kind, last = value.rstrip("!…"), value[-1]
    if names == ["--with"]:
        settings["dest"] = "with_"
    if last == "!":
        settings["required"] = True
    elif last == "…":
        settings |= {"action": "append", "default": settings.get("default", [])}
    if "|" in kind:
        settings = {"choices": tuple(kind.split("|")), "default": kind.partition("|")[0], **settings}
    else:
        settings["metavar"] = kind
    parser_.add_argument(*names, help=meaning, **settings)


def check(options: argparse.Namespace) -> None:
    """Raise for a table, state, policy or operation that does not exist, and for an output that already exists."""
    values = vars(options)
    if values.get("output") is not None:
        _check_output(options.output, values.get("output_format"), overwrite=values.get("overwrite", True))
    if values.get("input") is not None:
        check_input(options.input, options.input_format)
    state = values.get("state")
    if state is not None and "://" not in state and not Path(state).exists():
        raise FileError(f"no such state: {state}")
    policy = open_policy(options.policy)
    if values.get("action") and values.get("type"):
        policy.vocabulary.check_operation(options.type, options.action)


def check_input(where: str, kind: str | None) -> None:
    """Raise for a missing file or an unknown format; a name without folder and suffix may be that of a table."""
    path = Path(where)
    if "://" in where:
        return
    ending = path.suffix.lower()
    if not path.exists() and (ending in _ENDINGS or "/" in where):
        raise FileError(f"no such table: {where}{near(where)}")
    if kind is None and path.is_file() and ending in _NO_FORMAT:
        tabs = ", as in `--input-format csv --input-option sep=\\t`" if ending == ".tsv" else ""
        raise UsageError(f"{where}: `{ending}` is not the suffix of a known format: add `--input-format`{tabs}")


def near(where: str) -> str:
    """`; did you mean …?` for a file in the same folder with a similar name, or an empty string."""
    path = Path(where)
    names = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    found = next((name for name in names if name.partition(".")[0] == path.name), None) or nearest(path.name, names)
    return f"; did you mean `{path.parent / found}`?" if found else ""


def format_of(where: str) -> str | None:
    """The name of the format that the suffix of a path means, without that of a compression; None if it means none."""
    path = Path(where)
    return SPARK.get((path.with_suffix("") if path.suffix.lower() in _PACKED else path).suffix.lower())


def _check_output(where: str, kind: str | None, *, overwrite: bool) -> None:
    path = Path(where.removeprefix("file://"))
    if "://" not in str(path) and path.exists() and not overwrite:
        raise UsageError(f"{path} exists: name another folder, or add `--overwrite`")
    if kind is None and path.suffix.lower() in _NO_FORMAT:
        raise UsageError(
            f"{where}: `{path.suffix}` is not the suffix of a format that can be written: end it in {', '.join(SPARK)}, or add "
            "`--output-format`"
        )


def check_requests(options: argparse.Namespace) -> None:
    """Raise UsageError for options of `REQUESTS` that cannot be combined, or a missing output."""
    resource(options)
    objects(options)
    attributes(options)
    for what in ("groups", "active-roles"):
        column, separator = _names_options(options, what)
        if separator is not None and not (column and separator):
            raise UsageError(f"`--{what}-separator TEXT` needs `--{what} COLUMN`")
    if options.output is None and not options.explain:
        raise UsageError("give `--output FOLDER`, or `--explain`")


def requests(options: argparse.Namespace, frame: DataFrame) -> dict[str, Any]:
    """The options of `REQUESTS` as arguments of `decide`, `visible` and `plan`."""
    return {
        "resource": resource(options),
        "with_": objects(options),
        "flags": options.flag,
        "groups": _names(options, frame, "groups"),
        "active_roles": _names(options, frame, "active-roles"),
        "attributes": attributes(options),
        "plan": options.plan,
        "at": options.at,
    }


def resource(options: argparse.Namespace) -> str | tuple[str, str]:
    """The `resource` argument given by the options; raises UsageError."""
    if options.resource and not (options.type or options.path):
        return str(options.resource)
    if options.type and options.path and not options.resource:
        return str(options.type), str(options.path)
    raise UsageError("give `--resource COLUMN`, or `--type TYPE` and `--path COLUMN`")


def objects(options: argparse.Namespace) -> dict[str, str | tuple[str, str]]:
    """The `with_` argument given by the options."""
    found: dict[str, str | tuple[str, str]] = {}
    for slot, text in parse_key_values(options.with_, "--with", "SLOT=COLUMN", example="to=target_schema").items():
        kind, colon, column = text.partition(":")
        found[slot] = (kind, column) if colon else text
    return found


def attributes(options: argparse.Namespace) -> dict[str, Any]:
    """The `attributes` argument given by the options; raises UsageError."""
    found: dict[str, Any] = {}
    form, example = "KIND.NAME=COLUMN", "request.mfa=mfa"
    for place, column in parse_key_values(options.attribute, "--attribute", form, example=example).items():
        kind, dot, name = place.partition(".")
        if not dot:
            raise UsageError(f"`--attribute {place}={column}`: write {form}, as in {example}")
        of_kind = found if kind in ("user", "entity", "request") else found.setdefault("with", {})
        of_kind.setdefault(kind, {})[name] = column
    return found


def _names_options(options: argparse.Namespace, what: str) -> tuple[str | None, str | None]:
    """The column and the separator of `--groups` or `--active-roles`."""
    name = what.replace("-", "_")
    return getattr(options, name), getattr(options, f"{name}_separator")


def _names(options: argparse.Namespace, frame: DataFrame, what: str) -> Column | str | None:
    """A column of lists of names: as it is, or of texts that are divided at a separator; raises UsageError without one."""
    column, separator = _names_options(options, what)
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
    if (options.input_format or format_of(options.input)) == "csv":
        text = F.coalesce(text, F.lit(""))
    # `F.trim` itself would also receive the position in the array.
    names = F.transform(F.split(text, f"\\Q{separator}\\E"), lambda name: F.trim(name))  # noqa: PLW0108
    return F.when(F.trim(text) == "", F.array().cast("array<string>")).otherwise(names)


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
    settings = parse_key_values(options.input_option, "--input-option", "KEY=VALUE", allow_empty=True)
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
        writer = frame.observe(observation, *counted).write.format(kind).options(**WRITING.get(kind, {}))
        writer.mode("overwrite" if options.overwrite else "error").save(place)
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
    from privtab.base.staged import atomic_folder

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
        from privtab.state.findings import StateFinding

        first = str(error).partition("\n")[0]
        found = [finding for finding in error.findings if isinstance(finding, StateFinding)]
        more = f"and {len(found) - SHOWN:,} more\n" if len(found) > SHOWN else ""
        return f"{first}\n{''.join(finding.render() for finding in found[:SHOWN])}{more}".rstrip()
    return str(error)


def _print_error(message: str) -> None:
    sys.stderr.write(f"privtab: {message}\n")
