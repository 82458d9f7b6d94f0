"""The records of revisions: one file for each stored bundle. An unreadable one does not affect the others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from privtab.errors import BundleRefused, RegistryError, UsageError
from privtab.registry import bundles, names
from privtab.registry.nodes import BrokenRecord, Revision, encoded, revision_of
from privtab.registry.storage import Missing, Store


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


def revision_in(bundle: bytes) -> Revision:
    """The record for a bundle; raises BundleRefused."""
    content = bundles.read(bundle)
    return Revision(
        system=content.system,
        kind=content.kind,
        id=content.id,
        shard=content.shard,
        digest=content.digest,
        content=content.content,
        size=content.size,
        signed=content.signed,
        created=now(),
        metadata=content.metadata,
    )


def now() -> str:
    """The current time in the format of records and releases."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
