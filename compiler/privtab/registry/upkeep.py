"""Looking after a registry: is everything there and what it was, and what may go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from privtab.errors import BundleRefused, PrivtabError, RegistryConflict, RegistryError, SignatureRefused
from privtab.registry import bundles, names
from privtab.registry.copies import Copies
from privtab.registry.history import Unread
from privtab.registry.nodes import Channel, Revision, encoded, pin
from privtab.registry.registry import Registry

KEEP = 10
"""Switches of each channel whose bundles stay."""
DAY = 86_400.0
HOUR = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is not as it should be."""

    path: str
    message: str
    repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was looked at, and what was found."""

    revisions: int
    channels: int
    entries: int
    bytes: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What goes, or would go: revisions that nothing needs, and bundles that no revision is of."""

    revisions: tuple[Revision, ...]
    orphans: tuple[str, ...]
    """SHA-256."""
    litter: tuple[str, ...]
    """Files that writers left behind which died."""
    kept: int
    bytes: int
    removed: bool


def all_revisions(registry: Registry) -> list[Revision]:
    """Every revision of every system."""
    systems = registry.store.names(names.REVISIONS)
    return [found for system in systems for kind in names.KINDS for found in registry.revisions(system, kind)]


def check(registry: Registry, *, repair: bool = False) -> Checked:
    """Read every bundle and every entry; with `repair` the copies for static servers are written anew where they are stale."""
    revisions = all_revisions(registry)
    problems = [problem for revision in revisions for problem in _wrong(registry, revision)]
    channels = registry.channels()
    entries = 0
    for current in channels:
        history = registry.history(current.channel, current.system)
        entries += len(history)
        broken = registry.unread(current.channel, current.system)
        there = {entry.sequence for entry in history} | {one.sequence for one in broken}
        gone = there ^ set(range(1, current.last + 1))
        folder = names.channel(current.channel, current.system)
        problems += [_broken(registry, current, one, repair=repair) for one in broken]
        problems += [
            Problem(path=f"{folder}/history", message=f"switch {sequence} is missing") for sequence in sorted(gone)
        ]
        problems += list(_unserved(registry, current))
        problems += list(_stale(registry, current, repair=repair))
    return Checked(
        revisions=len(revisions),
        channels=len(channels),
        entries=entries,
        bytes=sum(revision.size for revision in revisions),
        problems=tuple(problems),
    )


def sweep(registry: Registry, *, keep: int = KEEP, older_than: float = DAY, remove: bool = False) -> Swept:
    """Find the revisions that none of the last `keep` switches of any channel runs, and that came `older_than` seconds ago.

    With `remove` they go, unless a channel is switched meanwhile: then RegistryConflict, and nothing more is removed. Raises
    RegistryError where the last switch of a channel cannot be read.
    """
    channels = registry.channels()
    for current in channels:
        if current.held:
            raise RegistryError(f"nobody knows what is needed: {current.trouble}")
    needed, digests = _needed(registry, channels, keep)
    revisions = all_revisions(registry)
    now = datetime.now(UTC)
    going = [
        revision
        for revision in revisions
        if (revision.system, pin(revision.kind, revision.id, revision.shard)) not in needed
        and (now - datetime.fromisoformat(revision.created)).total_seconds() >= older_than
    ]
    gone = set(map(id, going))
    digests |= {revision.digest for revision in revisions if id(revision) not in gone}
    orphans = [digest for digest in _blobs(registry) if digest not in digests]
    litter = registry.store.litter(HOUR)
    if remove:
        for path in litter:
            registry.store.remove(path)
        for revision in going:
            _hold(registry, channels)
            registry.store.remove(names.revision(revision.system, revision.kind, revision.id, revision.shard))
        for digest in orphans:
            _hold(registry, channels)
            registry.store.remove(names.blob(digest))
    doomed = {revision.digest for revision in going}
    return Swept(
        revisions=tuple(going),
        orphans=tuple(digest for digest in orphans if digest not in doomed),
        litter=tuple(litter),
        kept=len(revisions) - len(going),
        bytes=sum(revision.size for revision in going),
        removed=remove,
    )


def _wrong(registry: Registry, revision: Revision) -> Iterator[Problem]:
    path = names.revision(revision.system, revision.kind, revision.id, revision.shard)
    try:
        content = registry.read(revision)
        found = bundles.read(content)
    except BundleRefused as error:
        yield Problem(path=path, message=str(error))
        return
    except RegistryError as error:
        yield Problem(path=path, message=str(error))
        return
    told = revision.system, revision.kind, revision.id, revision.shard, revision.content
    if told != (found.system, found.kind, found.id, found.shard, found.content):
        yield Problem(path=path, message="the record tells of another bundle")
    trust = registry.trust()
    if trust is not None:
        from privtab.bundle.verify import verify

        try:
            verify(content, trust)
        except SignatureRefused as error:
            yield Problem(path=path, message=str(error))


def _broken(registry: Registry, current: Channel, one: Unread, *, repair: bool) -> Problem:
    """A switch that cannot be read; the one that runs has a copy."""
    path = names.entry(current.channel, current.system, one.sequence)
    known = current.sequence == one.sequence
    if known and repair:
        registry.store.replace(path, encoded(current.to_json()))
    after = "; its copy says what it said" if known else "; the next switch takes its place" if current.held else ""
    return Problem(path=path, message=f"cannot be read: {one.why}{after}", repaired=known and repair)


def _unserved(registry: Registry, current: Channel) -> Iterator[Problem]:
    """What a channel runs and cannot be sent."""
    path = names.entry(current.channel, current.system, current.sequence)
    for known, digest in sorted(current.digests.items()):
        try:
            registry.blob(digest)
        except RegistryError as error:
            yield Problem(path=path, message=f"{known}: {error}")


def _stale(registry: Registry, current: Channel, *, repair: bool) -> Iterator[Problem]:
    copies = Copies(registry)
    stale = copies.stale(current)
    repaired = False
    if stale and repair:
        try:
            copies.refresh(current)
            repaired = True
        except PrivtabError:
            repaired = False
    for path in stale:
        yield Problem(path=path, message=f"is not that of switch {current.sequence}", repaired=repaired)


def _needed(registry: Registry, channels: list[Channel], keep: int) -> tuple[set[tuple[str, str]], set[str]]:
    """(system, pin) and digests that must stay."""
    entries = [
        entry for current in channels for entry in registry.history(current.channel, current.system, max(1, keep))
    ]
    pins = {(entry.system, known) for entry in entries for known in entry.digests}
    return pins, {digest for entry in entries for digest in entry.digests.values()}


def _blobs(registry: Registry) -> list[str]:
    top = f"{names.BLOBS}/sha256"
    return [
        name.removesuffix(".tar.gz")
        for folder in registry.store.names(top)
        for name in registry.store.names(f"{top}/{folder}")
        if name.endswith(".tar.gz")
    ]


def _hold(registry: Registry, before: list[Channel]) -> None:
    """Raise RegistryConflict where a channel was switched since."""
    for channel in before:
        now = registry.newer(channel)
        if now.last != channel.last:
            raise RegistryConflict(f"{now.channel}/{now.system} was switched meanwhile: look again")
