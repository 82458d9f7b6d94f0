"""Which bundles somebody needs just now, and which are being removed, so that neither overlooks the other.

A writer first writes down which bundles it needs and then looks whether one of them is being removed. `gc` first writes down
which it removes and then looks which of them somebody needs. Whoever comes second sees the other: no clock and no lock is
needed, and what a process that died leaves behind counts for an hour only.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from privtab.errors import RegistryConflict, RegistryError
from privtab.registry import names
from privtab.registry.nodes import decoded, encoded
from privtab.registry.stores import Missing, Store

DEAD = 3_600.0
"""Seconds after which whoever wrote an entry is taken for dead."""
LONGEST = DEAD / 2
"""Seconds after which a writer does not rely on its own entry any more."""
PATIENCE = 10.0
"""Seconds to wait for bundles that are being removed."""


class Hold:
    """What a writer needs; `check` before the step that relies on it."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def check(self) -> None:
        """Raise RegistryConflict where it is so old that others may take its writer for dead."""
        if time.monotonic() - self._begun > LONGEST:
            raise RegistryConflict("this took so long that bundles may have been removed meanwhile: try again")


class Holds:
    """The entries of a registry, in its folder `holds`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @contextlib.contextmanager
    def keep(self, digests: Iterable[str]) -> Iterator[Hold]:
        """Let nobody remove these bundles until the end of the block; raises RegistryConflict where somebody does already.

        What is there after this stays; what is not there yet was never there, or is gone.
        """
        needed = frozenset(digests)
        ends = time.monotonic() + PATIENCE
        while True:
            hold = Hold()
            with self._written("keep", needed):
                if not self._of("remove") & needed:
                    yield hold
                    return
            if time.monotonic() > ends:
                raise RegistryConflict("`privtab registry gc` removes a bundle of these just now: try again")
            time.sleep(0.1)

    @contextlib.contextmanager
    def remove(self, digests: Iterable[str]) -> Iterator[frozenset[str]]:
        """Those of these bundles that nobody needs just now, and that nobody will rely on until the end of the block."""
        going = frozenset(digests)
        with self._written("remove", going):
            yield going - self._of("keep")

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

    # --- inside ---

    @contextlib.contextmanager
    def _written(self, purpose: str, digests: frozenset[str]) -> Iterator[None]:
        path = f"{names.HOLDS}/{purpose}-{uuid.uuid4().hex}.json"
        when = datetime.now(UTC).isoformat(timespec="seconds")
        self._store.create(path, encoded({"digests": sorted(digests), "when": when}))
        try:
            yield
        finally:
            self._store.remove(path)

    def _of(self, purpose: str) -> frozenset[str]:
        """What was written down and is not over; raises RegistryError where nobody can tell."""
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
            return None  # Whoever wrote it is done.
        except (RegistryError, KeyError, TypeError, ValueError):
            pass
        raise RegistryError(f"{path} cannot be read: `privtab registry check --repair` removes it")


def _is_dead(value: dict[str, Any]) -> bool:
    age = datetime.now(UTC) - datetime.fromisoformat(value["when"])
    return age > timedelta(seconds=DEAD)
