"""What the commands on stores share: they open them, show changes, and ask before sensitive ones."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from privtab._install import how_to_install
from privtab.cli._output import out, print_error
from privtab.errors import UnsupportedError, UsageError
from privtab.exit_codes import ExitCode
from privtab.plural import count
from privtab.state.row_text import row_text

if TYPE_CHECKING:
    from privtab.effects import Change
    from privtab.store.journal import Entry
    from privtab.store.planning import Proposal
    from privtab.store.store import Store


MOST_LINES = 60
"""The most lines of a difference that are shown."""


def confirm(store: Store, planned: Proposal, *, dry_run: bool, yes: bool) -> None:
    """Show who gains and loses what, and ask before a sensitive operation is given to somebody."""
    from privtab.analysis.state_diff import state_diff
    from privtab.analysis.state_diff.summary import totals

    if yes and not dry_run:
        return
    try:
        found = state_diff(store.program, planned.before, planned.after)
        sensitive = totals(found, gained=True).sensitive > 0 or bool(found.undecided)
    except UnsupportedError as error:
        if dry_run:
            raise
        print_error(str(error))
        found, sensitive = None, True
    if found is not None and (dry_run or sensitive):
        from privtab.cli._state_diff import show as show_difference

        shown = (f"change {planned.number}", "after the request")
        show_difference(found, shown, out(), decisions=True, most=MOST_LINES)
    if dry_run or not sensitive:
        return
    confirm_sensitive()


def store_class() -> type[Store]:
    """The class; raises UsageError if its libraries are not installed."""
    try:
        from privtab.store.store import Store
    except ImportError as error:
        raise UsageError(f"a store needs {error.name}: {how_to_install('store')}") from error
    return Store


def show_entries(entries: Iterable[Entry]) -> None:
    """Print changes: who did what, when, and the rows."""
    for entry in entries:
        what = entry.action if entry.resource is None else f"{entry.action} {entry.resource}"
        out().print(f"{entry.number} {entry.at} {entry.actor} {what}", soft_wrap=True)
        print_changes(entry.changes)


def confirm_sensitive() -> None:
    """Ask at the terminal; exit with 1 unless the answer is yes."""
    if not sys.stdin.isatty() or not typer.confirm("This gives sensitive operations. Change the store?"):
        print_error("nothing was changed: the request gives sensitive operations; `--yes` confirms it")
        raise typer.Exit(ExitCode.FINDINGS)


def print_changes(changes: Iterable[Change]) -> None:
    """Print the rows that a change adds and removes."""
    for change_ in changes:
        sign = "+" if change_.action == "add" else "-"
        out().print(f"  {sign} {row_text(change_.table, change_.row or {})}", soft_wrap=True)


def print_done(number: int, changes: Sequence[Change], *, repeated: bool) -> None:
    """Print what a change did; `repeated`: whether an earlier request with the same id did it."""
    print_changes(changes)
    again = ", done before" if repeated else ""
    out().print(f"change {number}: {count(len(changes), 'row')}{again}")
