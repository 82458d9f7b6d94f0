"""Decide a request for each row of a table: `python -m privtab_spark.jobs.decide --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from privtab.base import UsageError
from privtab_spark.jobs._job import InputTable, OutputTable, PolicyAndState, Requests, SessionOptions, run
from privtab_spark.jobs._options import Option


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code."""
    return run("decide", decide_rows, arguments)


def decide_rows(
    *,
    question: PolicyAndState,
    table: InputTable,
    output: OutputTable,
    subject: Annotated[str | None, Option("a column of user names", "COLUMN")] = None,
    user: Annotated[str | None, Option("one user for all rows", "NAME")] = None,
    action: Annotated[str | None, Option("the operation of all rows", "OPERATION")] = None,
    action_column: Annotated[str | None, Option("a column of operations", "COLUMN")] = None,
    requests: Requests,
    keep: Annotated[
        Literal["all", "allowed", "denied", "visible"], Option("which rows to write; visible: as a listing shows")
    ] = "all",
    session: SessionOptions,
) -> int:
    """Decide a request for each row of a table.

    The output has the rows and columns of the input, and two more: `allowed` (never null) and `reason`
    (null where it is true). A denial is an answer: the exit code is 0. With `--keep visible`, the output has only the columns of
    the input, and the rows that a listing by the operation shows: those that meet what it asks of each item.

    Example:
      privtab spark decide -p cdap/final -s state.yaml -i requests.parquet -o decided --subject user --action get --resource entity
      privtab spark decide -p cdap/final -s state.tar.gz -i asked.csv -o out.csv --subject who --action-column what --resource dataset:path
      privtab spark decide -p cdap/final -s state.yaml -i requests.parquet --subject user --action get --resource entity --explain
      privtab spark decide -p cdap/final -s state.yaml -i datasets.csv -o mine.csv --user alice --action get --resource dataset:path --keep visible
    """
    if bool(user) == bool(subject):
        raise UsageError("give `--user NAME` or `--subject COLUMN`")
    if bool(action) == bool(action_column):
        raise UsageError("give `--action OPERATION` or `--action-column COLUMN`")
    requests.check(question, table, output, action)
    spark = session.start("decide")
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    from privtab_spark import decide, plan, visible
    from privtab_spark import user as the_user

    session.progress(f"reading {table.input}, the policy and the state")
    frame = table.read(spark)
    if action_column and action_column not in frame.columns:
        raise UsageError(f"no column `{action_column}`; there are: {', '.join(frame.columns)}")
    decide_arguments: dict[str, Any] = {
        "subject": the_user(user) if user else subject,
        "action": action or F.col(f"`{action_column}`"),
        **requests.arguments(frame, table),
    }
    if requests.explain:
        return session.explain(plan(frame, question.policy, question.rows, **decide_arguments))
    if keep == "visible":
        with session.progress.choice():
            rows_shown = visible(frame, question.policy, question.rows, **decide_arguments)
        result = output.write(rows_shown, session.progress)
        session.show(result, [f"{output.output}  {result['rows']:,} rows"])
        return 0
    with session.progress.choice():
        decided = decide(frame, question.policy, question.rows, **decide_arguments)
    if keep != "all":
        decided = decided.where("allowed" if keep == "allowed" else "not allowed")
    result = output.write(decided, session.progress, answers=True)
    rows, allowed = result["rows"], result["allowed"]
    line = f"{output.output}  {rows:,} rows, {allowed:,} allowed, {rows - allowed:,} denied"
    if result["no_request"]:
        line += f", {result['no_request']:,} invalid (see `reason`)"
    session.show(result | {"denied": rows - allowed}, [line])
    return 0


if __name__ == "__main__":
    sys.exit(main())
