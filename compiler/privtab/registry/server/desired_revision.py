"""Who asks, and what they are to run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from privtab.registry.nodes import Channel

MARK = 16
"""Digits of a bundle's SHA-256 in its ETag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarIdentity:
    """Who asks, as it says itself."""

    instance: str = ""
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRevision:
    """What a sidecar is to run of a stream."""

    channel: Channel
    kind: str
    shard: str
    id: str
    digest: str
    canary: bool

    @property
    def etag(self) -> str:
        """Names the bytes of the whole bundle, whether they came whole or as a delta."""
        return f'"{self.id}.{self.digest[:MARK]}"'

    def stays(self, held: str | None) -> bool:
        """Whether who runs the bundle with this ETag goes on with it.

        Also where the last release cannot be read: what runs may be newer than all that can be sent.
        """
        return held is not None and (held == self.etag or self.channel.held)


def chosen(channel: Channel, sidecar: SidecarIdentity) -> bool:
    """Whether a sidecar is one of a channel's canary: its labels fit, and its name falls into the share."""
    canary = channel.canary
    if canary is None or not sidecar.instance:
        return False
    if any(sidecar.labels.get(name) != value for name, value in canary.labels.items()):
        return False
    # By the canary's own revisions: not always the same sidecars try what is new, and more of a share take fewer in.
    tried = canary.policy or canary.state or "".join(sorted(canary.shards.values()))
    digest = hashlib.sha256(f"{channel.channel}/{channel.system}/{tried}/{sidecar.instance}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64 < canary.share
