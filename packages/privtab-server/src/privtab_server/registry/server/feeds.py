"""Feeds of the server: channels watched in the storage, their bundles, and when each revision was active in them.

While the storage fails, known channels are served from memory, with a header that says for how long. Waiting sidecars
are told of a release only once its bundles are loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from privtab.base import PrivtabError, RecentlyUsed, UsageError
from privtab_server.registry import names
from privtab_server.registry.nodes import Channel, pin
from privtab_server.registry.server.decisions import RunningCanary
from privtab_server.registry.server.sidecar import DesiredRevision, SidecarIdentity, in_canary, stream_name

LOG = logging.getLogger("privtab.serve")

CACHED_BYTES = 256 << 20
"""Bytes of inactive bundles kept in memory; active bundles are always kept."""
MISSING_SECONDS = 1.0
"""Seconds before a missing channel is looked up again."""
MOST_MISSING = 1000
MOST_KINDS = 10_000
AT_ONCE = 8
"""Channels checked concurrently."""
CONFIRM_SECONDS = 2.0
"""Seconds between two checks that active releases still exist: emptied storage has nothing newer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFailure:
    """A failure of the storage: when it began, and its first message."""

    since: float
    message: str


class Feeds:
    """The channels of a registry. For one event loop."""

    def __init__(self, registry: Releases, *, only: Iterable[str] = (), poll: float = 0.3) -> None:
        self.registry = registry
        self.trouble: StorageFailure | None = None
        self.failures = 0
        self.signed = False
        """True if the registry accepts signed bundles only."""
        self._only = frozenset(only)
        self._poll = poll
        self._channels: dict[tuple[str, str], Channel] = {}
        self._changed: dict[tuple[str, str], asyncio.Event] = {}
        self._requested: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self._missing: RecentlyUsed[tuple[str, str], Channel] = RecentlyUsed(MOST_MISSING, seconds=MISSING_SECONDS)
        self._bundles: RecentlyUsed[str, bytes] = RecentlyUsed()
        """Bundles by digest; `_drop_bundles` removes unneeded bundles."""
        self._in_progress: dict[str, asyncio.Task[bytes]] = {}
        self.places: dict[str, set[str]] = {}
        """Places where each revision was active since the start, as `channel/system`."""
        self.kinds: RecentlyUsed[str, str] = RecentlyUsed(
            MOST_KINDS, dropped=lambda identity, _: self.places.pop(identity, None)
        )
        """The kind of each of them."""
        self.activity = Activity()
        self.canaries: dict[str, RunningCanary] = {}
        """Canaries in progress, by `channel/system`."""
        self._confirmed_at = time.monotonic()
        self.closed = False

    # --- channels ---

    @property
    def channels(self) -> Mapping[tuple[str, str], Channel]:
        """The channels that were requested or existed at the start."""
        return self._channels

    async def start(self) -> None:
        """Read the existing channels; failures are recorded, and `watch` tries again."""
        try:
            for channel in await asyncio.to_thread(self.registry.channels):
                if self._is_served(channel.channel):
                    await self._serve(channel)
        except (PrivtabError, OSError) as error:
            self._record_failure(error)

    async def watch(self) -> None:
        """Poll for releases forever."""
        while True:
            await asyncio.sleep(self._poll)
            try:
                await self._check_channels()
            except Exception:
                LOG.exception("the registry could not be watched")

    async def channel(self, name: str, system: str) -> Channel | None:
        """The active release of a channel, or None if there is no such channel. Raises RegistryError if that is unknown."""
        known = self._channels.get((name, system))
        if known is not None or not self._is_served(name):
            return known
        if self._missing.get((name, system)) is not None:
            return None
        try:
            release = await asyncio.to_thread(self.registry.channel, name, system)
        except UsageError:
            return None
        except (PrivtabError, OSError) as error:
            self._record_failure(error)
            raise
        if release.last == 0:
            self._missing.put((name, system), release)
            return None
        await self._serve(release)
        return self._channels.get((name, system))

    def desired(self, channel: Channel, file: str, sidecar: SidecarIdentity) -> DesiredRevision | None:
        """The revision that a sidecar should run for the file it requests; None if the channel has no such file."""
        canary = in_canary(channel, sidecar)
        for (kind, shard), identity in channel.runs(canary=canary).items():
            if names.served_path(kind, shard) == file:
                self._requested.setdefault((channel.channel, channel.system), set()).add((kind, shard))
                return DesiredRevision(
                    channel=channel,
                    kind=kind,
                    shard=shard,
                    id=identity,
                    digest=channel.digests[pin(kind, identity, shard)],
                    canary=canary,
                )
        return None

    async def wait_for_change(self, channel: Channel, seconds: float) -> bool:
        """Wait until a channel changes, for at most `seconds` or until the server stops; returns whether it changed."""
        key = channel.channel, channel.system
        deadline = time.monotonic() + seconds
        while _stamp(self._channels[key]) == _stamp(channel):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self.closed:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed[key].wait(), remaining)
        return True

    def end(self) -> None:
        """End all waits."""
        self.closed = True
        for changed in self._changed.values():
            changed.set()

    # --- bundles ---

    async def bundle(self, digest: str) -> bytes:
        """The bytes of a bundle; raises RegistryError."""
        found = self._bundles.get(digest)
        return await self._loaded_once(digest) if found is None else found

    async def close(self) -> None:
        """Release all resources."""
        for task in self._in_progress.values():
            task.cancel()

    # --- private ---

    def _is_served(self, name: str) -> bool:
        return not self._only or name in self._only

    async def _check_channels(self) -> None:
        self.registry.renew()
        if not self._channels and self.trouble is not None:
            await self.start()
        confirm = self.trouble is not None
        if time.monotonic() - self._confirmed_at > CONFIRM_SECONDS:
            self._confirmed_at, confirm = time.monotonic(), True
        slots = asyncio.Semaphore(AT_ONCE)
        checks = [self._check_channel(channel, slots, confirm=confirm) for channel in list(self._channels.values())]
        succeeded = await asyncio.gather(*checks)
        if all(succeeded) and self._channels and self.trouble is not None:
            LOG.warning("the registry answers again after %.0f s", time.time() - self.trouble.since)
            self.trouble = None

    async def _check_channel(self, channel: Channel, slots: asyncio.Semaphore, *, confirm: bool) -> bool:
        """Update a channel if it changed; returns False if the storage fails."""
        async with slots:
            try:
                known = await asyncio.to_thread(self.registry.confirm, channel) if confirm else channel
                newer = await asyncio.to_thread(self.registry.newer, known)
                if _stamp(newer) != _stamp(channel):
                    await self._serve(newer)
            except (PrivtabError, OSError) as error:
                self._record_failure(error)
                return False
        return True

    async def _serve(self, channel: Channel) -> None:
        """Serve a channel, after loading the bundles that sidecars have requested."""
        key = channel.channel, channel.system
        self.signed = await asyncio.to_thread(self.registry.requires_signatures)
        for canary in (False, True):
            for (kind, shard), identity in channel.runs(canary=canary).items():
                self.kinds.put(identity, kind)
                self.places.setdefault(identity, set()).add("/".join(key))
                if (kind, shard) in self._requested.get(key, ()):
                    await self.bundle(channel.digests[pin(kind, identity, shard)])
        known = self._channels.get(key)
        if known is not None and (known.sequence > channel.sequence or _stamp(known) == _stamp(channel)):
            return
        self._channels[key] = channel
        self.activity.record(channel)
        self._record_canary(known, channel)
        if channel.trouble and (known is None or known.broken != channel.broken):
            LOG.error("%s", channel.trouble)
        changed, self._changed[key] = self._changed.get(key), asyncio.Event()
        self._drop_bundles()
        if changed is not None:
            changed.set()
        if known is not None and known.sequence != channel.sequence:
            LOG.info("%s/%s is at release %d", channel.channel, channel.system, channel.sequence)

    def _record_canary(self, before: Channel | None, after: Channel) -> None:
        """Record when a canary began: earlier decisions do not count."""
        place = f"{after.channel}/{after.system}"
        if after.canary is None:
            self.canaries.pop(place, None)
        elif before is None or before.canary != after.canary or before.runs() != after.runs():
            runs = {*after.runs().values(), *after.runs(canary=True).values()}
            since = datetime.now(UTC).isoformat(timespec="seconds")[:19]
            self.canaries[place] = RunningCanary(place=place, since=since, revisions=frozenset(runs))

    def _drop_bundles(self) -> None:
        """Drop inactive bundles beyond the limit, the longest unused first, but the last one."""
        active = {digest for channel in self._channels.values() for digest in channel.digests.values()}
        inactive = {digest: len(bundle) for digest, bundle in self._bundles.items() if digest not in active}
        total = sum(inactive.values())
        for digest, size in list(inactive.items())[:-1]:
            if total > CACHED_BYTES:
                self._bundles.pop(digest)
                total -= size

    async def _load(self, digest: str) -> bytes:
        try:
            found = await asyncio.to_thread(self.registry.blob, digest)
        except (PrivtabError, OSError) as error:
            self._record_failure(error)
            raise
        self._bundles.put(digest, found)
        self._drop_bundles()
        return found

    async def _loaded_once(self, digest: str) -> bytes:
        """A bundle from the storage, loaded once for all concurrent waiters; none of them cancels it."""
        task = self._in_progress.get(digest)
        if task is None:
            task = self._in_progress[digest] = asyncio.create_task(self._load(digest))
            task.add_done_callback(lambda _: self._in_progress.pop(digest, None))
        return await asyncio.shield(task)

    def _record_failure(self, error: BaseException) -> None:
        self.failures += 1
        message = str(error) or type(error).__name__
        if self.trouble is None:
            LOG.warning("the registry is unavailable; serving the last known releases: %s", message)
            self.trouble = StorageFailure(since=time.time(), message=message)


def _stamp(channel: Channel) -> tuple[int, tuple[int, ...], bool]:
    """A value that differs if anything about a channel has changed."""
    return channel.sequence, tuple(channel.broken), channel.lost


MOST_KNOWN = 1000
"""Revisions of one bundle of a channel whose times are kept."""


class Releases(Protocol):
    """The source of channels and their bundles: a Registry, or another object with these methods."""

    @property
    def url(self) -> str:
        """The address of the source."""

    def renew(self) -> None:
        """Called before each look for releases."""

    def channels(self) -> Sequence[Channel]:
        """All channels."""

    def channel(self, channel: str, system: str, /) -> Channel:
        """The active release; its sequence is 0 if there was none."""

    def newer(self, known: Channel, /) -> Channel:
        """The active release, searched from a known one."""
        return self.channel(known.channel, known.system)

    def confirm(self, known: Channel, /) -> Channel:
        """Check that a known release still exists, unless `newer` does."""
        return known

    def blob(self, digest: str, /) -> bytes:
        """The bundle with this SHA-256."""

    def requires_signatures(self) -> bool:
        """Return whether all bundles are signed."""


@dataclass(slots=True, kw_only=True)
class Active:
    """The period in which a revision was active in a channel, in seconds since 1970."""

    sequence: int
    """The last release that ran it."""
    since: float
    until: float | None = None
    """The time when another revision replaced it."""


class Activity:
    """The period in which each revision was active, since the start of the server."""

    def __init__(self) -> None:
        self._known: dict[str, RecentlyUsed[str, Active]] = {}
        """Revisions by `stream_name`; the active revision comes last."""

    def record(self, channel: Channel) -> None:
        """Record since when a channel runs its revisions, and until when it ran others."""
        now = time.time()
        for (kind, shard), identity in channel.runs().items():
            known = self._known.setdefault(stream_name(channel, kind, shard), RecentlyUsed(MOST_KNOWN))
            last = next(reversed(known), None)
            active = None if last is None else known.peek(last)
            if active is not None and last == identity:
                active.sequence = channel.sequence
                continue
            if active is not None:
                active.until = now
            known.put(identity, Active(sequence=channel.sequence, since=now))

    def of(self, stream: str, revision: str) -> Active | None:
        """Return the period in which a revision was active in a bundle of a channel (`stream_name`); None if not since the start, or long ago."""
        known = self._known.get(stream)
        return None if known is None else known.peek(revision)
