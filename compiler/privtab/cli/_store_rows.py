"""Rows of a store on the terminal, and the question before sensitive operations are given."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from privtab.cli._output import complain, out
from privtab.exit_codes import ExitCode
from privtab.plural import count

if TYPE_CHECKING:
    from privtab.effects import Change

_PLAIN = re.compile(r"[A-Za-z][\w/.:%+-]*[\w]", re.ASCII)


def confirm_sensitive() -> None:
    """Ask at the terminal; exit with 1 unless the answer is yes."""
    if not sys.stdin.isatty() or not typer.confirm("This gives sensitive operations. Change the store?"):
        complain("nothing was changed: the request gives sensitive operations; `--yes` confirms it")
        raise typer.Exit(ExitCode.FINDINGS)


def print_changes(changes: Iterable[Change]) -> None:
    """Print the rows that a change adds and removes."""
    for change_ in changes:
        print_row(f"  {'+' if change_.action == 'add' else '-'} {change_.table}:", change_.row or {})


def print_done(number: int, changes: Sequence[Change], *, repeated: bool) -> None:
    """Print what a change did; `repeated`: whether an earlier request with the same id did it."""
    print_changes(changes)
    again = ", done before" if repeated else ""
    out().print(f"change {number}: {count(len(changes), 'row')}{again}")


def print_row(before: str, cells: Mapping[str, str | None]) -> None:
    """Print a row, as YAML reads it."""
    text = ", ".join(f"{name}: {_cell(value or '')}" for name, value in cells.items())
    out().print(f"{before}{{{text}}}", soft_wrap=True)


def _cell(text: str) -> str:
    """A cell as YAML reads it: in quotes where it is not plain."""
    plain = _PLAIN.fullmatch(text) is not None
    return text if plain else json.dumps(text, ensure_ascii=False)
