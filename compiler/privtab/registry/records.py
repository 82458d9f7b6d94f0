"""The records of revisions: one file for each stored bundle. An unreadable one does not affect the others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from privtab.errors import BundleRefused, RegistryError, UsageError
from privtab.registry import bundles, names
from privtab.registry.nodes import BrokenRecord, Revision, encoded, revision_of
from privtab.registry.storage import Missing, Store


def kept(store: Store, path: str) -> Revision | None:
    """The revision in a record, or None if there is no record; raises BrokenRecord."""
    try:
        content = store.read(path)
    except Missing:
        return None
    try:
        found = revision_of(path, content)
        if names.revision(found.system, found.kind, found.id, found.shard) == path:
            return found
        why = f"{path} is the record of another revision"
    except RegistryError as error:
        why = str(error)
    except UsageError as error:
        why = f"{path} is broken: {error}"
    raise BrokenRecord(path, why)


def all_of(store: Store, system: str, kind: str) -> Iterator[Revision | BrokenRecord]:
    """All records of a system, including unreadable ones."""
    folder = names.revisions(system, kind)
    paths = [f"{folder}/{name}" for name in store.names(folder)]
    if kind == "shard":
        paths = [f"{path}/{name}" for path in paths for name in store.names(path)]
    for path in paths:
        if path.endswith(".json"):
            try:
                found = kept(store, path)
            except BrokenRecord as error:
                yield error
            else:
                if found is not None:
                    yield found


def mend(store: Store, path: str, bundle: bytes) -> Revision:
    """Rewrite a record from its bundle; raises BundleRefused if the bundle is of another revision."""
    made = revision_in(bundle)
    if names.revision(made.system, made.kind, made.id, made.shard) != path:
        raise BundleRefused(f"it is not a bundle of {path}")
    store.replace(path, encoded(made.to_json()))
    return made


def revision_in(bundle: bytes) -> Revision:
    """The record for a bundle; raises BundleRefused."""
    found = bundles.read(bundle)
    return Revision(
        system=found.system,
        kind=found.kind,
        id=found.id,
        shard=found.shard,
        digest=found.digest,
        content=found.content,
        size=found.size,
        signed=found.signed,
        created=now(),
        metadata=found.metadata,
    )


def now() -> str:
    """The current time in the format of records and releases."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
