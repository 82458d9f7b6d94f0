"""The records of revisions: one file for each stored bundle, which is checked before, and holds on those that a release is about to name. An unreadable one does not affect the others."""

from __future__ import annotations

import contextlib
import hashlib
import io
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from privtab.bundle.archive import digest, entries, json_bytes
from privtab.bundle.bounds import read_object
from privtab.errors import BrokenBundle, BundleRefused, RegistryConflict, RegistryError, UsageError
from privtab.moments import WINDOWED
from privtab.registry import names
from privtab.registry.nodes import DEEPEST, BrokenRecord, Revision, decoded, encoded, revision_of, timestamp, too_deep
from privtab.registry.stores import Missing, Store
from privtab.signatures import PATCH, SIGNATURES

MANIFEST = ".manifest"
_PROGRAMS, _STATES = "privtab_program", "privtab_state"


def revision_at(store: Store, path: str) -> Revision | None:
    """The revision in a record, or None if there is no record; raises BrokenRecord."""
    try:
        content = store.read(path)
    except Missing:
        return None
    try:
        revision = revision_of(path, content)
        if names.revision(revision.system, revision.kind, revision.id, revision.shard) == path:
            return revision
        reason = f"{path} is the record of another revision"
    except RegistryError as error:
        reason = str(error)
    except UsageError as error:
        reason = f"{path} is broken: {error}"
    raise BrokenRecord(path, reason)


def all_of(store: Store, system: str, kind: str) -> Iterator[Revision | BrokenRecord]:
    """All records of a system, including unreadable ones."""
    folder = names.revisions(system, kind)
    paths = [f"{folder}/{name}" for name in store.names(folder)]
    if kind == "shard":
        paths = [f"{path}/{name}" for path in paths for name in store.names(path)]
    for path in paths:
        if path.endswith(".json"):
            try:
                record = revision_at(store, path)
            except BrokenRecord as error:
                yield error
            else:
                if record is not None:
                    yield record


def rewrite(store: Store, path: str, bundle: bytes) -> Revision:
    """Rewrite a record from its bundle; raises BundleRefused if the bundle is of another revision."""
    record = revision_in(bundle)
    if names.revision(record.system, record.kind, record.id, record.shard) != path:
        raise BundleRefused(f"it is not a bundle of {path}")
    store.replace(path, encoded(record.to_json()))
    return record


def revision_in(packed: bytes) -> Revision:
    """The record for a bundle, which is read and checked; raises BundleRefused if it is invalid or does not match its revision."""
    hashes: dict[str, str] = {}
    manifest: dict[str, Any] | None = None
    revisions: dict[str, object] = {}
    signed = False
    try:
        for path, _, file in entries(io.BytesIO(packed)):
            if path == MANIFEST:
                manifest = read_object(path, file.read(), BundleRefused)
                if too_deep(manifest):
                    raise BundleRefused(f"its manifest is nested more than {DEEPEST} times")
            elif path == SIGNATURES:
                signed = True
            elif path.startswith((f"{_PROGRAMS}/", f"{_STATES}/")) and path.endswith("/data.json"):
                text = file.read()
                hashes[path] = hashlib.sha256(text).hexdigest()
                revisions[path] = _revision(path, read_object(path, text, BundleRefused))
            else:
                hashes[path] = digest(file)
    except BrokenBundle as error:
        raise BundleRefused(str(error)) from None
    if manifest is None:
        raise BundleRefused("it has no manifest")
    if PATCH in hashes:
        raise BundleRefused("it is a delta: keep whole bundles")
    return _checked(packed, manifest, hashes, revisions, signed=signed)


def _checked(
    packed: bytes,
    manifest: dict[str, Any],
    hashes: Mapping[str, str],
    revisions: Mapping[str, object],
    *,
    signed: bool,
) -> Revision:
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
    manifest_fields = {name: value for name, value in manifest.items() if name != "metadata"} | {
        "kind": kind,
        "system": system,
    }
    hashed = {"files": dict(sorted(hashes.items())), "manifest": manifest_fields, "shard": shard}
    return Revision(
        system=str(system),
        kind=str(kind),
        id=str(identity),
        shard=shard,
        digest=hashlib.sha256(packed).hexdigest(),
        content=hashlib.sha256(json_bytes(hashed)).hexdigest(),
        size=len(packed),
        signed=signed,
        created=timestamp(),
        metadata=metadata,
    )


def _revision(path: str, document: Mapping[str, Any]) -> object:
    """The revision recorded in a program or a state; that of a shard is two levels deeper."""
    if path.startswith(_STATES) and isinstance(document.get(WINDOWED), dict):
        document = document[WINDOWED]
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
                raise RegistryConflict("`privtab registry gc` is removing one of these bundles: try again")
            time.sleep(0.1)

    @contextlib.contextmanager
    def remove(self, digests: Iterable[str]) -> Iterator[frozenset[str]]:
        """Yields those of these bundles that are not held; no writer will rely on them until the end of the block."""
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
        self._store.create(path, encoded({"digests": sorted(digests), "when": when}))
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
            value = decoded(path, self._store.read(path))
            datetime.fromisoformat(value["when"])
            if isinstance(value["digests"], list):
                return value
        except Missing:
            return None  # Its writer has finished.
        except (RegistryError, KeyError, TypeError, ValueError):
            pass
        raise RegistryError(f"{path} cannot be read: `privtab registry check --repair` removes it")


def _is_dead(value: dict[str, Any]) -> bool:
    age = datetime.now(UTC) - datetime.fromisoformat(value["when"])
    return age > timedelta(seconds=DEAD)
