"""Write the entitlement matrix: `python -m privtab_spark.jobs.entitlements --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from privtab.base import GivenAttributes, UsageError, parse_key_values
from privtab_analysis.given_options import attribute_values, parts_given
from privtab_spark.jobs._job import AtOption, InputTable, OutputTable, PolicyAndState, SessionOptions, flags_of, run
from privtab_spark.jobs._options import Option
from privtab_spark.policies import open_policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code."""
    return run("entitlements", write_entitlements, arguments)


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
            from privtab_spark.matrix.opening import from_file

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


def write_entitlements(
    *,
    question: MatrixOptions,
    output: OutputTable,
    at: AtOption = None,
    ways: Annotated[Literal["first", "all"], Option("a row for each way, or for the first alone")] = "first",
    session: SessionOptions,
) -> int:
    """Write the entitlement matrix: the permissions of principals, and the grants behind them.

    One row for each entitlement: principal, operation, entity, and its basis.

    Example:
      privtab spark entitlements -p gravitino/1.1.0 -s state.yaml -o matrix
      privtab spark entitlements -p gravitino/1.1.0 -s state.yaml -e tables.csv -o matrix.csv --operation load --principal role:analyst
    """
    if output.output is None:
        raise UsageError("give `--output FOLDER`")
    question.check_scope()
    output.check()
    question.check()
    spark = session.start("entitlements")
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    from privtab_spark import entitlements

    session.progress("reading the policy and the state")
    found = entitlements(
        question.policy,
        question.state,
        question.read_entities(spark),
        **question.arguments(),
        ways=ways,
        spark=spark,
        at=at,
    )
    if Path(output.output).suffix == ".csv":
        found = found.withColumn("via", F.to_json("via"))
    result = output.write(found, session.progress)
    session.show(result, [f"{output.output}  {result['rows']:,} entitlements"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
