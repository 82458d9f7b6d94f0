"""The request, the report and the text output of `privtab deploy`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.text import Text

from privtab.cli._output import out, show_diagnostics, styled, table
from privtab.cli._rollout import channel_json, snapshot_json

if TYPE_CHECKING:
    from rich.table import Table

    from privtab.registry.deploy.canary import CanaryOutcome
    from privtab.registry.deploy.gates import Gate
    from privtab.registry.deploy.push import PushResult
    from privtab.registry.deploy.rollout import FleetSnapshot
    from privtab.registry.nodes import Channel


MAX_SHOWN = 10
"""Maximum changes or failures shown; `privtab diff` and `privtab test` show all."""


def show_gate(gate: Gate) -> None:
    """Print the result of a gate, with its findings if it failed."""
    colour = {"passed": "green", "failed": "bold red", "skipped": "yellow"}[str(gate.outcome)]
    text = styled((f"{gate.name:<6}", "bold"), (f"{gate.outcome!s:<8}", colour), gate.says)
    console = out()
    console.print(text)
    if gate.state is not None and gate.state.access:
        _state(gate)
    if gate.passed:
        return
    if gate.name == "lint":
        show_diagnostics(gate.diagnostics)
    for failure in gate.failures[:MAX_SHOWN]:
        console.print(f"  {failure.case.name}: {failure.fault} is {failure.got}, not {failure.expected}")
    if gate.blocking:
        console.print(_blocking(gate))
        console.print(
            "  waive intended changes (`--waivers FILE`, see `privtab diff`), or deploy with `--fail-on none`",
            style="dim",
        )


def _state(gate: Gate) -> None:
    """What users gain and lose by the new state."""
    from privtab.cli._state_diff import show_groups

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


def show_canary_outcome(outcome: CanaryOutcome, report: DeployReport) -> None:
    """Print the outcome of a canary, by rule."""
    report.tell(f"canary: {outcome.says}")
    if report.quiet or not outcome.compared:
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
    out().print(grid)


@dataclass(slots=True, kw_only=True)
class DeployReport:
    """The report, filled during the deployment; seconds by step."""

    quiet: bool
    """Whether only the report is printed, as JSON."""
    outcome: str = ""
    gates: list[Gate] = field(default_factory=list)
    before: Channel | None = None
    after: Channel | None = None
    snapshots: dict[str, FleetSnapshot | None] = field(default_factory=dict)
    canary_outcome: CanaryOutcome | None = None
    pushed: PushResult | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def ended(self, gate: Gate) -> None:
        """Record the result of a gate, and show it."""
        self.gates.append(gate)
        if not self.quiet:
            show_gate(gate)

    @property
    def all_passed(self) -> bool:
        """Whether no gate stops the deployment."""
        return all(gate.passed for gate in self.gates)

    def stop(self, why: str) -> None:
        """Record that the deployment ends here."""
        self.tell(why, style="bold red")
        self.outcome = "stopped"

    def tell(self, text: str, *, style: str = "") -> None:
        """Print a line, unless only the report is printed."""
        if not self.quiet:
            out().print(text, style=style or None)

    def json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "outcome": self.outcome,
            "gates": [gate.json() for gate in self.gates],
            "before": channel_json(self.before) if self.before is not None and self.before.sequence else None,
            "after": None if self.after is None else channel_json(self.after),
            "canary": None if self.canary_outcome is None else self.canary_outcome.json(),
            "watched": {name: snapshot_json(snapshot) for name, snapshot in self.snapshots.items()},
            "seconds": {name: round(seconds, 3) for name, seconds in self.seconds.items()},
            **({} if self.pushed is None else {"pushed": self.pushed.json()}),
        }
