"""Maintenance of a registry: check its integrity, and remove unneeded revisions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from privtab.base import PrivtabError
from privtab_server.errors import BundleRefused, RegistryError
from privtab_server.registry import names, records
from privtab_server.registry.nodes import BrokenRecord, Channel, Revision, encoded
from privtab_server.registry.records import UnreadableRelease
from privtab_server.registry.registry import Registry, StaticMirror

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
    """The amounts that were checked, and the problems found."""

    revisions: int
    channels: int
    entries: int
    bytes: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """The revisions without use and the bundles without a record that were or would be removed."""

    revisions: tuple[Revision, ...]
    orphans: tuple[str, ...]
    """SHA-256."""
    abandoned_files: tuple[str, ...]
    """Files left behind by writers that died."""
    kept: int
    bytes: int
    removed: bool
    unreadable_releases: tuple[str, ...] = ()
    """Unreadable records. Since their bundles are unknown, bundles without a record are kept."""


def all_records(registry: Registry) -> tuple[list[Revision], list[BrokenRecord]]:
    """All revisions of all systems, and the unreadable records."""
    systems = [system for system in registry.store.names(names.REVISIONS) if names.is_valid(system)]
    kinds = ((system, kind) for system in systems for kind in names.KINDS)
    found = [record for system, kind in kinds for record in records.all_of(registry.store, system, kind)]
    read = [record for record in found if isinstance(record, Revision)]
    read.sort(
        key=lambda record: (record.system, names.KINDS.index(record.kind), record.created, record.shard, record.id)
    )
    return read, [record for record in found if isinstance(record, BrokenRecord)]


def check(registry: Registry, *, repair: bool = False) -> CheckReport:
    """Read every bundle and every entry; `repair` rewrites broken records and stale copies for static servers."""
    revisions, broken_records = all_records(registry)
    problems = [problem for revision in revisions for problem in _revision_problems(registry, revision)]
    problems += _unreadable(registry, revisions, broken_records, repair=repair)
    problems += [Problem(path=path, message="does not belong to a registry") for path in _unexpected_paths(registry)]
    problems += [_unreadable_hold(registry, path, repair=repair) for path in registry.holds.unreadable()]
    channels = registry.channels()
    entries = 0
    for current in channels:
        history = registry.history(current.channel, current.system)
        entries += len(history)
        broken = registry.unreadable_releases(current.channel, current.system)
        known = {release.sequence for release in history} | {release.sequence for release in broken}
        missing = known ^ set(range(1, current.last + 1))
        path = f"{names.channel(current.channel, current.system)}/history"
        problems += [_unreadable_problem(registry, current, release, repair=repair) for release in broken]
        problems += [Problem(path=path, message=f"release {number} is missing") for number in sorted(missing)]
        problems += [*_missing_bundles(registry, current), *_stale_copies(registry, current, repair=repair)]
    return CheckReport(
        revisions=len(revisions),
        channels=len(channels),
        entries=entries,
        bytes=sum(revision.size for revision in revisions),
        problems=tuple(problems),
    )


def sweep(registry: Registry, *, keep: int = KEEP, older_than: float = DAY, remove: bool = False) -> GcReport:
    """Find revisions older than `older_than` seconds that are in none of the last `keep` releases of any channel.

    `remove` deletes them, except bundles that are meanwhile released or put again. Raises RegistryError if the last release
    of a channel cannot be read.
    """
    found = _unneeded(registry, keep, older_than)
    if not remove:
        return found
    for path in found.abandoned_files:
        registry.store.remove(path)
    with registry.holds.remove([*(revision.digest for revision in found.revisions), *found.orphans]) as removable:
        # From here on none of them can be released; earlier releases are visible now.
        current = _unneeded(registry, keep, older_than)
        revisions = tuple(revision for revision in current.revisions if revision.digest in removable)
        orphans = tuple(digest for digest in current.orphans if digest in removable)
        for revision in revisions:
            registry.store.remove(revision.path)
        for digest in [*(revision.digest for revision in revisions), *orphans]:
            registry.store.remove(names.blob(digest))
    return replace(
        current,
        revisions=revisions,
        orphans=orphans,
        abandoned_files=found.abandoned_files,
        kept=current.kept + len(current.revisions) - len(revisions),
        bytes=sum(revision.size for revision in revisions),
        removed=True,
    )


def _unneeded(registry: Registry, keep: int, older_than: float) -> GcReport:
    """Report the files that would be removed now."""
    channels = registry.channels()
    for current in channels:
        if current.held:
            raise RegistryError(f"it is unknown which bundles are needed: {current.trouble}")
    needed, digests = _needed_revisions(registry, channels, keep)
    revisions, broken = all_records(registry)
    now = datetime.now(UTC)
    unneeded = [
        revision
        for revision in revisions
        if (revision.system, revision.pin) not in needed
        and revision.digest not in digests
        and _age(revision, now) >= older_than
    ]
    known = digests | {revision.digest for revision in revisions}
    return GcReport(
        revisions=tuple(unneeded),
        orphans=() if broken else tuple(digest for digest in _blobs(registry) if digest not in known),
        abandoned_files=(*registry.store.abandoned_files(HOUR), *registry.holds.dead()),
        kept=len(revisions) - len(unneeded),
        bytes=sum(revision.size for revision in unneeded),
        removed=False,
        unreadable_releases=tuple(record.path for record in broken),
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
    """Unreadable records; `repair` rewrites the records whose bundle is found."""
    rewritten: set[str] = set()
    if broken and repair:
        broken_paths = {record.path for record in broken}
        known = {revision.digest for revision in revisions}
        for digest in [digest for digest in _blobs(registry) if digest not in known]:
            try:
                content = registry.blob(digest)
                path = records.revision_in(content).path
                if path in broken_paths - rewritten:
                    registry.check_signature(content)
                    records.rewrite(registry.store, path, content)
                    rewritten.add(path)
            except (RegistryError, BundleRefused):
                continue  # Not a bundle that the registry would accept.
    for record in broken:
        lost = repair and record.path not in rewritten
        advice = "; its bundle was not found: put it again, or remove the record" if lost else ""
        yield Problem(
            path=record.path, message=f"cannot be read: {record.why}{advice}", repaired=record.path in rewritten
        )


def _unexpected_paths(registry: Registry) -> Iterator[str]:
    """Yield paths in the folders of systems and channels that are neither."""
    for top in (names.REVISIONS, names.CHANNELS):
        for name in registry.store.names(top):
            if not names.is_valid(name):
                yield f"{top}/{name}"
            elif top == names.CHANNELS:
                children = registry.store.names(f"{top}/{name}")
                yield from (f"{top}/{name}/{child}" for child in children if not names.is_valid(child))


def _unreadable_hold(registry: Registry, path: str, *, repair: bool) -> Problem:
    if repair:
        registry.store.remove(path)
    return Problem(path=path, message="cannot be read, so nothing is removed", repaired=repair)


def _revision_problems(registry: Registry, revision: Revision) -> Iterator[Problem]:
    path = revision.path
    try:
        content = registry.read(revision)
        found = records.revision_in(content)
    except (BundleRefused, RegistryError) as error:
        yield Problem(path=path, message=str(error))
        return
    if (revision.path, revision.content) != (found.path, found.content):
        yield Problem(path=path, message="the record is of another bundle")
    try:
        registry.check_signature(content)
    except BundleRefused as error:
        yield Problem(path=path, message=str(error))


def _unreadable_problem(registry: Registry, current: Channel, release: UnreadableRelease, *, repair: bool) -> Problem:
    """An unreadable release; the active one has a copy, from which `repair` restores it."""
    path = names.entry(current.channel, current.system, release.sequence)
    active = current.sequence == release.sequence
    if active and repair:
        registry.store.replace(path, encoded(current.to_json()))
    advice = "; its copy is intact" if active else "; the next release takes its place" if current.held else ""
    return Problem(path=path, message=f"cannot be read: {release.why}{advice}", repaired=active and repair)


def _missing_bundles(registry: Registry, current: Channel) -> Iterator[Problem]:
    """Bundles that a channel runs but that cannot be read."""
    path = names.entry(current.channel, current.system, current.sequence)
    for key, digest in sorted(current.digests.items()):
        try:
            registry.blob(digest)
        except RegistryError as error:
            yield Problem(path=path, message=f"{key}: {error}")


def _stale_copies(registry: Registry, current: Channel, *, repair: bool) -> Iterator[Problem]:
    copies = StaticMirror(registry)
    stale = copies.stale(current)
    repaired = False
    if stale and repair:
        with suppress(PrivtabError):
            copies.refresh(current)
            repaired = True
    for path in stale:
        yield Problem(path=path, message=f"is not that of release {current.sequence}", repaired=repaired)


def _needed_revisions(registry: Registry, channels: list[Channel], keep: int) -> tuple[set[tuple[str, str]], set[str]]:
    """The (system, pin) pairs and digests that must be kept."""
    histories = (registry.history(current.channel, current.system, max(1, keep)) for current in channels)
    entries = [entry for history in histories for entry in history]
    pins = {(entry.system, key) for entry in entries for key in entry.digests}
    return pins, {digest for entry in entries for digest in entry.digests.values()}


def _blobs(registry: Registry) -> list[str]:
    top = f"{names.BLOBS}/sha256"
    return [
        name.removesuffix(".tar.gz")
        for folder in registry.store.names(top)
        for name in registry.store.names(f"{top}/{folder}")
        if name.endswith(".tar.gz")
    ]
