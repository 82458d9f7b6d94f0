"""Checks of a location before a registry is created there."""

from __future__ import annotations

from privtab.errors import UsageError
from privtab.registry import names
from privtab.registry.storage import Exists, Store


def check_exclusive_create(store: Store, settings: bytes) -> None:
    """Raise UsageError if the storage lets a file be created twice: releases would overwrite each other.

    `settings`: the content of the registry's settings file, which has just been created.
    """
    try:
        store.create(names.SETTINGS, settings)
    except Exists:
        return
    store.remove(names.SETTINGS)
    raise UsageError(f"{store.url} cannot be written: its storage overwrites existing files without an error")


def check_empty(store: Store) -> None:
    """Raise UsageError for a location with other content."""
    others = [name for name in store.names("") if name != names.SETTINGS]
    if others and not set(others) & {names.BLOBS, names.REVISIONS, names.CHANNELS, names.HOLDS}:
        raise UsageError(f"{store.url} is not a registry and not empty: it contains {', '.join(others[:3])}")
