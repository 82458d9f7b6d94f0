"""Keep the rows of a table that a user may see: `python -m privtab_spark.jobs.visible --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

from privtab.base import UsageError
from privtab_spark.jobs._job import InputTable, OutputTable, PolicyAndState, Requests, SessionOptions, run
from privtab_spark.jobs._options import Option


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code."""
    return run("visible", keep_visible_rows, arguments)


def keep_visible_rows(
    *,
    question: PolicyAndState,
    table: InputTable,
    output: OutputTable,
    user: Annotated[str | None, Option("one user for all rows", "NAME")] = None,
    subject: Annotated[str | None, Option("a column of user names", "COLUMN")] = None,
    action: Annotated[str, Option("the operation (list)", "OPERATION")] = "list",
    requests: Requests,
    session: SessionOptions,
) -> int:
    """Keep the rows of a table that a user may see.

    The output has the columns of the input, and the rows on whose resource the user may perform the action.

    Example:
      privtab spark visible -p cdap/final -s state.yaml -i datasets.csv -o mine.csv --user alice --action get --type dataset --path path
    """
    if bool(user) == bool(subject):
        raise UsageError("give `--user NAME` or `--subject COLUMN`")
    requests.check(question, table, output, action)
    spark = session.start("visible")
    from privtab_spark import plan, visible
    from privtab_spark import user as the_user

    session.progress(f"reading {table.input}, the policy and the state")
    frame = table.read(spark)
    visible_arguments: dict[str, Any] = {
        "subject": the_user(user) if user else subject,
        "action": action,
        **requests.arguments(frame, table),
    }
    if requests.explain:
        return session.explain(plan(frame, question.policy, question.state, **visible_arguments))
    with session.progress.choice():
        visible_rows = visible(frame, question.policy, question.state, **visible_arguments)
    result = output.write(visible_rows, session.progress)
    session.show(result, [f"{output.output}  {result['rows']:,} rows"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
