"""The request and the report of `privtab deploy`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.cli._output import Format
from privtab.cli._rollout import channel_json, snapshot_json

if TYPE_CHECKING:
    from privtab.registry.deploy.canary import CanaryOutcome
    from privtab.registry.deploy.gates import FailingOn, Gate
    from privtab.registry.deploy.watch import FleetSnapshot
    from privtab.registry.nodes import Channel


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
