"""The HTML pages of the server: what runs where, the releases of a channel, and what one changed. Without scripts or external resources."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from privtab.base import PrivtabError, UsageError
from privtab.bundle import program_in
from privtab.ir import Program
from privtab_analysis.diff import diff
from privtab_analysis.diff.summary import page_values
from privtab_analysis.html import page as html
from privtab_server.registry.maintenance import all_records
from privtab_server.registry.nodes import Channel, Revision, pin
from privtab_server.registry.registry import Registry
from privtab_server.registry.server.feeds import Feeds
from privtab_server.registry.server.fleet import FleetTracker

MOST = 50
"""Maximum revisions and sidecars shown."""


def page(feeds: Feeds, fleet: FleetTracker, channels: list[Channel], revisions: list[Revision], unread: int) -> str:
    """The HTML."""
    sidecars = fleet.sidecars(feeds.places)
    newest = sorted(revisions, key=lambda revision: revision.created, reverse=True)
    running = {digest for channel in channels for digest in channel.digests.values()}
    return html(
        "registry/index",
        url=feeds.registry.url,
        trouble=None if feeds.trouble is None else feeds.trouble.message,
        channels=[_channel(channel) for channel in channels],
        sidecars=[_sidecar(sidecar) for sidecar in sidecars[:MOST]],
        more_sidecars=max(0, len(sidecars) - MOST),
        revisions=[(revision, revision.digest in running) for revision in newest[:MOST]],
        more_revisions=max(0, len(newest) - MOST),
        unread=unread,
    )


def history(registry: Registry, channel: str, system: str) -> str:
    """The HTML of a channel's releases, newest first; raises UsageError if there are none."""
    known = registry.history(channel, system, MOST + 1)
    if not known:
        raise UsageError(f"there is no channel {channel}/{system}")
    releases = [_release(before, release) for before, release in zip([None, *known[:-1]], known, strict=True)]
    return html(
        "registry/history",
        **_place(registry, channel, system),
        trouble=registry.channel(channel, system).trouble,
        releases=releases[::-1][:MOST],
        more=max(0, known[0].sequence - 1 + len(known) - MOST),
    )


def difference(registry: Registry, channel: str, system: str, number: int) -> str:
    """The HTML of what a release changed for callers; raises UsageError if there is no such release, or none before it."""
    known = registry.history(channel, system, 2, until=number)
    if len(known) < 2 or known[-1].sequence != number:
        raise UsageError(f"{channel}/{system} has no release {number} with one before it")
    before, release = known
    found, problem = None, ""
    if release.policy != before.policy:
        try:
            found = diff(*(_program(registry, side) for side in known))
        except PrivtabError as error:
            problem = str(error)
    return html(
        "registry/difference",
        **_place(registry, channel, system),
        release=_release(before, release),
        problem=problem,
        **page_values(found),
    )


def _program(registry: Registry, release: Channel) -> Program:
    if release.policy is None:
        raise UsageError(f"release {release.sequence} has no policy")
    bundle = registry.blob(release.digests[pin("policy", release.policy)])
    registry.check_signature(bundle)
    return program_in(bundle, f"release {release.sequence}")[0]


def _place(registry: Registry, channel: str, system: str) -> dict[str, str]:
    return {"url": registry.url, "channel": channel, "system": system, "name": f"{channel}/{system}"}


def _release(before: Channel | None, release: Channel) -> dict[str, Any]:
    parts = {"policy": "policy", "state": "state", "shards": "state", "canary": "canary"}
    changed = [p for name, p in parts.items() if before is None or getattr(before, name) != getattr(release, name)]
    return _channel(release) | {
        "number": release.sequence,
        "before": None if before is None else before.sequence,
        "changed": "" if before is None else ", ".join(dict.fromkeys(changed)),
    }


def contents(registry: Registry) -> tuple[list[Channel], list[Revision], int]:
    """The content of the storage: channels, revisions, and the number of unreadable records."""
    revisions, broken = all_records(registry)
    return registry.channels(), revisions, len(broken)


def _channel(channel: Channel) -> dict[str, Any]:
    canary = channel.canary
    return {
        "name": f"{channel.channel}/{channel.system}",
        "path": "/".join(quote(part, safe="") for part in (channel.channel, channel.system)),
        "release": channel.sequence,
        "policy": channel.policy or "none",
        "state": channel.state or (f"{len(channel.shards)} shards" if channel.shards else "none"),
        "canary": "" if canary is None else f"{canary.policy or canary.state or 'shards'} for {canary.share:.0%}",
        "when": channel.when[:19].replace("T", " "),
        "by": channel.by,
        "why": channel.why,
        "trouble": channel.trouble,
    }


def _sidecar(entry: dict[str, Any]) -> dict[str, Any]:
    problems = [f"{name}: {bundle['message']}" for name, bundle in entry["bundles"].items() if bundle.get("message")]
    late = [name for name, feed in entry["feeds"].items() if feed["holds"] != feed["wanted"]]
    return {
        "id": entry["id"],
        "labels": ", ".join(f"{name}={value}" for name, value in entry["labels"].items()),
        "reads": ", ".join(entry["reads"]),
        "runs": ", ".join(sorted({str(feed["holds"]) for feed in entry["feeds"].values() if feed["holds"]})),
        "late": ", ".join(late),
        "problem": "; ".join(problems),
        "seen": entry["last_seen"][:19].replace("T", " "),
    }
