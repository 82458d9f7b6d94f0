"""Shared by deploy, rollback and status: options, the fleet and the channel that they select, the display of a watch, and reports."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group
from rich.text import Text

from privtab.base import FileError, UsageError, parse_key_values
from privtab.command import FormatOption, err, option, out, print_error, show_findings, table
from privtab_server.addresses import TOKEN_VARIABLE, token_or_variable
from privtab_server.commands._registry_options import channels

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from privtab.bundle import SigningKey
    from privtab_server.registry.deploy import SidecarStatus
    from privtab_server.registry.deploy.canary import CanaryOutcome, CanaryPlan
    from privtab_server.registry.deploy.gates import Gate
    from privtab_server.registry.deploy.push import PushResult
    from privtab_server.registry.deploy.rollout import FleetReader, FleetSnapshot, Rollout
    from privtab_server.registry.nodes import Channel
    from privtab_server.registry.registry import Registry

RegistryOption = Annotated[
    str | None, option("--registry -r URL", "A folder, s3://… or file://…", envvar="PRIVTAB_REGISTRY")
]
CHANNEL = option(
    "--channel -c NAME",
    "Channel that sidecars follow: dev, prod, …",
    envvar="PRIVTAB_CHANNEL",
    autocompletion=channels,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """Options for the source of the fleet: a server or OPAs."""

    server: Annotated[
        str | None, option("--server URL", "Registry server that sidecars report to.", envvar="PRIVTAB_SERVER")
    ] = None
    opa: Annotated[list[str] | None, option("--opa URL", "OPA to ask for its status; repeatable.")] = None
    token: Annotated[
        str | None,
        option("--token-file FILE", f"Token for the server or OPA. (default: ${TOKEN_VARIABLE})", kind="TOKEN"),
    ] = field(default=None, repr=False)
    ca: Annotated[Path | None, option("--ca FILE", "CA certificates for the server or OPA, PEM.")] = None

    @contextmanager
    def reader(self) -> Iterator[FleetReader | None]:
        """The reader of the fleet: from the server or from the OPAs; None if neither is given."""
        from privtab_server.registry.deploy.fleet import OpaReader, ServerReader

        # Options take precedence over the environment variable, which applies to all commands.
        server = None if self.opa else self.server
        if not server and not self.opa:
            yield None
            return
        trusted, token = self.trusted(), token_or_variable(self.token)
        reader = OpaReader(self.opa, token, trusted) if self.opa else ServerReader(str(server), token, trusted)
        try:
            yield reader
        finally:
            reader.close()

    def trusted(self) -> str | None:
        """The file of CA certificates. Raises FileError if there is no such file."""
        if self.ca is not None and not self.ca.is_file():
            raise FileError(f"no such file: {self.ca}")
        return None if self.ca is None else str(self.ca)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions(FleetOptions):
    """Options of a release: the channel, and how long its sidecars are watched."""

    registry: RegistryOption = None
    channel: Annotated[str, CHANNEL] = "dev"
    wait: Annotated[
        list[str] | None,
        option("--wait NAME=N", "seconds=60 for sidecars to activate it, sidecars=0 there must be; repeatable."),
    ] = None
    why: Annotated[str, option("--why TEXT", "Reason, recorded in the channel's history.")] = ""
    format_: FormatOption = "text"

    @property
    def quiet(self) -> bool:
        """Return whether only the outcome is printed, as JSON."""
        return self.format_ == "json"

    def waits(self) -> tuple[float, int]:
        """The seconds to wait for sidecars, and how many there must be. Raises UsageError."""
        given = parse_key_values(self.wait, "--wait", "NAME=N", example="seconds=120", names=("seconds", "sidecars"))
        for name, text in given.items():
            whole = name == "sidecars"
            if not re.fullmatch(r"\d+" if whole else r"\d+(\.\d+)?", text) or not (whole or float(text) >= 0.1):
                raise UsageError(f"`--wait {name}={text}`: write a {'whole number' if whole else 'number from 0.1'}")
        return float(given.get("seconds", 60)), int(given.get("sidecars", 0))

    def rollout(self, registry: Registry, system: str, read: FleetReader | None, *, signed: bool) -> Rollout:
        """Return the rollout to the channel; on standard error, it shows how sidecars activate the release."""
        from privtab_server.registry.deploy.rollout import Rollout

        seconds, sidecars = self.waits()
        return Rollout(
            registry=registry,
            channel=self.channel,
            system=system,
            read=read,
            follow=watcher(None if self.quiet else err()),
            timeout=seconds,
            expect=sidecars,
            signed=signed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryOptions:
    """The part of the sidecars that gets a release first, and how it is compared with the others."""

    canary: Annotated[
        str | None,
        option("--canary PART", "Deploy to some sidecars first: 10%, zone=a, or app=web,25%; needs --server."),
    ] = None
    canary_limit: Annotated[
        list[str] | None,
        option(
            "--canary-limit NAME=N",
            "seconds=60 and decisions=200 to compare, tolerance=0.02 of an allow share; repeatable.",
        ),
    ] = None

    def plan(self, *, quiet_ok: bool) -> CanaryPlan | None:
        """The plan of the canary; None without one. `quiet_ok`: whether it may make too few decisions."""
        from privtab_server.registry.deploy.canary import CanaryPlan, part

        names = ("seconds", "decisions", "tolerance")
        given = parse_key_values(self.canary_limit, "--canary-limit", "NAME=N", example="seconds=60", names=names)
        for name, text in given.items():
            form = r"\d+" if name == "decisions" else r"\d+(\.\d+)?"
            if not re.fullmatch(form, text, re.ASCII) or (name == "decisions" and not int(text)):
                raise UsageError(f"`--canary-limit {name}={text}`: write a number")
        if float(given.get("tolerance", 0)) > 1:
            raise UsageError(f"`--canary-limit tolerance={given['tolerance']}`: write a share from 0 to 1")
        if self.canary is None:
            if given:
                raise UsageError("`--canary-limit` is about a canary: give `--canary PART`")
            return None
        return CanaryPlan(
            part=part(self.canary),
            seconds=float(given.get("seconds", 60)),
            decisions=int(given.get("decisions", 200)),
            tolerance=float(given.get("tolerance", 0.02)),
            quiet_ok=quiet_ok,
        )


ScopeOption = Annotated[
    list[str] | None, option("--signature scope=TEXT", "Scope of the signature. (default: the registry's)")
]


def signing_key(registry: Registry, key: str, signature: list[str] | None, before: Channel) -> SigningKey:
    """A key for the next release of a channel, by default with the scope that the registry requires.

    Verifiers that check the order of bundles must accept these as newer than all releases of the channel.
    """
    from privtab.bundle import SigningKey

    trust = registry.trust()
    required = "" if trust is None else trust.scope
    scope = parse_key_values(signature, "--signature", example="scope=prod", names=("scope",)).get("scope", required)
    return SigningKey.of(key, scope=scope, sequence=before.last + 1)


def watcher(console: Console | None) -> Callable[[Iterator[FleetSnapshot], str], FleetSnapshot]:
    """Display a watch: a live table on a terminal, else a line for each sidecar that changes; nothing without a console."""

    def follow(snapshots: Iterator[FleetSnapshot], title: str) -> FleetSnapshot:
        if console is None:
            return deque(snapshots, maxlen=1)[0]
        return _live(snapshots, title, console) if console.is_terminal else _lines(snapshots, title, console)

    return follow


def _live(snapshots: Iterator[FleetSnapshot], title: str, console: Console) -> FleetSnapshot:
    from rich.live import Live

    last = None
    with Live(console=console, transient=True, refresh_per_second=8) as live:
        for snapshot in snapshots:
            last = snapshot
            live.update(
                Group(Text(f"{title}: {snapshot.summary} ({snapshot.seconds:.0f} s)"), sidecars(snapshot.statuses))
            )
    assert last is not None
    console.print(f"{title}: {last.summary} after {last.seconds:.1f} s")
    if last.statuses:
        console.print(sidecars(last.statuses))
    return last


def _lines(snapshots: Iterator[FleetSnapshot], title: str, console: Console) -> FleetSnapshot:
    printed: dict[str, tuple[str, str]] = {}
    last, problem = None, None
    for snapshot in snapshots:
        last = snapshot
        if snapshot.problem != problem and not snapshot.final:
            problem = snapshot.problem
            console.print(f"  {problem or 'it answers again'}", style="dim")
        for status in snapshot.statuses:
            now = (str(status.standing), status.why)
            if printed.get(status.sidecar.id) != now:
                printed[status.sidecar.id] = now
                why = f": {status.why}" if status.why else ""
                console.print(f"  {name_of(status)} {status.standing} after {snapshot.seconds:.1f} s{why}", style="dim")
    assert last is not None
    console.print(f"{title}: {last.summary} after {last.seconds:.1f} s")
    return last


def name_of(status: SidecarStatus) -> str:
    """The display name of a sidecar."""
    return status.sidecar.url or status.sidecar.id


def sidecars(statuses: Sequence[SidecarStatus]) -> RenderableType:
    """A table with a line for each bundle of each sidecar, and the problems below."""
    # The table already shows who is waiting.
    lines = [
        Text(f"{name_of(status)}: {status.why}", "yellow" if status.standing == "active" else "red")
        for status in statuses
        if status.why and (str(status.standing) != "waiting" or not status.sidecar.certain)
    ]
    return Group(_table(statuses), *lines)


def _table(statuses: Sequence[SidecarStatus]) -> Table:
    grid = table("sidecar", "labels", "bundle", "revision", "active since", "seen", "standing")
    now = datetime.now(tz=UTC)
    for status in statuses:
        sidecar = status.sidecar
        labels = ", ".join(
            f"{k}={v}"
            for k, v in sorted(sidecar.labels.items())
            if k not in {"id", "version"} and not k.startswith("privtab_")
        )
        labels = ", ".join(filter(None, [labels, "canary" if any(feed.canary for feed in sidecar.feeds) else ""]))
        colour = {"active": "green", "waiting": "yellow", "silent": "dim"}.get(str(status.standing), "red")
        standing = Text(str(status.standing), style=colour)
        head, tail = (name_of(status), labels), (ago(sidecar.seen, now), standing)
        for number, bundle in enumerate(sidecar.bundles or (None,)):
            cells = (bundle.name, bundle.revision or "none", ago(bundle.since, now)) if bundle else ("", "", "")
            grid.add_row(*(("", "") if number else head), *cells, *(("", "") if number else tail))
    return grid


def ago(moment: datetime | None, now: datetime) -> str:
    """`12 s ago`."""
    from privtab_server.registry.deploy.rollout import age

    return "" if moment is None else f"{age(now - moment)} ago"


def print_late(snapshot: FleetSnapshot) -> None:
    """Print to standard error which sidecars do not run what they should, and why."""
    for status in snapshot.late:
        seen = status.sidecar.seen
        suffix = f" (last seen {ago(seen, datetime.now(tz=UTC))})" if seen is not None else ""
        print_error(f"{name_of(status)}: {status.standing}: {status.why}{suffix}")
    for status in snapshot.active if len(snapshot.confirmed) < snapshot.expected else ():
        if not status.sidecar.certain:
            print_error(f"{name_of(status)}: not counted: {status.sidecar.doubt}")
    if len(snapshot.awaited) < snapshot.expected:
        print_error(f"{snapshot.expected} sidecars are expected, {len(snapshot.awaited)} reported")
    if snapshot.problem:
        print_error(snapshot.problem)


def channel_json(channel: Channel) -> dict[str, Any]:
    """A channel as JSON."""
    names = ("channel", "system", "policy", "state", "shards", "canary", "digests", "when", "by", "why", "trouble")
    shown = {name: getattr(channel, name) or None for name in names}
    # The last two are former names of `release`, for one version.
    return shown | dict.fromkeys(("release", "sequence", "switch"), channel.sequence)


def snapshot_json(snapshot: FleetSnapshot | None) -> dict[str, Any] | None:
    """The end of a watch as JSON; null without a watch."""
    if snapshot is None:
        return None
    return {
        "complete": snapshot.complete,
        "seconds": round(snapshot.seconds, 3),
        "active": len(snapshot.active),
        "expected": max(snapshot.expected, len(snapshot.awaited)),
        "problem": snapshot.problem,
        "sidecars": [status.json() for status in snapshot.statuses],
    }


# --- the report of a deployment ---

MAX_SHOWN = 10
"""Maximum changes or failures shown; `privtab diff` and `privtab test` show all."""


def show_gate(gate: Gate) -> None:
    """Print the result of a gate, with its findings if it failed."""
    colour = {"passed": "green", "failed": "bold red", "skipped": "yellow"}[str(gate.outcome)]
    console = out()
    console.print_styled((f"{gate.name:<5} ", "bold"), (f"{gate.outcome!s:<8}", colour), gate.says)
    if gate.state is not None and gate.state.access:
        _state(gate)
    if gate.passed:
        return
    if gate.name == "lint":
        show_findings(gate.diagnostics)
    for failure in gate.failures[:MAX_SHOWN]:
        console.print(f"  {failure.case.name}: {failure.fault} is {failure.got}, not {failure.expected}")
    if gate.blocking:
        console.print(_blocking(gate))
        console.print(
            "  waive intended changes (`--waivers FILE`, see `privtab diff`), or deploy with `--fail-on none`",
            style="dim",
        )


def _state(gate: Gate) -> None:
    """Print the operations that users gain and lose by the new state."""
    from privtab_analysis.commands._state_diff import show_groups

    assert gate.state is not None
    console = out()
    show_groups(gate.state, console, most=MAX_SHOWN)
    console.print()
    if not gate.passed:
        console.print(
            "  release intended changes with `--accept gains=WHY`; `privtab diff --state` shows all of them",
            style="dim",
        )


def _blocking(gate: Gate) -> Table:
    """A table of the changes that stop a deployment, each with the operations that changed only through it."""
    from privtab_analysis.diff.summary import also_by, combine_pairs, folded

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
    """True if only the report is printed, as JSON."""
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
        """Return whether no gate stops the deployment."""
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


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C, so that the canary is rolled back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
