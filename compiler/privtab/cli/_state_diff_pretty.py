"""The text output of a difference between states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from privtab.analysis.state_diff.summary import Group, groups, headline, totals
from privtab.cli._ask import show_rows
from privtab.state.places import place_text

if TYPE_CHECKING:
    from rich.console import Console

    from privtab.analysis.state_diff import ChangedRow, StateDiff

ROWS = 20
"""The most rows that made one difference and are listed with it."""


def show(diff: StateDiff, shown: tuple[str, str], console: Console, *, decisions: bool, most: int) -> None:
    """Print a difference. `most`: the most lines of rows, and of changed access; 0 for all."""
    console.print(f"{shown[0]} → {shown[1]}", style="bold", soft_wrap=True)
    console.print(headline(diff), style="dim")
    if diff.rows:
        console.print()
        _rows(console, diff.rows[: most or None], indent=0)
        _more(console, len(diff.rows) - len(diff.rows[: most or None]), "rows")
    if decisions and diff.rows:
        console.print()
        for verb, gained in (("gained", True), ("lost", False)):
            console.print(totals(diff, gained=gained).text(verb), soft_wrap=True)
        show_groups(diff, console, most=most)


def show_groups(diff: StateDiff, console: Console, *, most: int) -> None:
    """Print what users gain and lose, by the rows that make it."""
    found = groups(diff)
    lines_left = most or sum(len(group.lines) for group in found)
    for group in found:
        if lines_left <= 0:
            break
        _group(console, group, lines_left)
        lines_left -= len(group.lines)
    _more(console, sum(len(group.lines) for group in found) - most if most else 0, "lines")


def _group(console: Console, group: Group, most: int) -> None:
    colour = "green" if group.gained else "red"
    console.print(f"\n{'gained' if group.gained else 'lost'} by", style=f"bold {colour}")
    _rows(console, group.rows[:ROWS], indent=2)
    if len(group.rows) > ROWS:
        console.print(f"  and {len(group.rows) - ROWS:,} more rows")
    subjects = ""
    for line in group.lines[:most]:
        if line.subjects != subjects:
            subjects = line.subjects
            console.print(f"    {subjects}", style="bold", soft_wrap=True)
        console.print(f"      {line.operations}  ", end="", soft_wrap=True)
        console.print(line.entities, style="dim", soft_wrap=True)


def _rows(console: Console, rows: Iterable[ChangedRow], *, indent: int) -> None:
    show_rows(console, [(f"{'+' if r.added else '-'} {r.text}", place_text(r.place)) for r in rows], indent=indent)


def _more(console: Console, number: int, noun: str) -> None:
    if number > 0:
        console.print(f"… and {number:,} more {noun}; `--limit 0` lists them")
