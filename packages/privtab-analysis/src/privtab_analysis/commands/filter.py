"""`privtab filter`: the condition under which a user may see the entities of a type, for a query."""

from __future__ import annotations

import csv
import json
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from privtab.base import UsageError, Window, load_plugin, moment_text, needing, parse_key_values, write_file
from privtab.command import (
    FormatOption,
    QuestionOptions,
    Terminal,
    argument,
    deliver,
    err,
    fail_if,
    load_state,
    option,
    out,
)
from privtab_analysis.commands._ask import RequestOptions, show_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privtab.filters import Filter

PANEL = "Ask"
DIALECTS = ("bigquery", "duckdb", "mysql", "postgres", "snowflake", "spark", "sqlite", "trino")
"""The names that a shell completes."""


def run(
    user: Annotated[str, argument("USER", "The user.")],
    operation: Annotated[str, argument("OPERATION", "An operation on entities of the type, such as `load`.")],
    type_: Annotated[str, argument("TYPE", "The type of the entities that a query lists.")],
    *,
    column: Annotated[
        list[str] | None, option("--column LEVEL=COLUMN", "The column with the names of a level. (default: LEVEL)")
    ] = None,
    dialect: Annotated[
        str, option("--dialect NAME", "The database: postgres, mysql, duckdb, spark, trino, …", names=lambda: DIALECTS)
    ] = "postgres",
    rows: Annotated[
        str | None,
        option("--rows FILE.csv", "Write the rows to look names up in; `store:…`: into its table `--table`."),
    ] = None,
    table: Annotated[
        str | None, option("--table NAME", "The table of rows, queried instead of listing many names.")
    ] = None,
    most: Annotated[int | None, option("--most N", "The most names that a condition lists.", min=0)] = None,
    details: RequestOptions,
    asked: QuestionOptions,
    format_: FormatOption = "text",
) -> None:
    """Write the condition of a WHERE: the entities of a type on which a user may do an operation, exactly as `check` allows it.

    Values are parameters, in the style of the usual driver. `FALSE` means that the user may see nothing.

    Example:
      privtab filter alice load table -p gravitino/1.1.0 -s sample:gravitino
      privtab filter ann read table -p lake.yaml -s state.yaml --dialect mysql
      privtab filter ann read table -p lake.yaml -s store:grants.db --dialect sqlite --rows store:grants.db --table filters
    """
    from privtab.engines import OpenEngine
    from privtab.filters import filter_of
    from privtab.ir import vocabulary
    from privtab.pipeline import policy_artifacts
    from privtab.state import index_document
    from privtab_analysis.entitlements.universe import notes as unknown

    program = asked.program()
    request = details.request(program, user, operation, f"{type_}:")
    known = vocabulary(program)
    known.check_context(request, known.check_operation(type_, operation))
    known.check_active_roles(request)
    with needing("`privtab filter`", "filter"):
        import_module("sqlglot")  # before a state is read
    with err().spinner("reading the state"):
        state, _, partial = load_state(program, asked.state, for_queries=True)
        engine = OpenEngine.of(policy_artifacts(program).program, index_document(program, state), asked.moment())
        found = filter_of(engine.engine, request, engine.window)
    columns = found.quoted_levels(dialect) | parse_key_values(
        column, "--column", "LEVEL=COLUMN", example="table=t.name"
    )
    where = found.sql(dialect, columns, most=most, table=table, pretty=format_ == "text")
    if rows is not None:
        _keep(rows, table, found)
    notes = unknown(program, state, [f"user:{request.user}"])
    if format_ == "json":
        deliver(
            {
                **found.to_json(),
                "sql": where.text,
                "form": where.form,
                "parameters": where.parameters,
                "notes": notes,
            }
        )
    else:
        _show(out(), found, where.text, where.parameters)
        show_notes(notes)
    fail_if(partial)


def _keep(rows: str, table: str | None, found: Filter) -> None:
    """Write the rows of a filter to a file, or to a table of a store's database."""
    if not rows.startswith("store:"):
        file = StringIO()
        csv.writer(file, lineterminator="\n").writerows((found.columns_of_rows, *found.rows()))
        write_file(Path(rows), file.getvalue().encode())
        return
    if table is None:
        raise UsageError("`--rows store:…` needs `--table`")
    with needing("`--rows store:…`", "store"):
        keep_rows = load_plugin("privtab.states", "store").keep_rows
        keep_rows(rows, table, found.columns_of_rows, found.rows(), found.key, found.revision)


def _show(console: Terminal, found: Filter, text: str, parameters: Sequence[str]) -> None:
    """The condition, and its parameters as comments of SQL."""
    console.print(text)
    for number, value in enumerate(parameters, start=1):
        console.print_styled((f"-- {number}: {json.dumps(value, ensure_ascii=False)}", "dim"))
    if found.window.end != Window().end:
        console.print_styled((f"-- until {moment_text(found.window.end)}", "dim"))
