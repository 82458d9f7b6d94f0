"""The text output of `privtab deploy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from privtab.cli._output import Format, out, show_diagnostics, table

if TYPE_CHECKING:
    from rich.table import Table

    from privtab.registry.deploy.canary_analysis import CanaryOutcome
    from privtab.registry.deploy.gates import Gate

MOST = 10
"""Maximum changes or failures shown; `privtab diff` and `privtab test` show all."""


def show_gate(gate: Gate, format_: Format) -> None:
    """Print the result of a gate, with its findings if it failed; nothing for JSON."""
    if format_ is Format.JSON:
        return
    colour = {"passed": "green", "failed": "bold red", "skipped": "yellow"}[str(gate.outcome)]
    line = Text.assemble((f"{gate.name:<6}", "bold"), (f"{gate.outcome!s:<8}", colour), gate.says)
    console = out()
    console.print(line, soft_wrap=True)
    if gate.passed:
        return
    if gate.name == "lint":
        show_diagnostics(gate.diagnostics)
    for failure in gate.failures[:MOST]:
        console.print(
            f"  {failure.case.name}: {failure.fault} is {failure.got}, not {failure.expected}", soft_wrap=True
        )
    if gate.blocking:
        console.print(_blocking(gate))
        console.print(
            "  waive intended changes (`--waivers FILE`, see `privtab diff`), or deploy with `--fail-on none`",
            style="dim",
        )


def _blocking(gate: Gate) -> Table:
    """A table of the changes that stop a deployment, each with the operations that changed only through it."""
    from privtab.analysis.diff.summary import also_by, combine_pairs, folded

    shown = table("  operation", "verdict", "before", "after")
    for one in folded(gate.blocking)[:MOST]:
        row = one.row
        cells = [c.text if c is not None else "" for c in (row.before, row.after)]
        shown.add_row(f"  {row.name}", str(row.verdict), *cells)
        if by := also_by(row):
            shown.add_row("", Text("by", style="dim"), ", ".join(by), "")
        if one.through:
            names = combine_pairs([(other.entity, other.operation) for other in one.through])
            more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
            label = f"    and {len(one.through)} through it"
            shown.add_row(Text(label, style="dim"), "", ", ".join(names[:MOST]) + more, "")
    return shown


def show_trial(ended: CanaryOutcome, format_: Format) -> None:
    """Print the outcome of a canary, by rule."""
    if format_ is Format.JSON:
        return
    console = out()
    console.print(f"canary: {ended.says}", soft_wrap=True)
    if not ended.compared:
        return
    shown = table("rule", "of", "canary", "", "others", "", "p", "", right=("canary", "others", "p"))
    for one in ended.compared[:MOST]:
        colour = {"moved": "bold red", "alike": "green", "few": "dim"}[one.verdict]
        shown.add_row(
            one.rule,
            one.of,
            f"{one.canary.share(one.of):.1%}",
            f"of {one.canary.asked:,}",
            f"{one.others.share(one.of):.1%}",
            f"of {one.others.asked:,}",
            f"{one.p:.2g}",
            Text(one.verdict, style=colour),
        )
    console.print(shown)


def say(format_: Format, text: str, *, style: str = "") -> None:
    """Print a line, unless the format is JSON."""
    if format_ is not Format.JSON:
        out().print(text, style=style or None, soft_wrap=True)
