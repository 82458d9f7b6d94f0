"""The options of jobs, and the arguments of `privtab.spark` that they give."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.errors import UsageError
from privtab.key_values import key_values
from privtab.spark.jobs import JOBS
from privtab.spark.jobs._before import format_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class _Help(argparse.RawDescriptionHelpFormatter):
    """Formats help like the other commands: a usage line, paragraphs, an example."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)


def parser(job: str, more: str, examples: Sequence[str]) -> argparse.ArgumentParser:
    """A parser with the options that all jobs have."""
    name = f"privtab {job}" if job == "certify" else f"privtab spark {job}"
    shown = "\n".join(f"  {name} {example}" for example in examples)
    script = Path(__file__).with_name(f"{job}.py")
    module = f"  spark-submit {script} [OPTIONS]\n  python -m privtab.spark.jobs.{job} [OPTIONS]"
    parser_ = argparse.ArgumentParser(
        prog=name,
        usage=f"{name} [OPTIONS]",
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
    common.add_argument(
        "--format", choices=("text", "json"), default="text", help="output format: for people or for programs"
    )
    common.add_argument("--quiet", action="store_true", help="do not report progress")
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
            "--input-option",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="an option of the reader; may repeat",
        )
    parser_.add_argument("-o", "--output", metavar="FOLDER", help="output folder; must not exist")
    parser_.add_argument(
        "--output-format", metavar="NAME", help="like --input-format; default: by the suffix, else parquet"
    )
    parser_.add_argument("--overwrite", action="store_true", help="replace an existing output")


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
    parser_.add_argument("--plan", choices=("auto", "kernel", "portions"), default="auto", help="how Spark decides")
    parser_.add_argument("--explain", action="store_true", help="print the plan and write nothing")


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
            raise UsageError(f"`--{what}-separator TEXT` needs `--{what} COLUMN`")
    if options.output is None and not options.explain:
        raise UsageError("give `--output FOLDER`, or `--explain`")


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
    if (options.input_format or format_of(options.input)) == "csv":
        text = F.coalesce(text, F.lit(""))
    # `F.trim` itself would also receive the position in the array.
    names = F.transform(F.split(text, f"\\Q{separator}\\E"), lambda name: F.trim(name))  # noqa: PLW0108
    return F.when(F.trim(text) == "", F.array().cast("array<string>")).otherwise(names)
