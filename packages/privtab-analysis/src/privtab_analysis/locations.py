"""Places of entities that a question assumes, besides the places of a state."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import cast

from privtab.base import Entity, Locations


class GrowingLocations(Locations):
    """The same with further places, which leave the first as they are."""

    def __init__(self, first: Locations) -> None:
        self._more_places: dict[str, str] = {}
        self._more_containers: dict[str, Sequence[str]] = {}
        super().__init__(
            first.shapes,
            ChainMap(self._more_places, cast(dict[str, str], first.places)),
            ChainMap(self._more_containers, cast(dict[str, Sequence[str]], first.containers)),
        )

    def place(self, entity: Entity, container: Entity) -> None:
        """Let an entity with a flat id lie in another one."""
        self._more_places[str(entity)] = str(container)
        self._more_containers[str(container)] = self.keys(container)
