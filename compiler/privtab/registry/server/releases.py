"""Where a server's channels come from, and when each revision was active in them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from privtab.registry.nodes import Channel
from privtab.registry.server.desired_revision import stream_name

MOST_KNOWN = 1000
"""Revisions of one bundle of a channel whose times are kept."""


class Releases(Protocol):
    """Where channels and their bundles come from: a Registry, or something else with these methods of it."""

    @property
    def url(self) -> str:
        """Its address."""

    def renew(self) -> None:
        """Called before each look for releases."""

    def channels(self) -> Sequence[Channel]:
        """All channels."""

    def channel(self, channel: str, system: str, /) -> Channel:
        """The active release; its sequence is 0 if there was none."""

    def newer(self, known: Channel, /) -> Channel:
        """The active release, searched from a known one."""

    def confirm(self, known: Channel, /) -> Channel:
        """Check that a known release still exists."""

    def blob(self, digest: str, /) -> bytes:
        """The bundle with this SHA-256."""

    def requires_signatures(self) -> bool:
        """Whether all bundles are signed."""


@dataclass(slots=True, kw_only=True)
class Active:
    """When a revision was active in a channel, in seconds since 1970."""

    sequence: int
    """The last release that ran it."""
    since: float
    until: float | None = None
    """When another one replaced it."""


class Activity:
    """When each revision was active since the start of the server."""

    def __init__(self) -> None:
        self._known: dict[str, OrderedDict[str, Active]] = {}
        """By `stream_name`; the revision that is active comes last."""

    def record(self, channel: Channel) -> None:
        """Record since when a channel runs its revisions, and until when it ran others."""
        now = time.time()
        for (kind, shard), identity in channel.runs().items():
            known = self._known.setdefault(stream_name(channel, kind, shard), OrderedDict())
            last = next(reversed(known), None)
            if last == identity:
                known[last].sequence = channel.sequence
                continue
            if last is not None:
                known[last].until = now
            known[identity] = Active(sequence=channel.sequence, since=now)
            known.move_to_end(identity)
            while len(known) > MOST_KNOWN:
                known.popitem(last=False)

    def of(self, stream: str, revision: str) -> Active | None:
        """When a revision was active in a bundle of a channel (`stream_name`); None if not since the start, or long ago."""
        known = self._known.get(stream)
        return None if known is None else known.get(revision)
