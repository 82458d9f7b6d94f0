"""Write the entitlement matrix: `python -m privtab_spark.jobs.entitlements --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.base import Attributes, GivenAttributes, UsageError, parse_key_values
from privtab.base.key_values import attribute_values
from privtab_spark.jobs import _job as job
from privtab_spark.jobs._job import check_input
from privtab_spark.policies import open_policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from privtab_spark.jobs._session import ProgressReporter


MATRIX = (
    ("-e --entities TABLE", "a column `entity`, or `type` and `path`; default: all that the state names"),
    ("--operation NAME…", "load, or table/load; may repeat; default: all"),
    ("--user NAME…", "a user; may repeat; default: every user"),
    ("--principal NAME…", "role:analyst, group:hr, user:alice; may repeat"),
    (
        "--with SLOT=ENTITY…",
        "the second object (type:path) of operations that look at one; without it they are left out",
    ),
    ("--flag NAME…", "a flag that is set; may repeat"),
    ("--attribute KIND.NAME=VALUE…", "an attribute that every request gives: request.NAME or SLOT.NAME; may repeat"),
)
"""Options for the scope of a matrix."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code."""
    parser = job.parser(
        "entitlements",
        "One row for each entitlement: principal, operation, entity, and what it is based on.",
        [
            "-p gravitino/1.1.0 -s state.yaml -o matrix",
            "-p gravitino/1.1.0 -s state.yaml -e tables.csv -o matrix.csv --operation load --principal role:analyst",
        ],
        job.POLICY_AND_STATE,
        MATRIX,
        job.OUTPUT,
        job.TIME,
        [("--ways first|all", "a row for each way, or for the first alone")],
    )
    return job.run("entitlements", _entitlements, parser, arguments, _check_options)


def _check_options(options: argparse.Namespace) -> None:
    if options.output is None:
        raise UsageError("give `--output FOLDER`")
    check_options(options)


def check_options(options: argparse.Namespace) -> None:
    """Raise for invalid options of `MATRIX`."""
    objects(options)
    if options.attribute:
        from privtab_spark.matrix.question import check_attributes
        from privtab_spark.matrix.question import objects as parsed

        check_attributes(attributes(options), parsed(objects(options)), open_policy(options.policy).vocabulary)
    if options.entities is not None and not _listed(options.entities):
        check_input(options.entities, None)
    else:
        entities(None, options)


def matrix(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `MATRIX` as arguments, except the entities."""
    return {
        "operations": options.operation or None,
        "users": options.user or None,
        "principals": options.principal or None,
        "with_": objects(options),
        "flags": options.flag,
        "attributes": attributes(options),
    }


def objects(options: argparse.Namespace) -> dict[str, str]:
    """The `with_` argument given by the options; raises UsageError."""
    form, example = "SLOT=TYPE:PATH", "to=schema:m/c/s"
    found = parse_key_values(options.with_, "--with", form, example=example)
    for slot, text in found.items():
        if not text.partition(":")[0] or ":" not in text:
            raise UsageError(f"`--with {slot}={text}`: write {form}, as in {example}")
    return found


def attributes(options: argparse.Namespace) -> GivenAttributes:
    """The `attributes` argument given by the options, by their types in the policy; raises UsageError."""
    declared = open_policy(options.policy).vocabulary.attributes if options.attribute else Attributes()
    return attribute_values(options.attribute, declared)


def entities(spark: SparkSession | None, options: argparse.Namespace) -> DataFrame | list[str] | None:
    """The `entities` argument given by the options; a table needs a session."""
    if options.entities is None:
        return None
    if _listed(options.entities):
        from privtab_spark.matrix.opening import from_file

        return from_file(Path(options.entities))
    if spark is None:
        raise UsageError(f"{options.entities} is read by Spark: take the plan `spark`")
    of_input = argparse.Namespace(input=options.entities, input_format=None, input_option=[])
    return job.read(spark, of_input)


def _listed(path: str) -> bool:
    return Path(path).suffix.lower() in (".txt", ".json")


def _entitlements(options: argparse.Namespace, spark: SparkSession, progress: ProgressReporter) -> int:
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    from privtab_spark import entitlements

    progress("reading the policy and the state")
    found = entitlements(
        options.policy,
        options.state,
        entities(spark, options),
        **matrix(options),
        ways=options.ways,
        spark=spark,
        at=options.at,
    )
    if (options.output_format or Path(options.output).suffix) in ("csv", ".csv"):
        found = found.withColumn("via", F.to_json("via"))
    result = job.write(found, options, progress)
    job.show(options, result, [f"{options.output}  {result['rows']:,} entitlements"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
