"""The records of revisions, one file for each stored bundle, and of the releases of a channel.

A bundle is checked before, and bundles that a release is about to name are held. An unreadable record does not affect the
others.

Releases are files numbered without gaps, of which the highest is active. An unreadable one does not stop the channel: an earlier
readable one stays active and lists the unreadable ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from privtab.base import BrokenBundle, UsageError
from privtab.bundle import archive_entries, json_bytes
from privtab_server.errors import BundleRefused, RegistryConflict, RegistryError
from privtab_server.registry import names, nodes
from privtab_server.registry.stores import Missing, Store

_PROGRAMS, _STATES = "privtab_program", "privtab_state"


def revision_at(store: Store, path: str) -> nodes.Revision | None:
    """The revision in a record, or None if there is no record; raises BrokenRecord."""
    try:
        content = store.read(path)
    except Missing:
        return None
    try:
        revision = nodes.revision_of(path, content)
        if revision.path == path:
            return revision
        reason = f"{path} is the record of another revision"
    except RegistryError as error:
        reason = str(error)
    except UsageError as error:
        reason = f"{path} is broken: {error}"
    raise nodes.BrokenRecord(path, reason)


def all_of(store: Store, system: str, kind: str) -> Iterator[nodes.Revision | nodes.BrokenRecord]:
    """All records of a system, including unreadable ones."""
    folder = names.revisions(system, kind)
    paths = [f"{folder}/{name}" for name in store.names(folder)]
    if kind == "shard":
        paths = [f"{path}/{name}" for path in paths for name in store.names(path)]
    for path in paths:
        if path.endswith(".json"):
            try:
                record = revision_at(store, path)
            except nodes.BrokenRecord as error:
                yield error
            else:
                if record is not None:
                    yield record


def rewrite(store: Store, path: str, bundle: bytes) -> nodes.Revision:
    """Rewrite a record from its bundle; raises BundleRefused if the bundle is of another revision."""
    record = revision_in(bundle)
    if record.path != path:
        raise BundleRefused(f"it is not a bundle of {path}")
    store.replace(path, nodes.encoded(record.to_json()))
    return record


def revision_in(packed: bytes) -> nodes.Revision:
    """The record for a bundle, which is read and checked; raises BundleRefused if it is invalid or does not match its revision."""
    hashes: dict[str, str] = {}
    manifest: dict[str, Any] | None = None
    revisions: dict[str, object] = {}
    signed = False
    try:
        for path, _, file in archive_entries(io.BytesIO(packed)):
            if path == ".manifest":
                manifest = file.json_object(file.read(), BundleRefused)
                if nodes.too_deep(manifest):
                    raise BundleRefused(f"its manifest is nested more than {nodes.DEEPEST} times")
            elif path == ".signatures.json":
                signed = True
            elif path.startswith((f"{_PROGRAMS}/", f"{_STATES}/")) and path.endswith("/data.json"):
                text = file.read()
                hashes[path] = hashlib.sha256(text).hexdigest()
                revisions[path] = _revision(path, file.json_object(text, BundleRefused))
            else:
                hashes[path] = file.digest()
    except BrokenBundle as error:
        raise BundleRefused(str(error)) from None
    if manifest is None:
        raise BundleRefused("it has no manifest")
    if "patch.json" in hashes:
        raise BundleRefused("it is a delta: keep whole bundles")
    return _checked(packed, manifest, hashes, revisions, signed=signed)


def _checked(
    packed: bytes,
    manifest: dict[str, Any],
    hashes: Mapping[str, str],
    revisions: Mapping[str, object],
    *,
    signed: bool,
) -> nodes.Revision:
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        raise BundleRefused("its manifest has no metadata: it is not a bundle of privtab")
    kind, system, identity = metadata.get("kind"), metadata.get("system"), manifest.get("revision")
    shard = metadata.get("shard", "")
    if not isinstance(shard, str):
        raise BundleRefused("the shard in its manifest must be a string")
    kind = "shard" if kind == "state" and shard else kind
    try:
        names.checked_kind(str(kind))
        names.checked("the system", str(system))
        names.checked("the revision", str(identity or ""))
    except UsageError as error:
        raise BundleRefused(f"its manifest is not one of privtab: {error}") from None
    if not revisions:
        raise BundleRefused(f"it is a bundle of kind `{kind}` and holds neither a program nor a state")
    for path, revision in revisions.items():
        if revision != identity:
            raise BundleRefused(f"its revision is `{identity}`, `{path}` says `{revision}`")
    named = {name: value for name, value in manifest.items() if name != "metadata"} | {"kind": kind, "system": system}
    hashed = {"files": dict(sorted(hashes.items())), "manifest": named, "shard": shard}
    return nodes.Revision(
        system=str(system),
        kind=str(kind),
        id=str(identity),
        shard=shard,
        digest=hashlib.sha256(packed).hexdigest(),
        content=hashlib.sha256(json_bytes(hashed)).hexdigest(),
        size=len(packed),
        signed=signed,
        created=nodes.timestamp(),
        metadata=metadata,
    )


def _revision(path: str, document: Mapping[str, Any]) -> object:
    """The revision recorded in a program or a state; a shard's is two levels deeper."""
    if path.startswith(_STATES) and isinstance(document.get("windowed"), dict):
        document = document["windowed"]
    parts = document.get("at")
    if path.startswith(_STATES) and "revision" not in document and isinstance(parts, dict) and len(parts) == 1:
        (document,) = parts.values()
    return document.get("revision") if isinstance(document, dict) else None


DEAD = 3_600.0
"""Seconds after which the writer of an entry is considered dead."""
LONGEST = DEAD / 2
"""Seconds after which a writer no longer relies on its own entry."""
PATIENCE = 10.0
"""Seconds to wait for bundles that are being removed."""


class Hold:
    """A hold on bundles; call `check` before the step that relies on it."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def check(self) -> None:
        """Raise RegistryConflict if it is so old that others may soon consider its writer dead."""
        if time.monotonic() - self._started > LONGEST:
            raise RegistryConflict("this took so long that bundles may have been removed meanwhile: try again")


class Holds:
    """The holds and removals of a registry, in its folder `holds`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @contextlib.contextmanager
    def keep(self, digests: Iterable[str]) -> Iterator[Hold]:
        """Protect these bundles from removal within the block; raises RegistryConflict if they are being removed.

        A bundle that exists once the block begins stays until it ends.
        """
        needed = frozenset(digests)
        deadline = time.monotonic() + PATIENCE
        while True:
            hold = Hold()
            with self._entry("keep", needed):
                if not self._live_digests("remove") & needed:
                    yield hold
                    return
            if time.monotonic() > deadline:
                raise RegistryConflict("`privtab registry check --keep` is removing one of these bundles: try again")
            time.sleep(0.1)

    @contextlib.contextmanager
    def remove(self, digests: Iterable[str]) -> Iterator[frozenset[str]]:
        """Yield the bundles among these that are not held; no writer will rely on them until the end of the block."""
        removing = frozenset(digests)
        with self._entry("remove", removing):
            yield removing - self._live_digests("keep")

    def dead(self) -> list[str]:
        """The paths of entries whose writers died."""
        return [path for path in self._paths() if (value := self._read(path)) is not None and _is_dead(value)]

    def unreadable(self) -> list[str]:
        """The paths of entries that cannot be read."""
        found = []
        for path in self._paths():
            try:
                self._read(path)
            except RegistryError:
                found.append(path)
        return found

    # --- private ---

    @contextlib.contextmanager
    def _entry(self, purpose: str, digests: frozenset[str]) -> Iterator[None]:
        path = f"{names.HOLDS}/{purpose}-{uuid.uuid4().hex}.json"
        when = datetime.now(UTC).isoformat(timespec="seconds")
        self._store.create(path, nodes.encoded({"digests": sorted(digests), "when": when}))
        try:
            yield
        finally:
            self._store.remove(path)

    def _live_digests(self, purpose: str) -> frozenset[str]:
        """The digests in live entries; raises RegistryError if an entry is unreadable."""
        found: set[str] = set()
        for path in self._paths(purpose):
            value = self._read(path)
            if value is not None and not _is_dead(value):
                found.update(value["digests"])
        return frozenset(found)

    def _paths(self, purpose: str = "") -> list[str]:
        return [f"{names.HOLDS}/{name}" for name in self._store.names(names.HOLDS) if name.startswith(purpose)]

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            value = nodes.decoded(path, self._store.read(path))
            datetime.fromisoformat(value["when"])
            if isinstance(value["digests"], list):
                return value
        except Missing:
            return None  # Its writer has finished.
        except (RegistryError, KeyError, TypeError, ValueError):
            pass
        raise RegistryError(f"{path} cannot be read: `privtab registry check --repair` removes it")


def _is_dead(value: dict[str, Any]) -> bool:
    return datetime.now(UTC) - datetime.fromisoformat(value["when"]) > timedelta(seconds=DEAD)


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

    def entry(self, sequence: int) -> nodes.Channel | UnreadableRelease | None:
        """A release, or None if it does not exist. Raises NewerFormat for one written by a newer privtab."""
        if sequence < 1:
            return None
        path = names.entry(self._channel, self._system, sequence)
        try:
            content = self._store.read(path)
        except Missing:
            return None
        try:
            found = nodes.channel_of(path, content)
        except nodes.NewerFormat:
            raise  # It is intact, and states what is to run.
        except RegistryError as error:
            return UnreadableRelease(sequence=sequence, why=str(error))
        if (found.channel, found.system, found.sequence) != (self._channel, self._system, sequence):
            return UnreadableRelease(sequence=sequence, why=f"{path} is another channel's entry")
        return found

    def copy(self) -> nodes.Channel | None:
        """The copy of the last release, written after it; None if it is missing or unreadable."""
        path = f"{names.channel(self._channel, self._system)}/{names.LAST_RELEASE}"
        try:
            found = nodes.channel_of(path, self._store.read(path))
        except (Missing, RegistryError):
            return None
        return found if (found.channel, found.system) == (self._channel, self._system) else None

    def newest(self) -> nodes.Channel:
        """The active release; its sequence is 0 if there is no readable release."""
        copy = self.copy()
        # The copy may lag; the entries are authoritative.
        start = None if copy is None else self.entry(copy.sequence)
        if not isinstance(start, nodes.Channel):
            sequence = start.sequence if start else 0
            start = nodes.Channel(channel=self._channel, system=self._system, sequence=sequence)
        return self._active_release(start)

    def newer(self, known: nodes.Channel) -> nodes.Channel:
        """The active release, searched from a known one; takes a single read if nothing changed."""
        return self._active_release(known)

    def all(self, last: int | None = None, until: int | None = None) -> list[nodes.Channel]:
        """All readable releases, or the `last` ones of them, oldest first; `until`: none after this one."""
        current = self.newest()
        newest = current.sequence if until is None else min(until, current.sequence)
        found = [current] if 0 < current.sequence == newest else []
        for sequence in range(newest - len(found), 0, -1):
            if last is not None and len(found) >= last:
                break
            entry = self.entry(sequence)
            if isinstance(entry, nodes.Channel):
                found.append(entry)
        return found[::-1]

    def unreadable_releases(self) -> list[UnreadableRelease]:
        """All unreadable releases."""
        found = [self.entry(sequence) for sequence in range(1, self.newest().last + 1)]
        return [release for release in found if isinstance(release, UnreadableRelease)]

    # --- private ---

    def _active_release(self, known: nodes.Channel) -> nodes.Channel:
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
            if isinstance(earlier, nodes.Channel):
                return replace(earlier, broken=broken, lost=lost)
            if earlier is not None:
                broken[sequence] = earlier.why
        return nodes.Channel(channel=self._channel, system=self._system, broken=broken, lost=lost)

    def _newest_entry(self, known: nodes.Channel) -> nodes.Channel | UnreadableRelease:
        """The entry with the highest number, by galloping search from a known one; there are no gaps."""
        sequence = known.sequence
        found: nodes.Channel | UnreadableRelease = known if known.when else self.entry(sequence) or known
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
