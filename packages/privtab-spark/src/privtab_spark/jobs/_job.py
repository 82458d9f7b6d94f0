"""The common parts of all jobs: options, the session, progress on standard error, exit codes, atomic output.

Options are checked before Spark is started, and give the arguments of `privtab_spark`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit
from urllib.request import url2pathname

from privtab.base import (
    ExitCode,
    FileError,
    PrivtabError,
    StateInvalid,
    UsageError,
    nearest,
    parse_key_values,
    printable_output,
    state_location,
)
from privtab_analysis.given_options import parts_given
from privtab_spark.failures import first_lines, spark_errors
from privtab_spark.formats import SPARK
from privtab_spark.jobs._options import Option, arguments_of, parser_of
from privtab_spark.jobs._session import LOG, ProgressReporter, session
from privtab_spark.policies import open_policy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from privtab.state import State
    from privtab_spark.choose import Choice
    from privtab_spark.policies import OpenPolicy


_NO_FORMAT = (".tsv", ".txt", ".xls", ".xlsx", ".html", ".pdf", ".zip")
"""Suffixes of formats that are not recognised by suffix."""
_PACKED = (".gz", ".bz2", ".zst")
_ENDINGS = (*SPARK, *_NO_FORMAT, *_PACKED)
_NOT_GRANTED = "not granted"
_READING: Mapping[str, dict[str, str]] = {
    "csv": {"header": "true", "escape": '"', "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
}
_WRITING: Mapping[str, dict[str, str]] = {
    # Spaces are part of a name; by default, Spark would trim them.
    "csv": {
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
}
_SHOWN = 20
"""Most invalid rows of a state that are printed."""

PolicyOption = Annotated[str, Option("a policy by name (cdap/final), a path, or a bundle", "POLICY", "-p")]
AtOption = Annotated[str | None, Option("the moment to answer for, as in 2026-03-03T12:00Z; default: now", "TIME")]
OverwriteOption = Annotated[bool, Option("replace an existing output")]


@dataclass(kw_only=True)
class JobSession:
    """The options of every job; the session of Spark, which a job starts, and the job's progress and output."""

    conf: Annotated[
        tuple[str, ...],
        Option("a setting of Spark, as spark.master, spark.remote, spark.jars.packages; may repeat", "KEY=VALUE"),
    ] = ()
    format: Annotated[Literal["text", "json"], Option("output format: for people or for programs")] = "text"
    progress: ProgressReporter = field(init=False, default_factory=ProgressReporter)
    _open: ExitStack = field(init=False, default_factory=ExitStack)

    def start(self, job: str) -> SparkSession:
        """Start Spark; `run` stops it."""
        self.progress("starting Spark")
        spark = self._open.enter_context(session(job, conf=self.conf, bars=sys.stderr.isatty()))
        self.progress.watch(spark)
        return spark

    def close(self) -> None:
        """Stop Spark, if the job started it."""
        self._open.close()

    def show(self, result: Mapping[str, Any], lines: Sequence[str]) -> None:
        """Print the result of a job on standard output, as JSON or as lines."""
        from privtab.command import deliver

        deliver(dict(result) if self.format == "json" else "\n".join(lines) + "\n")
        sys.stdout.flush()

    def explain(self, choice: Choice) -> int:
        """Print the plan that would be used, and return the exit code."""
        self.show(
            {"plan": choice.plan, "why": choice.why, "figures": choice.figures, "steps": choice.steps}, [str(choice)]
        )
        return 0


SessionOptions = Annotated[JobSession, "session and output"]
"""The options of every job, with the heading of the options in the help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAndState:
    """Options for a policy and a state."""

    policy: PolicyOption
    state: Annotated[str, Option("a file, a folder of tables, a state bundle, or sample:SYSTEM", "STATE", "-s")]

    def check(self) -> OpenPolicy:
        """Open the policy; raises for a policy or a state that does not exist."""
        if not self.sample and "://" not in self.state and not state_location(self.state)[0].exists():
            raise FileError(f"no such state: {self.state}")
        return open_policy(self.policy)

    @property
    def sample(self) -> bool:
        """Return whether the state is a shipped one."""
        return self.state.startswith("sample:")

    @property
    def rows(self) -> str | State:
        """The state, as `privtab_spark` takes it."""
        if not self.sample:
            return self.state
        from privtab.command import load_state

        return load_state(open_policy(self.policy).checked("a sample"), Path(self.state), for_queries=True).state


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTable:
    """Options for the table that a job reads."""

    input: Annotated[str, Option("a file, a folder, or the name of a table", "TABLE", "-i")]
    input_option: Annotated[
        tuple[str, ...],
        Option("an option of the reader, or format=delta where no suffix says it; may repeat", "KEY=VALUE"),
    ] = ()

    @property
    def format(self) -> str | None:
        """The format that the options name, or that the suffix means."""
        return self._settings().get("format") or _format_of(self.input)

    def _settings(self) -> dict[str, str]:
        return parse_key_values(self.input_option, "--input-option", "KEY=VALUE", allow_empty=True)

    def check(self) -> None:
        """Raise for a missing file or an unknown format; a name without folder and suffix may be that of a table."""
        where, path = self.input, Path(self.input)
        if "://" in where:
            return
        ending = path.suffix.lower()
        if not path.exists() and (ending in _ENDINGS or "/" in where):
            raise FileError(f"no such table: {where}{_near(where)}")
        if self.format is None and path.is_file() and ending in _NO_FORMAT:
            tabs = " --input-option sep=\\t" if ending == ".tsv" else ""
            advice = f"add `--input-option format=csv{tabs}`, or what it is"
            raise UsageError(f"{where}: `{ending}` is not the suffix of a known format: {advice}")

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the table."""
        kind = self.format
        settings = {name: value for name, value in self._settings().items() if name != "format"}
        if kind is None and "/" not in self.input and not Path(self.input).exists():
            return _table(spark, self.input)
        self.check()
        # Otherwise a line with an extra cell would lose it and be decided as a different request.
        settings = _READING.get(kind or "", {}) | settings
        return spark.read.format(kind or "parquet").options(**settings).load(self.input)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTable:
    """Options for the table that a job writes."""

    output: Annotated[
        str | None, Option("output folder, whose suffix says the format, else parquet; must not exist", "FOLDER", "-o")
    ] = None
    overwrite: OverwriteOption = False

    @property
    def format(self) -> str | None:
        """The format that the suffix means."""
        return _format_of(self.output or "")

    def check(self) -> None:
        """Raise for an output that exists or has an unknown format."""
        if self.output is not None:
            check_output(self.output, overwrite=self.overwrite)

    def write(self, frame: DataFrame, progress: ProgressReporter, *, answers: bool = False) -> dict[str, Any]:
        """Write a result atomically; returns its location and number of rows and, for answers, the numbers of allowed and invalid ones."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

        output = self.output or ""
        kind = self.format or "parquet"
        observation = Observation("privtab")
        counted = [F.count(F.lit(1)).alias("rows")]
        if answers:
            counted.append(F.count_if(F.col("allowed")).alias("allowed"))
            counted.append(F.count_if(F.col("reason") != _NOT_GRANTED).alias("no_request"))
        with _atomic_output(output, overwrite=self.overwrite) as place:
            progress(f"writing {output}")
            progress.place = Path(url2pathname(urlsplit(place).path)) if place.startswith("file://") else None
            writer = frame.observe(observation, *counted).write.format(kind).options(**_WRITING.get(kind, {}))
            writer.mode("overwrite" if self.overwrite else "error").save(place)
            progress.place = None
        return {"output": output, "kind": kind, **observation.get}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Options for resources, `with` objects, flags, groups, the time and the plan."""

    at: AtOption = None
    resource: Annotated[
        str, Option("a column of entities (type:path), or of the paths of entities of a type", "COLUMN|TYPE:COLUMN")
    ]
    with_: Annotated[
        tuple[str, ...],
        Option(
            "what requests carry: a second object (SLOT=COLUMN, SLOT=TYPE:COLUMN), a flag for all rows (NAME), or an attribute "
            "that each row gives (user.NAME=COLUMN, entity., request. or SLOT.NAME=COLUMN); may repeat",
            "PART",
        ),
    ] = ()
    groups: Annotated[
        str | None, Option("a column of arrays of groups, for policies that take them from requests", "COLUMN")
    ] = None
    active_roles: Annotated[
        str | None,
        Option(
            "a column of arrays of roles, for policies whose requests name the active ones; a null denies its row",
            "COLUMN",
        ),
    ] = None
    separator: Annotated[
        str | None,
        Option(
            "separator of names where --groups or --active-roles is a column of strings; an empty string is no name, and so is "
            "an empty cell of CSV, where nothing tells it from null",
            "TEXT",
        ),
    ] = None
    plan: Annotated[Literal["auto", "kernel", "portions"], Option("how Spark decides")] = "auto"
    explain: Annotated[bool, Option("print the plan and write nothing")] = False

    def check(self, question: PolicyAndState, table: InputTable, output: OutputTable, action: str | None) -> None:
        """Raise for options that cannot be combined, and for tables, states, policies and operations that do not exist."""
        self._objects()
        self._attributes()
        if self.separator is not None and not (self.separator and (self.groups or self.active_roles)):
            raise UsageError("`--separator TEXT` needs `--groups COLUMN` or `--active-roles COLUMN`")
        if output.output is None and not self.explain:
            raise UsageError("give `--output FOLDER`, or `--explain`")
        output.check()
        table.check()
        policy = question.check()
        resource = self._resource()
        if action and isinstance(resource, tuple):
            policy.vocabulary.check_operation(resource[0], action)

    def arguments(self, frame: DataFrame, table: InputTable) -> dict[str, Any]:
        """The options as arguments of `decide`, `visible` and `plan`."""
        csv = table.format == "csv"
        return {
            "resource": self._resource(),
            "with_": self._objects(),
            "flags": flags_of(self.with_),
            "groups": _names(frame, "groups", self.groups, self.separator, csv=csv),
            "active_roles": _names(frame, "roles", self.active_roles, self.separator, csv=csv),
            "attributes": self._attributes(),
            "plan": self.plan,
            "at": self.at,
        }

    def _resource(self) -> str | tuple[str, str]:
        return _column_or_pair(self.resource)

    def _objects(self) -> dict[str, str | tuple[str, str]]:
        found: dict[str, str | tuple[str, str]] = {}
        for slot, text in parse_key_values(
            parts_given(self.with_)[1], "--with", "SLOT=COLUMN", example="to=target_schema"
        ).items():
            found[slot] = _column_or_pair(text)
        return found

    def _attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        form, example = "KIND.NAME=COLUMN", "request.mfa=mfa"
        for place, column in parse_key_values(parts_given(self.with_)[2], "--with", form, example=example).items():
            kind, _, name = place.partition(".")
            of_kind = found if kind in ("user", "entity", "request") else found.setdefault("with", {})
            of_kind.setdefault(kind, {})[name] = column
        return found


def flags_of(parts: Sequence[str]) -> tuple[str, ...]:
    """The flags among what requests carry."""
    return tuple(flag.removesuffix("=true") for flag in parts_given(parts)[0])


def _column_or_pair(text: str) -> str | tuple[str, str]:
    """The column of entities in `COLUMN`, or the type and the column of paths in `TYPE:COLUMN`. Raises UsageError."""
    kind, colon, column = text.partition(":")
    if not text or (colon and not (kind and column)):
        raise UsageError(f"`{text}`: write COLUMN, or TYPE:COLUMN")
    return (kind, column) if colon else text


def _near(where: str) -> str:
    """`; did you mean …?` for a file in the same folder with a similar name, or an empty string."""
    path = Path(where)
    names = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    found = next((name for name in names if name.partition(".")[0] == path.name), None) or nearest(path.name, names)
    return f"; did you mean `{path.parent / found}`?" if found else ""


def _format_of(where: str) -> str | None:
    """The name of the format that the suffix of a path means, without that of a compression; None if it means none."""
    path = Path(where)
    return SPARK.get((path.with_suffix("") if path.suffix.lower() in _PACKED else path).suffix.lower())


def check_output(where: str, *, overwrite: bool) -> None:
    """Raise for an output that exists, and for a suffix without a format."""
    path = Path(where.removeprefix("file://"))
    if "://" not in str(path) and path.exists() and not overwrite:
        raise UsageError(f"{path} exists: name another folder, or add `--overwrite`")
    if path.suffix.lower() in _NO_FORMAT:
        formats = ", ".join(SPARK)
        raise UsageError(
            f"{where}: `{path.suffix}` is not the suffix of a format that can be written: end it in {formats}"
        )


def _names(frame: DataFrame, what: str, column: str | None, separator: str | None, *, csv: bool) -> Column | str | None:
    """A column of lists of names: as it is, or of texts that are divided at a separator; raises UsageError without one."""
    if column is None or column not in frame.columns:
        return column  # `decide` reports a missing column
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)
    from pyspark.sql.types import StringType

    if not isinstance(frame.schema[column].dataType, StringType):
        return column
    if separator is None:
        raise UsageError(f"`{column}` is a column of strings: give the separator of {what} by `--separator`")
    text = F.col(f"`{column}`")
    if csv:
        text = F.coalesce(text, F.lit(""))
    # `F.trim` itself would also receive the position in the array.
    names = F.transform(F.split(text, f"\\Q{separator}\\E"), lambda name: F.trim(name))  # noqa: PLW0108
    return F.when(F.trim(text) == "", F.array().cast("array<string>")).otherwise(names)


def _table(spark: SparkSession, name: str) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        frame = spark.table(name)
        frame.schema  # noqa: B018  (Connect looks up the table only now)
    except AnalysisException as error:
        if "TABLE_OR_VIEW_NOT_FOUND" not in str(error):
            raise
        raise FileError(f"no such file, and no such table: {name}{_near(name)}") from error
    return frame


@contextmanager
def _atomic_output(output: str, *, overwrite: bool) -> Iterator[str]:
    """Yield a location to write to, which replaces `output` on success. Remote locations rely on Spark's own commit."""
    if "://" in output and not output.startswith("file://"):
        yield output
        return
    target = Path(output.removeprefix("file://"))
    if target.exists() and not overwrite:
        raise UsageError(f"{target} exists: name another folder, or add `--overwrite`")
    from privtab_spark.folders import atomic_folder

    with atomic_folder(target) as place:
        part = place / "part"
        yield part.as_uri()
        for path in list(part.iterdir()):
            path.rename(place / path.name)
        part.rmdir()


@printable_output()
def run(job: str, function: Callable[..., int], arguments: Sequence[str] | None) -> int:
    """Run a job as a program and return its exit code.

    The signature of the function says the options of the job, and has the parameter `session: SessionOptions`. The function
    checks its arguments before it starts Spark.
    """
    try:
        options = vars(parser_of(function, job).parse_args(arguments))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else ExitCode.USAGE
    return run_with(function, options)


def run_with(function: Callable[..., int], options: Mapping[str, Any]) -> int:
    """Run the function of a job with the values of its options by name; return one of `ExitCode`. Expected errors end without a traceback."""
    given = arguments_of(function, options)
    job_session: JobSession = given["session"]
    try:
        with closing(job_session), _LeftOut() as left_out:
            code = function(**given)
            return code or (ExitCode.FINDINGS if left_out.any else 0)
    except PrivtabError as error:
        _print_error(_error_text(error))
        return error.exit_code
    except OSError as error:
        _print_error(str(error))
        return ExitCode.EXTERNAL
    except spark_errors() as error:
        _print_error(f"Spark: {first_lines(str(error))}")
        return ExitCode.EXTERNAL
    finally:
        job_session.progress.end()


class _LeftOut(logging.Handler):
    """Prints which rows of states are left out, while it is entered."""

    any = False

    def __enter__(self) -> Self:
        LOG.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        LOG.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Print the findings about rows that are left out; other records are for the log."""
        if (error := getattr(record, "left_out", None)) is not None:
            self.any = True
            _print_error(_error_text(error))


def _error_text(error: PrivtabError) -> str:
    if isinstance(error, StateInvalid):
        from privtab.state import StateFinding

        first = str(error).partition("\n")[0]
        found = [finding for finding in error.findings if isinstance(finding, StateFinding)]
        more = f"and {len(found) - _SHOWN:,} more\n" if len(found) > _SHOWN else ""
        return f"{first}\n{''.join(finding.render() for finding in found[:_SHOWN])}{more}".rstrip()
    return str(error)


def _print_error(message: str) -> None:
    sys.stderr.write(f"privtab: {message}\n")
