"""`privtab registry status`: show what sidecars run, the releases of channels, and what is stored."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group
from rich.text import Text

from privtab.base import UsageError, count
from privtab.command import FormatOption, argument, fail_if, option, out, print_error, print_if_data, table
from privtab_server.commands._registry_options import (
    channels_table,
    no_channel,
    open_registry,
    running_channels,
    show_revisions,
)
from privtab_server.commands._rollout import CHANNEL, FleetOptions, RegistryOption, channel_json, sidecars
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
    channel: Annotated[str | None, CHANNEL] = None,
    *,
    fleet: FleetOptions,
    history: Annotated[
        int | None, option("--history N", "Number of releases to show. (default: 5 with `--channel`)", min=0)
    ] = None,
    stored: Annotated[
        str | None, option("--stored KIND", "Instead, stored revisions: policy, state, shard, wasm or all.")
    ] = None,
    watch: Annotated[float | None, option("--watch SECONDS", "Refresh until Ctrl-C.", min=0.2)] = None,
    check: Annotated[bool, option("--check", "Exit with 1 if a sidecar does not run its channel's release.")] = False,
    format_: FormatOption = "text",
) -> None:
    """Show what channels run, one in full with `--channel`; every sidecar with its errors and last report; and the last releases.

    The registry knows what should run; the server, or the OPAs themselves, know what does. Either may be omitted. Exits
    with 3 if the last release cannot be read, or nothing answers.

    Example:
      privtab registry status --registry registry/
      privtab registry status lake -r registry/ -c prod --history 9
      privtab registry status -r s3://policies/registry --stored policy --format json
      privtab registry status --registry registry/ --channel prod --server http://127.0.0.1:8180
      privtab registry status gravitino --opa http://127.0.0.1:8181 --opa http://127.0.0.1:8182
      privtab registry status -r s3://bundles -c prod --check --format json
      privtab registry status --server http://127.0.0.1:8180 --watch 2
    """
    if registry is None and (stored is not None or (fleet.server is None and not fleet.opa)):
        raise UsageError("give `--registry URL`" + ("" if stored else ", `--server URL` or `--opa URL`"))
    opened = None if registry is None else open_registry(registry)
    if stored is not None and opened is not None:
        if history is not None or watch is not None or check or fleet.opa:
            raise UsageError(
                "`--stored` shows what a registry keeps: give no `--history`, `--watch`, `--check` or `--opa`"
            )
        _show_stored(opened, stored, channel, system, format_)
        return
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

    chosen: bool
    """True if a channel was named, which is told in full."""
    channels: list[Channel]
    histories: list[list[Channel]]
    """The last releases of each of the channels."""
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
    registry: Registry | None, channel: str | None, system: str | None, read: FleetReader | None, history: int | None
) -> ChannelSnapshot:
    channels = []
    if registry is not None:
        registry.store.renew()
        channels = running_channels(registry, channel, system)
        if not channels and (channel is not None or system is not None or not registry.settings()):
            raise RegistryError(no_channel(registry, "/".join(filter(None, (channel or "*", system)))))
    if history is None:
        history = 0 if channel is None else 5
    histories = [
        registry.history(current.channel, current.system, history) if history and registry is not None else []
        for current in channels
    ]
    fleet = None if read is None else read()
    if fleet is not None and registry is not None:
        concerned = tuple(
            sidecar for sidecar in fleet.sidecars if any(sidecar.reads(one.channel, one.system) for one in channels)
        )
        fleet = replace(fleet, sidecars=concerned)
    signed = registry.requires_signatures() if registry is not None else fleet is not None and fleet.signed
    return ChannelSnapshot(
        channel is not None, channels, histories, fleet, _sidecar_statuses(channels, fleet, signed=signed)
    )


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
            channel_json(channel) | {"history": list(map(channel_json, history))}
            for channel, history in zip(snapshot.channels, snapshot.histories, strict=True)
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
    releases = [release for history in snapshot.histories for release in history]
    if snapshot.chosen:
        for channel in snapshot.channels:
            parts += _channel(channel)
    elif snapshot.channels or snapshot.fleet is None:
        parts.append(channels_table(releases or snapshot.channels))
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
    if snapshot.chosen and releases:
        parts += [Text(), channels_table(releases)]
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
    releases = [*snapshot.channels, *(entry for entries in snapshot.histories for entry in entries)]
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


def _show_stored(registry: Registry, kind: str, channel: str | None, system: str | None, format_: FormatOption) -> None:
    """Show revisions of a kind, or all, newest last, and the channels that run each; only those of a system, or that a channel runs."""
    from privtab_server.registry import names
    from privtab_server.registry.maintenance import all_records
    from privtab_server.registry.nodes import pin

    if kind != "all":
        names.checked_kind(kind)
    running: dict[tuple[str, str], list[str]] = {}
    for current in registry.channels():
        for key in current.digests:
            running.setdefault((current.system, key), []).append(current.channel)
    revisions, broken = all_records(registry)
    for error in broken:
        print_error(str(error))
    listed = [
        (revision, channels)
        for revision in revisions
        for channels in [running.get((revision.system, pin(revision.kind, revision.id, revision.shard)), [])]
        if kind in ("all", revision.kind) and system in (None, revision.system) and channel in (None, *channels)
    ]
    if print_if_data(format_, [revision.to_json() | {"channels": channels} for revision, channels in listed]):
        return
    show_revisions(
        [revision for revision, _ in listed],
        "version",
        "created",
        "bytes",
        "signed",
        runs_in=[", ".join(channels) for _, channels in listed],
    )
    out().print(count(len(listed), "revision"), style="dim")
