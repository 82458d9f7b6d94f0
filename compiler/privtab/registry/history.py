"""Read the releases of a channel: files numbered without gaps, of which the highest is active.

An unreadable release does not stop the channel: an earlier readable one stays active and lists the unreadable ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from privtab.errors import RegistryError
from privtab.registry import names
from privtab.registry.nodes import Channel, NewerFormat, channel_of
from privtab.registry.stores import Missing, Store

MOST = 99_999_999
"""The maximum number of releases of a channel."""
MOST_UNREAD = 100
"""Unreadable releases in a row after which the search for a readable one ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRelease:
    """A release that exists but cannot be read."""

    sequence: int
    why: str


class History:
    """The releases of one channel of one system. Every method raises RegistryError if the storage fails."""

    def __init__(self, store: Store, channel: str, system: str) -> None:
        self._store = store
        self._channel = channel
        self._system = system

    def entry(self, sequence: int) -> Channel | UnreadableRelease | None:
        """A release, or None if it does not exist. Raises NewerFormat for one written by a newer privtab."""
        if sequence < 1:
            return None
        path = names.entry(self._channel, self._system, sequence)
        try:
            content = self._store.read(path)
        except Missing:
            return None
        try:
            found = channel_of(path, content)
        except NewerFormat:
            raise  # It is intact, and states what is to run.
        except RegistryError as error:
            return UnreadableRelease(sequence=sequence, why=str(error))
        if (found.channel, found.system, found.sequence) != (self._channel, self._system, sequence):
            return UnreadableRelease(sequence=sequence, why=f"{path} is another channel's entry")
        return found

    def copy(self) -> Channel | None:
        """The copy of the last release, written after it; None if it is missing or unreadable."""
        path = f"{names.channel(self._channel, self._system)}/{names.LAST_RELEASE}"
        try:
            found = channel_of(path, self._store.read(path))
        except (Missing, RegistryError):
            return None
        return found if (found.channel, found.system) == (self._channel, self._system) else None

    def newest(self) -> Channel:
        """The active release; its sequence is 0 if there is no readable release."""
        copy = self.copy()
        # The copy may lag; the entries are authoritative.
        start = None if copy is None else self.entry(copy.sequence)
        if isinstance(start, Channel):
            return self._active_release(start)
        return self._active_release(
            Channel(channel=self._channel, system=self._system, sequence=start.sequence if start else 0)
        )

    def newer(self, known: Channel) -> Channel:
        """The active release, searched from a known one; takes a single read if nothing changed."""
        return self._active_release(known)

    def all(self, last: int | None = None, until: int | None = None) -> list[Channel]:
        """All readable releases, or the `last` ones of them, oldest first; `until`: none after this one."""
        current = self.newest()
        newest = current.sequence if until is None else min(until, current.sequence)
        found = [current] if 0 < current.sequence == newest else []
        for sequence in range(newest - len(found), 0, -1):
            if last is not None and len(found) >= last:
                break
            entry = self.entry(sequence)
            if isinstance(entry, Channel):
                found.append(entry)
        return found[::-1]

    def unreadable_releases(self) -> list[UnreadableRelease]:
        """All unreadable releases."""
        found = [self.entry(sequence) for sequence in range(1, self.newest().last + 1)]
        return [release for release in found if isinstance(release, UnreadableRelease)]

    # --- private ---

    def _active_release(self, known: Channel) -> Channel:
        found = self._newest_entry(known)
        if not isinstance(found, UnreadableRelease):
            return found
        copy = self.copy()
        if copy is not None and copy.sequence == found.sequence:
            # The release was completed, so it is active, and the copy has its content.
            return replace(copy, broken={found.sequence: found.why})
        broken = {found.sequence: found.why}
        # The copy is written last: without it, it is unknown how far the release got.
        lost = copy is None
        for sequence in range(found.sequence - 1, 0, -1):
            if len(broken) > MOST_UNREAD:
                name = f"{self._channel}/{self._system}"
                raise RegistryError(
                    f"{name}: more than {MOST_UNREAD} releases in a row cannot be read, "
                    f"from {found.sequence} down ({found.why})"
                )
            earlier = known if known.when and known.sequence == sequence else self.entry(sequence)
            if isinstance(earlier, Channel):
                return replace(earlier, broken=broken, lost=lost)
            if earlier is not None:
                broken[sequence] = earlier.why
        return Channel(channel=self._channel, system=self._system, broken=broken, lost=lost)

    def _newest_entry(self, known: Channel) -> Channel | UnreadableRelease:
        """The entry with the highest number, by galloping search from a known one; there are no gaps."""
        sequence = known.sequence
        found: Channel | UnreadableRelease = known if known.when else self.entry(sequence) or known
        if found is known:
            # Keep what is known of its own entry; later entries are read again.
            found = replace(
                known, broken={number: why for number, why in known.broken.items() if number == sequence}, lost=False
            )
        step, beyond = 1, None
        while beyond is None:
            if sequence > MOST:
                name = f"{self._channel}/{self._system}"
                raise RegistryError(
                    f"{name} has more than {MOST:,} releases: the storage seems to return every file requested"
                )
            later = self.entry(sequence + step)
            if later is None:
                beyond = sequence + step
            else:
                found, sequence, step = later, sequence + step, step * 2
        while beyond - sequence > 1:
            middle = (beyond + sequence) // 2
            later = self.entry(middle)
            if later is None:
                beyond = middle
            else:
                found, sequence = later, middle
        return found
