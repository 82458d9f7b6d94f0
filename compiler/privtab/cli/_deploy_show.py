"""The text output of `privtab deploy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from privtab.cli._output import Format, out, show_diagnostics, table

if TYPE_CHECKING:
    from rich.table import Table

    from privtab.registry.deploy.canary import CanaryOutcome
    from privtab.registry.deploy.gates import Gate

MAX_SHOWN = 10
"""Maximum changes or failures shown; `privtab diff` and `privtab test` show all."""


def show_gate(gate: Gate, format_: Format) -> None:
    """Print the result of a gate, with its findings if it failed; nothing for JSON."""
    if format_ is Format.JSON:
        return
    colour = {"passed": "green", "failed": "bold red", "skipped": "yellow"}[str(gate.outcome)]
    text = Text.assemble((f"{gate.name:<6}", "bold"), (f"{gate.outcome!s:<8}", colour), gate.says)
    console = out()
    console.print(text, soft_wrap=True)
    if gate.state is not None and gate.state.access:
        _state(gate)
    if gate.passed:
        return
    if gate.name == "lint":
        show_diagnostics(gate.diagnostics)
    for failure in gate.failures[:MAX_SHOWN]:
        console.print(
            f"  {failure.case.name}: {failure.fault} is {failure.got}, not {failure.expected}", soft_wrap=True
        )
    if gate.blocking:
        console.print(_blocking(gate))
        console.print(
            "  waive intended changes (`--waivers FILE`, see `privtab diff`), or deploy with `--fail-on none`",
            style="dim",
        )


def _state(gate: Gate) -> None:
    """What users gain and lose by the new state."""
    from privtab.cli._state_diff_pretty import show_groups

    assert gate.state is not None
    console = out()
    show_groups(gate.state, console, most=MAX_SHOWN)
    console.print()
    if not gate.passed:
        console.print(
            "  release intended changes with `--accept-gains WHY`; `privtab state diff` shows all of them", style="dim"
        )


def _blocking(gate: Gate) -> Table:
    """A table of the changes that stop a deployment, each with the operations that changed only through it."""
    from privtab.analysis.diff.summary import also_by, combine_pairs, folded

    grid = table("  operation", "verdict", "before", "after")
    for group in folded(gate.blocking)[:MAX_SHOWN]:
        row = group.row
        cells = [c.text if c is not None else "" for c in (row.before, row.after)]
        grid.add_row(f"  {row.name}", str(row.verdict), *cells)
        if causes := also_by(row):
            grid.add_row("", Text("by", style="dim"), ", ".join(causes), "")
        if group.through:
            names = combine_pairs([(dependent.entity, dependent.operation) for dependent in group.through])
            omitted = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
            label = f"    and {len(group.through)} through it"
            grid.add_row(Text(label, style="dim"), "", ", ".join(names[:MAX_SHOWN]) + omitted, "")
    return grid


def show_canary_outcome(outcome: CanaryOutcome, format_: Format) -> None:
    """Print the outcome of a canary, by rule."""
    if format_ is Format.JSON:
        return
    console = out()
    console.print(f"canary: {outcome.says}", soft_wrap=True)
    if not outcome.compared:
        return
    grid = table("rule", "of", "canary", "", "others", "", "p", "", right=("canary", "others", "p"))
    for comparison in outcome.compared[:MAX_SHOWN]:
        colour = {"moved": "bold red", "alike": "green", "few": "dim"}[comparison.verdict]
        grid.add_row(
            comparison.rule,
            comparison.of,
            f"{comparison.canary.share(comparison.of):.1%}",
            f"of {comparison.canary.total:,}",
            f"{comparison.others.share(comparison.of):.1%}",
            f"of {comparison.others.total:,}",
            f"{comparison.p:.2g}",
            Text(comparison.verdict, style=colour),
        )
    console.print(grid)


def print_unless_json(format_: Format, text: str, *, style: str = "") -> None:
    """Print a line, unless the format is JSON."""
    if format_ is not Format.JSON:
        out().print(text, style=style or None, soft_wrap=True)
