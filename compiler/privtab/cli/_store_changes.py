"""What the commands on stores share: they open them, show changes, and ask before sensitive ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from privtab._install import how_to_install
from privtab.cli._output import out, print_error
from privtab.cli._store_rows import confirm_sensitive, print_changes
from privtab.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
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
        from privtab.cli._state_diff_pretty import show as show_difference

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
