"""Rows of a store on the terminal, and the question before sensitive operations are given."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from privtab.cli._output import out, print_error
from privtab.exit_codes import ExitCode
from privtab.plural import count
from privtab.state.row_text import row_text

if TYPE_CHECKING:
    from privtab.effects import Change


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
