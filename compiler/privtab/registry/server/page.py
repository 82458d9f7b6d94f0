"""The HTML page at the server's root: channels, problems, sidecars, newest revisions. Without scripts or external resources."""

from __future__ import annotations

from typing import Any

from privtab import _resources
from privtab.registry.maintenance import all_records
from privtab.registry.nodes import Channel, Revision
from privtab.registry.registry import Registry
from privtab.registry.server.feeds import Feeds
from privtab.registry.server.fleet import FleetTracker

MOST = 50
"""Maximum revisions and sidecars shown."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def page(feeds: Feeds, fleet: FleetTracker, channels: list[Channel], revisions: list[Revision], unread: int) -> str:
    """The HTML."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_resources.templates().joinpath("registry/index.html.j2").read_text("utf-8"))
    sidecars = fleet.sidecars(feeds.places)
    newest = sorted(revisions, key=lambda revision: revision.created, reverse=True)
    running = {digest for channel in channels for digest in channel.digests.values()}
    return template.render(
        url=feeds.registry.url,
        trouble=None if feeds.trouble is None else feeds.trouble.message,
        channels=[_channel(channel) for channel in channels],
        sidecars=[_sidecar(sidecar) for sidecar in sidecars[:MOST]],
        more_sidecars=max(0, len(sidecars) - MOST),
        revisions=[(revision, revision.digest in running) for revision in newest[:MOST]],
        more_revisions=max(0, len(newest) - MOST),
        unread=unread,
    )


def contents(registry: Registry) -> tuple[list[Channel], list[Revision], int]:
    """The content of the storage: channels, revisions, and the number of unreadable records."""
    revisions, broken = all_records(registry)
    return registry.channels(), revisions, len(broken)


def _channel(channel: Channel) -> dict[str, Any]:
    canary = channel.canary
    return {
        "name": f"{channel.channel}/{channel.system}",
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
