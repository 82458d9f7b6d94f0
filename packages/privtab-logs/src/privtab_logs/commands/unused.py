"""`privtab unused`: what of a state and a policy no logged decision needed, and a narrower state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from privtab.base import count
from privtab.command import (
    QuestionOptions,
    deliver,
    fail_if,
    option,
    out,
    print_error,
    print_if_data,
    show_findings,
    table,
)
from privtab.state import RowLocation
from privtab_analysis.commands._ask import limit_option
from privtab_analysis.commands._failing import EMPTY, INCOMPLETE, LogsOption, accepted, failing_words
from privtab_logs.commands._unused import Answer, Sources, answered, markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privtab.command import Terminal
    from privtab_logs.row_use import RowUse

PANEL = "Check"

FAILING = ("unused", "operations", "incomplete")
MOST_LINES = 40
"""Default maximum of lines shown of each list."""
UnusedFormat = Literal["text", "json", "csv", "markdown"]
"""Output format of what is unused."""


def run(
    asked: QuestionOptions,
    sources: Sources,
    *,
    propose: Annotated[
        Path | None,
        option("--propose FILE", "Write a narrower state that keeps every logged allow; a folder for a folder."),
    ] = None,
    html: Annotated[Path | None, option("--html FILE", "Write an HTML report.")] = None,
    limit: Annotated[int | None, limit_option("lines of each list", MOST_LINES)] = None,
    fail_on: Annotated[
        list[str] | None, option("--fail-on WHAT", f"Exit with 1 for {', '.join(FAILING)}; or `any`.")
    ] = None,
    accept: LogsOption = None,
    format_: Annotated[UnusedFormat, option("--format", "Output format.")] = "text",
) -> None:
    """Show which rows of a state and of a policy no logged allow needed, and propose a narrower state.

    A row is used if a logged allow could have gone through it, and needed if an allow is lost without it alone. A proposal keeps
    every logged allow, has no row left that could go, and gives nobody more rights.

    Example:
      privtab unused logs/ -p lake.yaml -s state/
      privtab unused logs/ -p lake.yaml -s state/ --earlier yesterday/ --keep privtab-keep.yaml --propose narrower/
      privtab unused logs/ -p lake.yaml -s store:grants.db --propose narrower.json --html report.html
      privtab unused logs/ -p lake.yaml -s state.yaml --fail-on unused --format markdown
    """
    kinds = accepted(accept)
    allow_incomplete, allow_empty = INCOMPLETE in kinds, EMPTY in kinds
    words = failing_words(fail_on, FAILING, allow_incomplete=allow_incomplete)
    diff = propose is not None or html is not None
    answer = answered(asked, sources, propose, diff=diff, allow_incomplete=allow_incomplete, allow_empty=allow_empty)
    show_findings(answer.notes)
    if html is not None:
        from privtab_logs.page import page

        deliver(page(answer.program, answer.found, answer.difference, answer.summary(), str(asked.state)), html)
    most = MOST_LINES if limit is None else limit
    columns = ("table", "row", "place", "use", "count", "last", "stays", "proposed")
    if not print_if_data(format_, answer.to_json(), columns, map(_cells, answer.found.rows)):
        if format_ == "markdown":
            deliver(markdown(answer, most))
        else:
            _show(answer, out(), most)
    failing = answer.failing(words, proposing=propose is not None, allow_incomplete=allow_incomplete)
    for word in failing:
        print_error(f"failed: {word}")
    fail_if(failing or answer.partial)


def _cells(row: RowUse) -> tuple[object, ...]:
    found = row.to_json()
    place = RowLocation.text_of(row.place)
    return row.table, row.text, place, row.use, found["count"], found["last"] or "", row.stays or "", row.proposed


def _show(answer: Answer, console: Terminal, most: int) -> None:
    found = answer.found
    for line in answer.summary():
        console.print(line)
    console.print()
    uses = ("needed", "substituted", "unused", "stays")
    rows = [[name, *(f"{counts.get(use, 0):,}" for use in uses)] for name, counts in found.counts().items()]
    console.print(table("rows of", *uses, rows=rows, right=uses))
    _rows(console, "unused rows of the state", found.idle, most)
    _rows(
        console, "used, with a substitute for each use", [row for row in found.rows if row.use == "substituted"], most
    )
    idle = found.idle_operations
    if idle:
        console.print(
            f"\nrows of the table that allowed nothing: {len(idle):,} of {len(found.operations):,}", style="bold"
        )
        for operation in console.first(idle, most, "rows", indent=2):
            denied = f"  denied {operation.denied:,} times" if operation.denied else ""
            console.print_styled(f"  {operation.rule}{denied}", (f"  {operation.place or ''}", "dim"))
    roles = [role for role in found.roles if len(role.used) < len(role.granted) or role.like]
    if roles:
        console.print("\nroles of which not all was used, or alike ones", style="bold")
        listed = [
            [role.role, f"{len(role.used):,} of {len(role.granted):,}", f"{role.holders:,}", ", ".join(role.like[:3])]
            for role in roles[: most or None]
        ]
        console.print(table("role", "rights used", "held by rows", "same use as", rows=listed))
        console.more(len(roles) - len(listed), "roles", indent=2)
    if found.users:
        console.print(f"\n{count(len(found.users), 'user')} of whose rights at most a third was used", style="bold")
        for user in console.first(found.users, most, "users", indent=2):
            console.print(f"  {user.user}: {user.used:,} of {user.held:,} rows")
    if answer.difference is not None:
        from privtab_analysis.commands._state_diff import show_access

        console.print("\nwho would lose what nobody used", style="bold")
        show_access(answer.difference, console, most=most)


def _rows(console: Terminal, title: str, rows: Sequence[RowUse], most: int) -> None:
    if not rows:
        return
    console.print(f"\n{title}: {len(rows):,}", style="bold")
    for row in console.first(rows, most, "rows", indent=2):
        last = row.to_json()["last"]
        used = f"  last used {last}" if last else ""
        proposed = "- " if row.proposed else "  "
        console.print_styled(f"{proposed}{row.text}{used}", (f"  {RowLocation.text_of(row.place)}", "dim"))
