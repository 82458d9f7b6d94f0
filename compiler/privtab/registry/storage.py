"""What a registry needs of the storage under it; `stores` and `web` have the kinds of storage."""

from __future__ import annotations

from typing import Protocol


class Missing(Exception):
    """The file does not exist."""


class Exists(Exception):
    """The file exists already: another writer created it."""


class Store(Protocol):
    """Storage of files. Every method raises RegistryError if the storage fails."""

    url: str
    writable: bool

    def read(self, path: str) -> bytes:
        """Read a file; raises Missing."""

    def size(self, path: str) -> int:
        """The size of a file in bytes; raises Missing."""

    def create(self, path: str, content: bytes) -> None:
        """Create a file; raises Exists if it exists already. Of several writers, one wins."""

    def replace(self, path: str, content: bytes) -> None:
        """Create or replace a file atomically."""

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    def abandoned_files(self, seconds: float) -> list[str]:
        """Paths of temporary files older than `seconds`, left by writers that died; object stores have none."""

    def names(self, path: str) -> list[str]:
        """The sorted names in a folder; empty if it does not exist."""

    def renew(self) -> None:
        """Reset the limits on what is read from untrusted storage; for long-running programs."""
