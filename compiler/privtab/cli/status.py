"""`privtab status`: show what sidecars run, and the releases of a channel."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from privtab.cli._options import FormatOption
from privtab.cli._output import Format, fail_if, out, printed, table
from privtab.cli._rollout import (
    CaOption,
    ChannelOption,
    OpaOption,
    RegistryOption,
    ServerOption,
    TokenOption,
    ago,
    channel_json,
    reader_of,
    registry_of,
    sidecars,
)
from privtab.errors import FleetError, RegistryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType

    from privtab.registry.deploy.nodes import Fleet, SidecarStatus, Tally
    from privtab.registry.deploy.watch import Reader
    from privtab.registry.nodes import Channel
    from privtab.registry.registry import Registry

PANEL = "Ship"

MOST_REFUSED = 5


def run(
    system: Annotated[str | None, typer.Argument(metavar="SYSTEM", help="Only this system. (default: all)")] = None,
    registry: RegistryOption = None,
    channel: ChannelOption = "dev",
    server: ServerOption = None,
    opa: OpaOption = None,
    history: Annotated[int, typer.Option("--history", min=0, metavar="N", help="Number of releases to show.")] = 5,
    watch: Annotated[
        float | None, typer.Option("--watch", min=0.2, metavar="SECONDS", help="Refresh until Ctrl-C.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if a sidecar does not run its channel's release.")
    ] = False,
    token_file: TokenOption = None,
    ca: CaOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Show a channel: what it runs, every sidecar with its revisions, errors and last report, and the last releases.

    The registry knows what should run; the server, or the OPAs themselves, know what does. Either may be omitted. Exits
    with 3 if the last release cannot be read, or nothing answers.

    Example:

    \b
      privtab status --registry registry/ --channel prod --server http://127.0.0.1:8180
      privtab status gravitino --opa http://127.0.0.1:8181 --opa http://127.0.0.1:8182
      privtab status -r s3://bundles -c prod --check --format json
      privtab status --server http://127.0.0.1:8180 --watch 2
    """
    if registry is None and server is None and not opa:
        raise UsageError("whose status? give `--registry URL`, `--server URL` or `--opa URL`")
    kept = None if registry is None else registry_of(registry)
    with reader_of(server, opa, token_file, ca) as read:
        if watch is not None:
            _again(kept, channel, system, read, watch, history, format_)
            return
        seen = _look(kept, channel, system, read, history)
    _print(seen, format_)
    if seen.fleet is not None and seen.fleet.problem and not seen.fleet.sidecars:
        raise FleetError(seen.fleet.problem)
    if seen.trouble:
        raise RegistryError("; ".join(seen.trouble))
    fail_if(check and not seen.good)


class ChannelSnapshot:
    """One reading of a channel and its fleet."""

    def __init__(self, channels: list[Channel], histories: dict[str, list[Channel]], fleet: Fleet | None) -> None:
        self.channels = channels
        self.histories = histories
        self.fleet = fleet
        self.stood = _stood(channels, fleet)

    @property
    def trouble(self) -> tuple[str, ...]:
        """Problems with the histories of the channels, from the registry, else from the server."""
        found = [one.trouble for one in self.channels if one.trouble]
        return tuple(found or ([] if self.fleet is None or self.channels else self.fleet.trouble))

    @property
    def good(self) -> bool:
        """Whether there are no problems and all sidecars, except silent ones, run what they should."""
        if self.trouble:
            return False
        if self.fleet is None:
            return True
        late = [one for one in self.stood if str(one.standing) not in {"active", "silent"}]
        return not self.fleet.problem and not late and bool(self.stood)


def _look(
    kept: Registry | None, channel: str, system: str | None, read: Reader | None, history: int
) -> ChannelSnapshot:
    channels = []
    if kept is not None:
        kept.store.renew()
        found = [kept.channel(channel, system)] if system else [c for c in kept.channels() if c.channel == channel]
        channels = [one for one in found if one.last]
        if not channels:
            there = sorted({f"{one.channel}/{one.system}" for one in kept.channels()})
            name = f"{channel}/{system}" if system else channel
            raise UsageError(f"{kept.url} runs nothing at {name}; there is: {', '.join(there) or 'nothing'}")
    histories = {
        one.system: kept.history(one.channel, one.system, history) if history else []
        for one in channels
        if kept is not None
    }
    fleet = None if read is None else read()
    if fleet is not None and kept is not None:
        own = tuple(s for s in fleet.sidecars if s.reads(channel, system))
        fleet = replace(fleet, sidecars=own)
    return ChannelSnapshot(channels, histories, fleet)


def _stood(channels: list[Channel], fleet: Fleet | None) -> list[SidecarStatus]:
    from privtab.registry.deploy.nodes import DesiredRevisions, SidecarProgress, SidecarStatus
    from privtab.registry.deploy.rollout import wanted
    from privtab.registry.deploy.watch import SILENT, age, judge

    if fleet is None:
        return []
    now = datetime.now(tz=UTC)
    found = []
    for sidecar in fleet.sidecars:
        own = [one for one in channels if sidecar.reads(one.channel, one.system)]
        goals = [wanted(one, one, canary=sidecar.canary(one.channel, one.system)) for one in own] or [
            DesiredRevisions()
        ]
        every = [judge(sidecar, goal, "", now) for goal in goals]
        worst = next((one for one in every if one.standing is not SidecarProgress.ACTIVE), every[0])
        if worst.standing is SidecarProgress.ACTIVE and sidecar.seen is not None and now - sidecar.seen > SILENT:
            worst = SidecarStatus(
                sidecar=sidecar, standing=SidecarProgress.SILENT, why=f"silent for {age(now - sidecar.seen)}"
            )
        elif worst.standing is SidecarProgress.ACTIVE and sidecar.problems:
            worst = SidecarStatus(sidecar=sidecar, standing=SidecarProgress.REFUSED, why="; ".join(sidecar.problems))
        found.append(worst)
    return found


def _again(
    kept: Registry | None,
    channel: str,
    system: str | None,
    read: Reader | None,
    every: float,
    history: int,
    format_: Format,
) -> None:
    """Print the status until Ctrl-C: as a live table on a terminal, else repeatedly."""
    from rich.live import Live

    console = out()
    try:
        if format_ is Format.JSON or not console.is_terminal:
            while True:
                _print(_look(kept, channel, system, read, history), format_)
                time.sleep(every)
        with Live(console=console, refresh_per_second=4) as live:
            while True:
                live.update(_whole(_look(kept, channel, system, read, history)))
                time.sleep(every)
    except KeyboardInterrupt:
        return


def _print(seen: ChannelSnapshot, format_: Format) -> None:
    if not printed(format_, _json(seen)):
        _show(seen, out())


def _json(seen: ChannelSnapshot) -> dict[str, Any]:
    return {
        "good": seen.good,
        "problem": None if seen.fleet is None else seen.fleet.problem,
        "trouble": list(seen.trouble),
        "channels": [
            channel_json(one) | {"history": [channel_json(entry) for entry in seen.histories[one.system]]}
            for one in seen.channels
        ],
        "sidecars": [one.json() for one in seen.stood],
        "refused": [] if seen.fleet is None else list(seen.fleet.refused),
        "decisions": []
        if seen.fleet is None
        else [
            {
                "revision": t.revision,
                "kind": t.kind or None,
                "rule": t.rule,
                "allowed": t.allowed,
                "denied": t.denied,
                "undefined": t.undefined,
            }
            for t in seen.fleet.tallies
        ],
    }


def _show(seen: ChannelSnapshot, console: Console) -> None:
    console.print(_whole(seen))


def _whole(seen: ChannelSnapshot) -> RenderableType:
    from rich.console import Group

    parts: list[RenderableType] = []
    for one in seen.channels:
        parts += _channel(one)
    if seen.fleet is not None:
        if seen.fleet.problem:
            heard = "; this was heard before" if seen.stood else ""
            parts.append(Text(f"{seen.fleet.problem}{heard}", style="bold red"))
        if seen.stood:
            parts += [Text(), sidecars(seen.stood)]
        elif not seen.fleet.problem:
            parts.append(Text("no sidecar has reported yet", style="yellow"))
        parts += [Text(words, style="red") for words in seen.fleet.refused[-MOST_REFUSED:]]
        if tallies := _by_policy(seen):
            parts += [Text(), _decisions(tallies)]
    for entries in seen.histories.values():
        if entries:
            parts += [Text(), _history(entries)]
    return Group(*parts)


def _channel(one: Channel) -> list[RenderableType]:
    shards = f" in {len(one.shards)} shards" if one.shards else ""
    state = f", state {one.state}" if one.state else f", state{shards}" if shards else ", no state"
    lines: list[RenderableType] = [
        Text.assemble((f"{one.channel}/{one.system}", "bold"), f": policy {one.policy or 'none'}{state}"),
        Text(f"release {one.sequence} at {one.when} by {one.by or 'nobody'}{': ' + one.why if one.why else ''}", "dim"),
    ]
    if one.held:
        lines.append(Text(f"release {one.last} cannot be read: nothing moves until the next one", style="bold red"))
    if one.canary is not None:
        from privtab.registry.deploy.canary_analysis import CanaryPlan

        words = CanaryPlan(part=one.canary, seconds=0, decisions=1, tolerance=0, quiet_ok=False).words
        runs = ", ".join(
            filter(
                None, [one.canary.policy and f"policy {one.canary.policy}", one.canary.state and "a state of its own"]
            )
        )
        lines.append(Text(f"canary of {words}: {runs}", style="yellow"))
    return lines


def _by_policy(seen: ChannelSnapshot) -> list[Tally]:
    """The counts by revision of the policy, without those by state, since each decision is counted for both."""
    known = [*seen.channels, *(entry for entries in seen.histories.values() for entry in entries)]
    states = {one.state for one in known} | {identity for one in known for identity in one.shards.values()}
    tallies = seen.fleet.tallies if seen.fleet is not None else ()
    return [t for t in tallies if t.kind not in {"state", "shard"} and t.revision not in states]


def _decisions(tallies: Sequence[Tally]) -> RenderableType:
    shown = table("rule", "policy", "decisions", "allowed", "undefined", right=("decisions", "allowed", "undefined"))
    keys = sorted({(t.rule, t.revision) for t in tallies})
    for rule, revision in keys:
        own = [t for t in tallies if (t.rule, t.revision) == (rule, revision)]
        asked = sum(t.asked for t in own)
        allowed, undefined = sum(t.allowed for t in own), sum(t.undefined for t in own)
        shown.add_row(
            rule,
            revision or "none",
            f"{asked:,}",
            f"{allowed / asked:.1%}" if asked else "",
            Text(f"{undefined:,}", style="red" if undefined else "dim"),
        )
    return shown


def _history(entries: list[Channel]) -> RenderableType:
    from privtab.registry.deploy.nodes import parse_time

    shown = table("release", "policy", "state", "when", "by", "why", right=("release",))
    now = datetime.now(tz=UTC)
    for entry in reversed(entries):
        moment = parse_time(entry.when)
        state = entry.state or (f"{len(entry.shards)} shards" if entry.shards else "")
        shown.add_row(
            str(entry.sequence),
            f"{entry.policy or ''}{' + canary' if entry.canary else ''}",
            state,
            ago(moment, now),
            entry.by,
            entry.why,
        )
    return shown
