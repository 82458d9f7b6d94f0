"""The request, the report and the text output of `privtab deploy`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from privtab.cli._output import Format, out, show_diagnostics, table
from privtab.cli._rollout import channel_json, snapshot_json

if TYPE_CHECKING:
    from rich.table import Table

    from privtab.registry.deploy.canary import CanaryOutcome
    from privtab.registry.deploy.gates import FailingOn, Gate
    from privtab.registry.deploy.rollout import FleetSnapshot
    from privtab.registry.nodes import Channel


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployRequest:
    """What to deploy, and with which gates."""

    policy: str
    variant: str | None
    readings: Mapping[str, str]
    state: Path | None
    allow_partial: bool
    sharded: bool
    fail_on: FailingOn
    waivers: Path | None
    skip_tests: str | None
    keep_state: str | None
    accept_gains: str | None
    engine: str
    signing_key: str | None
    scope: str
    dry_run: bool
    why: str
    format: Format


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What to watch, and for how long."""

    server: str | None
    opas: tuple[str, ...]
    token_file: Path | None
    ca: Path | None
    timeout: float
    expect: int


@dataclass(slots=True, kw_only=True)
class DeployReport:
    """The report, filled during the deployment; seconds by step."""

    outcome: str = ""
    gates: list[Gate] = field(default_factory=list)
    before: Channel | None = None
    after: Channel | None = None
    snapshots: dict[str, FleetSnapshot | None] = field(default_factory=dict)
    canary_outcome: CanaryOutcome | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

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
        }
