"""The changes between two policies as Rich lays them out, which a comparison without any does without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from privtab.command import table
from privtab_analysis.diff.nodes import DeclarationChange, Verdict, Witness
from privtab_analysis.diff.summary import (
    Group,
    also_by,
    answers_text,
    cell_pairs,
    holding_texts,
    pairs_of,
    request_text,
    what_changed,
)

if TYPE_CHECKING:
    from privtab.command import Terminal

STYLES = {
    Verdict.WIDER: "bold red",
    Verdict.NARROWER: "bold blue",
    Verdict.INCOMPARABLE: "bold magenta",
    Verdict.UNKNOWN: "bold red",
    Verdict.ADDED: "bold green",
    Verdict.REMOVED: "bold yellow",
    Verdict.RENAMED: "bold cyan",
    Verdict.CHANGED: "bold",
    Verdict.EQUAL: "dim",
}


def show(
    declared: tuple[DeclarationChange, ...], all_groups: list[Group], console: Terminal, width: int, *, most: int
) -> None:
    """Print what changed in declarations and in operations, of which the first groups are shown."""
    if declared:
        console.print()
        console.print(_declarations(declared), width=width)
    shown_groups = all_groups[:most]
    if shown_groups:
        console.print()
        console.print(_overview(shown_groups), width=width)
    for group in shown_groups:
        if group.verdict is not Verdict.RENAMED:
            console.print()
            _detail(group, console, width)
    if omitted := sum(len(group.rows) for group in all_groups[most:]):
        console.print()
        console.print(f"and {omitted:,} more: `--all` shows them, `--format json` has every one", style="bold")


def _declarations(declared: tuple[DeclarationChange, ...]) -> Table:
    grid = table("declared", "", "before", "after")
    for change in declared:
        first = True
        for detail in change.details:
            name = f"{change.kind} {change.name}" if first else ""
            verdict = Text(str(change.verdict) if first else "", style=STYLES[change.verdict])
            prefix = f"{detail.what}: " if detail.what else ""
            grid.add_row(name, verdict, _side_text(prefix, detail.before), _side_text(prefix, detail.after))
            first = False
        if change.recognised:
            grid.add_row("", "", Text(f"recognised: {change.recognised}", style="dim"), "")
    return grid


def _side_text(prefix: str, text: str | None) -> str:
    return "" if text is None else f"{prefix}{text}"


def _overview(shown_groups: list[Group]) -> Table:
    grid = table("verdict", "operation", "what changed")
    for group in shown_groups:
        row = group.first
        change = what_changed(row) or _only_cell(group)
        if row.recognised and group.verdict is Verdict.RENAMED:
            change += f": {row.recognised}"
        if row.waived is not None:
            change += f"{'; ' if change else ''}waived by {row.waived.who} until {row.waived.until}"
        grid.add_row(Text(str(group.verdict), style=STYLES[group.verdict]), group.short, change)
    return grid


def _only_cell(group: Group) -> str:
    """The cell of operations that only one side has."""
    side = 2 if group.verdict is Verdict.ADDED else 1
    texts = [(pair[0], pair[side]) for pair in pairs_of(group)]
    return "; ".join(text if key == "requires" else f"{key}: {text}" for key, text in texts if text is not None)


def _detail(group: Group, console: Terminal, width: int) -> None:
    row = group.first
    console.print(Text(str(group.verdict), style=STYLES[group.verdict]), end="  ")
    suffix = f"  and {len(group.rows) - 1} alike" if len(group.rows) > 1 else ""
    console.print(Text(row.name, style="bold").append(suffix, style="not bold dim"))
    if group.short != group.names:
        console.print(Padding(Text(group.names, style="dim"), (0, 0, 0, 2), expand=False), width=width)
    if row.waived is not None:
        waived = f"waived by {row.waived.who} until {row.waived.until}: {row.waived.why}"
        console.print(Padding(Text(waived, style="dim"), (0, 0, 0, 2), expand=False), width=width)
    console.print(Padding(_cells(group), (0, 0, 0, 2), expand=False), width=width)
    for witness in row.witnesses:
        _witness(witness, console, width)


def _cells(group: Group) -> Table:
    """A table of both cells as written, line by line, with their positions."""
    row = group.first
    grid = Table.grid(padding=(0, 2, 0, 0))
    sides = (("before", row.before, 1), ("after", row.after, 2))
    for name, cell, side in sides:
        if cell is None:
            continue
        place = f"{cell.span.path}:{cell.span.line}"
        lines = [(pair[0], text) for pair in cell_pairs(row) if (text := pair[side]) is not None]
        for number, (key, text) in enumerate(lines):
            label = name if number == 0 else ""
            grid.add_row(Text(label, style="dim"), Text(key, style="dim"), text)
        grid.add_row("", "", Text(place, style="dim"))
    if causes := also_by(row):
        grid.add_row(Text("by", style="dim"), "", ", ".join(causes))
    return grid


def _witness(witness: Witness, console: Terminal, width: int) -> None:
    headline = Text("  ")
    if witness.shows == "effects":
        headline.append("with other effects", style="dim")
    else:
        headline.append(f"{witness.before} → {witness.after}", style=STYLES[Verdict(witness.shows)])
    headline.append(f"  {request_text(witness.request)}")
    console.print(headline)
    lines = holding_texts(witness.state, witness.request) or ["nothing is held"]
    if witness.shows == "effects":
        lines.append(answers_text(witness))
    for text in lines:
        console.print(Padding(Text(text), (0, 0, 0, 6), expand=False), width=width)
