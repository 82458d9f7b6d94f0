"""Copies for static servers: the bundles of each channel, under fixed names beside its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.registry import names
from privtab.registry.nodes import Channel, encoded, pin
from privtab.registry.storage import Missing

if TYPE_CHECKING:
    from privtab.registry.registry import Registry

CHANNEL = "channel.json"


class StaticMirror:
    """Writes the copies of a channel; `channel.json`, written last, records their release.

    They lag behind the history by a moment or, if their writer dies, until the next release or repair. Each file is always
    complete.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def refresh(self, current: Channel) -> Channel:
        """Update the copies to the channel, including releases made meanwhile; returns the last one written."""
        while True:
            self._write(current)
            # Each writer checks after writing, so the final copies are of the last release.
            newest = self._registry.newer(current)
            if newest.sequence == current.sequence:
                return current
            current = newest

    def stale(self, current: Channel) -> list[str]:
        """The files that differ from the channel."""
        store, folder = self._registry.store, names.channel(current.channel, current.system)
        expected = self._expected_files(current)
        found = [f"{folder}/{file}" for file, digest in expected.items() if self._digest(f"{folder}/{file}") != digest]
        try:
            release_is_current = store.read(f"{folder}/{CHANNEL}") == encoded(current.to_json())
        except Missing:
            release_is_current = False
        extra = [
            f"{folder}/shards/{name}" for name in store.names(f"{folder}/shards") if f"shards/{name}" not in expected
        ]
        if "state.tar.gz" not in expected and "state.tar.gz" in store.names(folder):
            extra.append(f"{folder}/state.tar.gz")
        return found + extra + ([] if release_is_current else [f"{folder}/{CHANNEL}"])

    def _write(self, current: Channel) -> None:
        store, folder = self._registry.store, names.channel(current.channel, current.system)
        expected = self._expected_files(current)
        for file, digest in expected.items():
            if self._digest(f"{folder}/{file}") != digest:
                store.replace(f"{folder}/{file}", self._registry.blob(digest))
        for name in store.names(f"{folder}/shards"):
            if f"shards/{name}" not in expected:
                store.remove(f"{folder}/shards/{name}")
        if "state.tar.gz" not in expected:
            store.remove(f"{folder}/state.tar.gz")
        store.replace(f"{folder}/{CHANNEL}", encoded(current.to_json()))

    @staticmethod
    def _expected_files(current: Channel) -> dict[str, str]:
        """File → SHA-256. Canaries need the registry server: static servers send every sidecar the same bundles."""
        return {
            names.served_path(kind, shard): current.digests[pin(kind, identity, shard)]
            for (kind, shard), identity in current.runs().items()
        }

    def _digest(self, path: str) -> str:
        import hashlib

        try:
            return hashlib.sha256(self._registry.store.read(path)).hexdigest()
        except Missing:
            return ""
