"""Sidecars that request bundles, and the revisions they should run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from privtab.registry.nodes import Channel

MARK = 16
"""Number of hex digits of a bundle's SHA-256 in its ETag."""


def stream_name(channel: Channel, kind: str, shard: str) -> str:
    """The name of one bundle of a channel in reports: `channel/system/kind`, with the shard after it."""
    return f"{channel.channel}/{channel.system}/{kind}" + (f"/{shard}" if shard else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarIdentity:
    """The identity of a sidecar, as it states it."""

    instance: str = ""
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRevision:
    """The revision of one bundle that a sidecar should run."""

    channel: Channel
    kind: str
    shard: str
    id: str
    digest: str
    canary: bool

    @property
    def etag(self) -> str:
        """Identifies the bytes of the bundle."""
        return f'"{self.id}.{self.digest[:MARK]}"'

    def is_current(self, held_etag: str | None) -> bool:
        """Whether a sidecar with the bundle of this ETag should keep it.

        Also True if the last release is unreadable: the sidecar's bundle may be newer than any that can be sent.
        """
        return held_etag is not None and (held_etag == self.etag or self.channel.held)


def in_canary(channel: Channel, sidecar: SidecarIdentity) -> bool:
    """Whether a sidecar is in a channel's canary: its labels match, and the hash of its name falls into the share."""
    canary = channel.canary
    if canary is None or not sidecar.instance:
        return False
    if any(sidecar.labels.get(name) != value for name, value in canary.labels.items()):
        return False
    # Hash the canary's revisions too, so that not always the same sidecars go first; a larger share includes a smaller one.
    revision = canary.policy or canary.state or "".join(sorted(canary.shards.values()))
    digest = hashlib.sha256(f"{channel.channel}/{channel.system}/{revision}/{sidecar.instance}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64 < canary.share
