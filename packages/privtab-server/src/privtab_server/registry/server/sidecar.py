"""Sidecars that request bundles, what they say of themselves, and the revisions they should run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privtab.base import printable_text
from privtab_server.registry.nodes import Channel

_AGENT = re.compile(r"Open[ -]Policy[ -]Agent/([\w.+-]{1,50})(?: |$)", re.ASCII)
LONGEST = 100


def sanitize(text: str, longest: int = LONGEST, *, one_line: bool = True) -> str:
    r"""Untrusted text for storage and display: at most `longest` characters, all of them printable.

    >>> print(sanitize("\x1b[31mred\ud800"))
    \x1b[31mred\ud800
    """
    return printable_text(text[:longest], one_line=one_line)[:longest]


def valid_labels(value: Any) -> dict[str, str]:
    """The valid labels in a value."""
    if not isinstance(value, dict):
        return {}
    return {sanitize(str(name)): sanitize(text) for name, text in list(value.items())[:50] if isinstance(text, str)}


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


def sidecar_identity(instance: str | None, labels: str | None, agent: str | None = None) -> SidecarIdentity:
    """The sidecar's identity from headers: a name, and labels as `app=x,zone=y`. Invalid parts are dropped.

    `agent`: OPA's User-Agent, whose version becomes a label, as in OPA's reports.
    """
    name = (instance or "").strip()
    found: dict[str, str] = {}
    for part in (labels or "")[:4000].split(",")[:50]:
        key, equals, value = part.partition("=")
        if equals and key.strip():
            found[sanitize(key.strip())] = sanitize(value.strip())
    if version := _AGENT.match(agent or ""):
        found["version"] = version[1]
    return SidecarIdentity(instance=name if len(name) <= 200 and name.isprintable() else "", labels=found)


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
        """Return whether a sidecar with the bundle of this ETag should keep it.

        Also True if the last release is unreadable: the sidecar's bundle may be newer than any that can be sent.
        """
        return held_etag is not None and (held_etag == self.etag or self.channel.held)


def in_canary(channel: Channel, sidecar: SidecarIdentity) -> bool:
    """Return whether a sidecar is in a channel's canary: its labels match, and the hash of its name falls into the share."""
    canary = channel.canary
    if canary is None or not sidecar.instance:
        return False
    if any(sidecar.labels.get(name) != value for name, value in canary.labels.items()):
        return False
    # Hash the canary's revisions too, so that not always the same sidecars go first; a larger share includes a smaller one.
    revision = canary.policy or canary.state or "".join(sorted(canary.shards.values()))
    digest = hashlib.sha256(f"{channel.channel}/{channel.system}/{revision}/{sidecar.instance}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64 < canary.share
