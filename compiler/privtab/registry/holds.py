"""Coordinate writers that need bundles with the removal of bundles.

A writer first records which bundles it needs and then checks whether any of them is being removed. `gc` first records which
bundles it removes and then checks which of them are needed. Whichever comes second sees the other, without clocks or
locks, and the entries of a process that died expire after an hour.
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
