"""Maintenance of a registry: check its integrity, and remove unneeded revisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from privtab.errors import BundleRefused, PrivtabError, RegistryError, SignatureRefused
from privtab.registry import bundles, names, records
from privtab.registry.history import Unread
from privtab.registry.nodes import BrokenRecord, Channel, Revision, encoded, pin
from privtab.registry.registry import Registry
from privtab.registry.static_mirror import StaticMirror

KEEP = 10
"""Number of releases of each channel whose bundles are kept."""
DAY = 86_400.0
HOUR = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A defect in a registry."""

    path: str
    message: str
    repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What was checked, and the problems found."""

    revisions: int
    channels: int
    entries: int
    bytes: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What was or would be removed: unneeded revisions, and bundles without a record."""

    revisions: tuple[Revision, ...]
    orphans: tuple[str, ...]
    """SHA-256."""
    litter: tuple[str, ...]
    """Files left behind by writers that died."""
    kept: int
    bytes: int
    removed: bool
    unread: tuple[str, ...] = ()
    """Unreadable records. Since their bundles are unknown, bundles without a record are kept."""


def all_records(registry: Registry) -> tuple[list[Revision], list[BrokenRecord]]:
    """All revisions of all systems, and the unreadable records."""
    systems = [system for system in registry.store.names(names.REVISIONS) if names.fits(system)]
    found = [one for system in systems for kind in names.KINDS for one in registry.records(system, kind)]
    read = [one for one in found if isinstance(one, Revision)]
    read.sort(key=lambda one: (one.system, names.KINDS.index(one.kind), one.created, one.shard, one.id))
    return read, [one for one in found if isinstance(one, BrokenRecord)]


def check(registry: Registry, *, repair: bool = False) -> CheckReport:
    """Read every bundle and every entry; `repair` rewrites broken records and stale copies for static servers."""
    revisions, broken_records = all_records(registry)
    problems = [problem for revision in revisions for problem in _wrong(registry, revision)]
    problems += _unreadable(registry, revisions, broken_records, repair=repair)
    problems += [Problem(path=path, message="does not belong to a registry") for path in _strays(registry)]
    problems += [_unreadable_hold(registry, path, repair=repair) for path in registry.holds.unreadable()]
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
            Problem(path=f"{folder}/history", message=f"release {sequence} is missing") for sequence in sorted(gone)
        ]
        problems += list(_unserved(registry, current))
        problems += list(_stale(registry, current, repair=repair))
    return CheckReport(
        revisions=len(revisions),
        channels=len(channels),
        entries=entries,
        bytes=sum(revision.size for revision in revisions),
        problems=tuple(problems),
    )


def sweep(registry: Registry, *, keep: int = KEEP, older_than: float = DAY, remove: bool = False) -> GcReport:
    """Find revisions older than `older_than` seconds that are in none of the last `keep` releases of any channel.

    `remove` deletes them, except those that are meanwhile released or put again. Raises RegistryError if the last release
    of a channel cannot be read.
    """
    found = _unneeded(registry, keep, older_than)
    if not remove:
        return found
    for path in found.litter:
        registry.store.remove(path)
    with registry.holds.remove([*(one.digest for one in found.revisions), *found.orphans]) as going:
        # From here on none of them can be released; earlier releases are visible now.
        now = _unneeded(registry, keep, older_than)
        revisions = tuple(one for one in now.revisions if one.digest in going)
        orphans = tuple(digest for digest in now.orphans if digest in going)
        for one in revisions:
            registry.store.remove(names.revision(one.system, one.kind, one.id, one.shard))
        for digest in [*(one.digest for one in revisions), *orphans]:
            registry.store.remove(names.blob(digest))
    return replace(
        now,
        revisions=revisions,
        orphans=orphans,
        litter=found.litter,
        kept=now.kept + len(now.revisions) - len(revisions),
        bytes=sum(one.size for one in revisions),
        removed=True,
    )


def _unneeded(registry: Registry, keep: int, older_than: float) -> GcReport:
    """What would be removed now."""
    channels = registry.channels()
    for current in channels:
        if current.held:
            raise RegistryError(f"it is unknown which bundles are needed: {current.trouble}")
    needed, digests = _needed(registry, channels, keep)
    revisions, broken = all_records(registry)
    now = datetime.now(UTC)
    going = [
        revision
        for revision in revisions
        if (revision.system, pin(revision.kind, revision.id, revision.shard)) not in needed
        and revision.digest not in digests
        and _age(revision, now) >= older_than
    ]
    known = digests | {revision.digest for revision in revisions}
    return GcReport(
        revisions=tuple(going),
        orphans=() if broken else tuple(digest for digest in _blobs(registry) if digest not in known),
        litter=(*registry.store.litter(HOUR), *registry.holds.dead()),
        kept=len(revisions) - len(going),
        bytes=sum(revision.size for revision in going),
        removed=False,
        unread=tuple(one.path for one in broken),
    )


def _age(revision: Revision, now: datetime) -> float:
    """Seconds since a revision was created; 0 if its time is invalid."""
    try:
        return (now - datetime.fromisoformat(revision.created)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _unreadable(
    registry: Registry, revisions: list[Revision], broken: list[BrokenRecord], *, repair: bool
) -> Iterator[Problem]:
    """Unreadable records; `repair` rewrites those whose bundle is found."""
    mended: set[str] = set()
    if broken and repair:
        wanted = {one.path for one in broken}
        known = {revision.digest for revision in revisions}
        for digest in [digest for digest in _blobs(registry) if digest not in known]:
            try:
                content = registry.blob(digest)
                made = records.revision_in(content)
                path = names.revision(made.system, made.kind, made.id, made.shard)
                if path in wanted - mended:
                    registry.check_signature(content)
                    records.mend(registry.store, path, content)
                    mended.add(path)
            except (RegistryError, BundleRefused):
                continue  # Not a bundle that the registry would accept.
    for one in broken:
        lost = repair and one.path not in mended
        after = "; its bundle was not found: put it again, or remove the record" if lost else ""
        yield Problem(path=one.path, message=f"cannot be read: {one.why}{after}", repaired=one.path in mended)


def _strays(registry: Registry) -> Iterator[str]:
    """Paths among those of systems and channels that are neither."""
    for top in (names.REVISIONS, names.CHANNELS):
        for name in registry.store.names(top):
            if not names.fits(name):
                yield f"{top}/{name}"
            elif top == names.CHANNELS:
                yield from (
                    f"{top}/{name}/{one}" for one in registry.store.names(f"{top}/{name}") if not names.fits(one)
                )


def _unreadable_hold(registry: Registry, path: str, *, repair: bool) -> Problem:
    if repair:
        registry.store.remove(path)
    return Problem(path=path, message="cannot be read, so nothing is removed", repaired=repair)


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
        yield Problem(path=path, message="the record is of another bundle")
    trust = registry.trust()
    if trust is not None:
        from privtab.bundle.verify import verify

        try:
            verify(content, trust)
        except SignatureRefused as error:
            yield Problem(path=path, message=str(error))


def _broken(registry: Registry, current: Channel, one: Unread, *, repair: bool) -> Problem:
    """An unreadable release; the active one has a copy, from which `repair` restores it."""
    path = names.entry(current.channel, current.system, one.sequence)
    known = current.sequence == one.sequence
    if known and repair:
        registry.store.replace(path, encoded(current.to_json()))
    after = "; its copy is intact" if known else "; the next release takes its place" if current.held else ""
    return Problem(path=path, message=f"cannot be read: {one.why}{after}", repaired=known and repair)


def _unserved(registry: Registry, current: Channel) -> Iterator[Problem]:
    """Bundles that a channel runs but that cannot be read."""
    path = names.entry(current.channel, current.system, current.sequence)
    for known, digest in sorted(current.digests.items()):
        try:
            registry.blob(digest)
        except RegistryError as error:
            yield Problem(path=path, message=f"{known}: {error}")


def _stale(registry: Registry, current: Channel, *, repair: bool) -> Iterator[Problem]:
    copies = StaticMirror(registry)
    stale = copies.stale(current)
    repaired = False
    if stale and repair:
        try:
            copies.refresh(current)
            repaired = True
        except PrivtabError:
            repaired = False
    for path in stale:
        yield Problem(path=path, message=f"is not that of release {current.sequence}", repaired=repaired)


def _needed(registry: Registry, channels: list[Channel], keep: int) -> tuple[set[tuple[str, str]], set[str]]:
    """The (system, pin) pairs and digests that must be kept."""
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
