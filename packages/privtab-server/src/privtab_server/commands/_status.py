"""`privtab registry status`: show what sidecars run, and the releases of a channel."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group
from rich.text import Text

from privtab.base import UsageError
from privtab.command import FormatOption, argument, fail_if, option, out, print_if_data, table
from privtab_server.commands._registry_options import no_channel, open_registry, running_channels
from privtab_server.commands._rollout import ChannelOption, FleetOptions, RegistryOption, ago, channel_json, sidecars
from privtab_server.errors import FleetError, RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from privtab_server.registry.deploy import DecisionCount, Fleet, SidecarStatus
    from privtab_server.registry.deploy.rollout import FleetReader
    from privtab_server.registry.nodes import Channel
    from privtab_server.registry.registry import Registry

MAX_REFUSED = 5


def run(
    system: Annotated[str | None, argument("SYSTEM", "Only this system. (default: all)")] = None,
    registry: RegistryOption = None,
    channel: ChannelOption = "dev",
    *,
    fleet: FleetOptions,
    history: Annotated[int, option("--history N", "Number of releases to show.", min=0)] = 5,
    watch: Annotated[float | None, option("--watch SECONDS", "Refresh until Ctrl-C.", min=0.2)] = None,
    check: Annotated[bool, option("--check", "Exit with 1 if a sidecar does not run its channel's release.")] = False,
    format_: FormatOption = "text",
) -> None:
    """Show a channel: its bundles, every sidecar with its revisions, errors and last report, and the last releases.

    The registry knows what should run; the server, or the OPAs themselves, know what does. Either may be omitted. Exits
    with 3 if the last release cannot be read, or nothing answers.

    Example:
      privtab registry status --registry registry/ --channel prod --server http://127.0.0.1:8180
      privtab registry status gravitino --opa http://127.0.0.1:8181 --opa http://127.0.0.1:8182
      privtab registry status -r s3://bundles -c prod --check --format json
      privtab registry status --server http://127.0.0.1:8180 --watch 2
    """
    if registry is None and fleet.server is None and not fleet.opa:
        raise UsageError("give `--registry URL`, `--server URL` or `--opa URL`")
    opened = None if registry is None else open_registry(registry)
    with fleet.reader() as read:
        take = partial(_take_snapshot, opened, channel, system, read, history)
        if watch is not None:
            _watch_status(take, watch, format_)
            return
        snapshot = take()
    _print(snapshot, format_)
    if snapshot.fleet is not None and snapshot.fleet.problem and not snapshot.fleet.sidecars:
        raise FleetError(snapshot.fleet.problem)
    if snapshot.trouble:
        raise RegistryError("; ".join(snapshot.trouble))
    fail_if(check and not snapshot.good)


@dataclass(frozen=True)
class ChannelSnapshot:
    """One reading of a channel and its fleet."""

    channels: list[Channel]
    histories: dict[str, list[Channel]]
    fleet: Fleet | None
    statuses: list[SidecarStatus]

    @property
    def trouble(self) -> tuple[str, ...]:
        """Problems with the histories of the channels, from the registry, else from the server."""
        found = [channel.trouble for channel in self.channels if channel.trouble]
        return tuple(found or ([] if self.fleet is None or self.channels else self.fleet.trouble))

    @property
    def good(self) -> bool:
        """Return whether there are no problems, and all sidecars except silent ones run what they should."""
        if self.trouble:
            return False
        if self.fleet is None:
            return True
        late = [status for status in self.statuses if str(status.standing) not in {"active", "silent"}]
        return not self.fleet.problem and not late and bool(self.statuses)


def _take_snapshot(
    registry: Registry | None, channel: str, system: str | None, read: FleetReader | None, history: int
) -> ChannelSnapshot:
    channels = []
    if registry is not None:
        registry.store.renew()
        channels = running_channels(registry, channel, system)
        if not channels:
            raise UsageError(no_channel(registry, f"{channel}/{system}" if system else channel))
    histories = {
        current.system: registry.history(current.channel, current.system, history) if history else []
        for current in channels
        if registry is not None
    }
    fleet = None if read is None else read()
    if fleet is not None and registry is not None:
        concerned = tuple(sidecar for sidecar in fleet.sidecars if sidecar.reads(channel, system))
        fleet = replace(fleet, sidecars=concerned)
    signed = registry.requires_signatures() if registry is not None else fleet is not None and fleet.signed
    return ChannelSnapshot(channels, histories, fleet, _sidecar_statuses(channels, fleet, signed=signed))


def _sidecar_statuses(channels: list[Channel], fleet: Fleet | None, *, signed: bool) -> list[SidecarStatus]:
    from privtab_server.registry.deploy import DesiredRevisions, SidecarProgress, SidecarStatus
    from privtab_server.registry.deploy.rollout import SILENT, age, desired_revisions, judge

    if fleet is None:
        return []
    now = datetime.now(tz=UTC)
    statuses = []
    for sidecar in fleet.sidecars:
        followed = [channel for channel in channels if sidecar.reads(channel.channel, channel.system)]
        goals = [
            desired_revisions(channel, channel, canary=sidecar.canary(channel.channel, channel.system))
            for channel in followed
        ] or [DesiredRevisions()]
        judged = [judge(sidecar, replace(goal, signed=signed), "", now) for goal in goals]
        worst = next((status for status in judged if status.standing is not SidecarProgress.ACTIVE), judged[0])
        if worst.standing is SidecarProgress.ACTIVE and sidecar.seen is not None and now - sidecar.seen > SILENT:
            worst = SidecarStatus(
                sidecar=sidecar, standing=SidecarProgress.SILENT, why=f"silent for {age(now - sidecar.seen)}"
            )
        elif worst.standing is SidecarProgress.ACTIVE and sidecar.problems:
            worst = SidecarStatus(sidecar=sidecar, standing=SidecarProgress.REFUSED, why="; ".join(sidecar.problems))
        statuses.append(worst)
    return statuses


def _watch_status(take: Callable[[], ChannelSnapshot], interval: float, format_: str) -> None:
    """Print the status until Ctrl-C: as a live table on a terminal, else repeatedly."""
    from rich.live import Live

    console = out()
    try:
        if format_ == "json" or not console.is_terminal:
            while True:
                _print(take(), format_)
                time.sleep(interval)
        with Live(console=console, refresh_per_second=4) as live:
            while True:
                live.update(_render(take()))
                time.sleep(interval)
    except KeyboardInterrupt:
        return


def _print(snapshot: ChannelSnapshot, format_: str) -> None:
    if not print_if_data(format_, _json(snapshot)):
        out().print(_render(snapshot))


def _json(snapshot: ChannelSnapshot) -> dict[str, Any]:
    return {
        "good": snapshot.good,
        "problem": None if snapshot.fleet is None else snapshot.fleet.problem,
        "trouble": list(snapshot.trouble),
        "channels": [
            channel_json(channel) | {"history": [channel_json(entry) for entry in snapshot.histories[channel.system]]}
            for channel in snapshot.channels
        ],
        "sidecars": [status.json() for status in snapshot.statuses],
        "refused": [] if snapshot.fleet is None else list(snapshot.fleet.refused),
        "decisions": [
            asdict(count) | {"kind": count.kind or None}
            for count in (() if snapshot.fleet is None else snapshot.fleet.decision_counts)
        ],
    }


def _render(snapshot: ChannelSnapshot) -> RenderableType:

    parts: list[RenderableType] = []
    for channel in snapshot.channels:
        parts += _channel(channel)
    if snapshot.fleet is not None:
        if snapshot.fleet.problem:
            remark = "; this was heard before" if snapshot.statuses else ""
            parts.append(Text(f"{snapshot.fleet.problem}{remark}", style="bold red"))
        if snapshot.statuses:
            parts += [Text(), sidecars(snapshot.statuses)]
        elif not snapshot.fleet.problem:
            parts.append(Text("no sidecar has reported yet", style="yellow"))
        parts += [Text(text, style="red") for text in snapshot.fleet.refused[-MAX_REFUSED:]]
        if decision_counts := _counts_by_policy(snapshot):
            parts += [Text(), _decisions(decision_counts)]
    for entries in snapshot.histories.values():
        if entries:
            parts += [Text(), _history(entries)]
    return Group(*parts)


def _channel(channel: Channel) -> list[RenderableType]:
    shards = f" in {len(channel.shards)} shards" if channel.shards else ""
    state = f", state {channel.state}" if channel.state else f", state{shards}" if shards else ", no state"
    lines: list[RenderableType] = [
        Text.assemble((f"{channel.channel}/{channel.system}", "bold"), f": policy {channel.policy or 'none'}{state}"),
        Text(
            f"release {channel.sequence} at {channel.when} by {channel.by or 'nobody'}{': ' + channel.why if channel.why else ''}",
            "dim",
        ),
    ]
    if channel.held:
        lines.append(Text(f"release {channel.last} cannot be read: nothing moves until the next one", style="bold red"))
    if channel.canary is not None:
        from privtab_server.registry.deploy.canary import CanaryPlan

        part = CanaryPlan(part=channel.canary, seconds=0, decisions=1, tolerance=0, quiet_ok=False).words
        policy = channel.canary.policy and f"policy {channel.canary.policy}"
        revisions = filter(None, (policy, channel.canary.state and "a state of its own"))
        lines.append(Text(f"canary of {part}: {', '.join(revisions)}", style="yellow"))
    return lines


def _counts_by_policy(snapshot: ChannelSnapshot) -> list[DecisionCount]:
    """The counts by revision of the policy, without the counts by state, since each decision is counted for both."""
    releases = [*snapshot.channels, *(entry for entries in snapshot.histories.values() for entry in entries)]
    states = {release.state for release in releases} | {
        identity for release in releases for identity in release.shards.values()
    }
    decision_counts = snapshot.fleet.decision_counts if snapshot.fleet is not None else ()
    return [count for count in decision_counts if count.kind not in {"state", "shard"} and count.revision not in states]


def _decisions(decision_counts: Sequence[DecisionCount]) -> RenderableType:
    from privtab_server.registry.deploy import RuleCount

    grid = table("rule", "policy", "decisions", "allowed", "undefined", right=("decisions", "allowed", "undefined"))
    keys = sorted({(count.rule, count.revision) for count in decision_counts})
    for rule, revision in keys:
        matching = (count for count in decision_counts if (count.rule, count.revision) == (rule, revision))
        decisions: RuleCount = sum(matching, RuleCount())
        grid.add_row(
            rule,
            revision or "none",
            f"{decisions.total:,}",
            f"{decisions.share('allowed'):.1%}" if decisions.total else "",
            Text(f"{decisions.undefined:,}", style="red" if decisions.undefined else "dim"),
        )
    return grid


def _history(entries: list[Channel]) -> RenderableType:
    from privtab_server.registry.deploy import parse_time

    grid = table("release", "policy", "state", "when", "by", "why", right=("release",))
    now = datetime.now(tz=UTC)
    for entry in reversed(entries):
        moment = parse_time(entry.when)
        state = entry.state or (f"{len(entry.shards)} shards" if entry.shards else "")
        grid.add_row(
            str(entry.sequence),
            f"{entry.policy or ''}{' + canary' if entry.canary else ''}",
            state,
            ago(moment, now),
            entry.by,
            entry.why,
        )
    return grid
