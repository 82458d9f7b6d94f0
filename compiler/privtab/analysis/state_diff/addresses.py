"""Where the entities of two states lie, as one path for both: their addresses.

The address of an entity is its path. Where ids are flat, it is the address of what contains the entity in both states, with a
name for the entity itself (`main/%folder:f1/%document:d7`). One that lies elsewhere in the other state, or nowhere, has moved: its
address begins with itself. So what lies below an address does so in both states.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.locations import anchor
from privtab.names import path_of
from privtab.request import Entity
from privtab.state.nodes import State

# No name of a path begins with `%` and a lower case letter, since only `/` and `%` are escaped.
_FLAT = re.compile(r"(?:.*/)?%[a-z][a-z0-9_]*:(.*)", re.DOTALL)


class Addresses:
    """The addresses of the entities of some states."""

    def __init__(self, program: Program, states: Collection[State]) -> None:
        self._shapes = vocabulary(program).shapes
        self._places: list[Mapping[str, str]] = (
            [dict(state.texts("entities", "entity", "parent")) for state in states] if program.flat else []
        )
        placed = {key for places in self._places for key in places}
        self.moved = frozenset(key for key in placed if len({places.get(key) for places in self._places}) > 1)
        """The entities with flat ids that do not lie in the same entity in all states."""
        self._known: dict[str, str] = {}

    def of(self, key: str) -> str:
        """The address of an entity."""
        above = self._anchor(key)
        if above is None:
            return path_of(key)
        if above not in self._known:
            around = "" if above in self.moved else next(places.get(above, "") for places in self._places)
            outer = self.of(around) if around else ""
            self._known[above] = f"{outer}/%{above}" if outer else f"%{above}"
        _, _, rest = path_of(key).partition("/")
        return f"{self._known[above]}/{rest}" if rest else self._known[above]

    def containers(self, keys: Iterable[str]) -> set[str]:
        """Some entities, and the entities that contain them by any choice of rows of the states."""
        found: set[str] = set()
        waiting = [*keys]
        while waiting:
            key = waiting.pop()
            if key in found:
                continue
            found.add(key)
            entity = Entity.parse(key)
            shape = self._shapes[entity.type]
            if shape.flat is None:
                found.update(shape.keys(entity.id))
                continue
            found.update(shape.written.keys(entity.id))
            waiting += {places[above] for places in self._places if (above := anchor(shape, entity.id)) in places}
        return found

    def _anchor(self, key: str) -> str | None:
        """The entity with a flat id at which the path of an entity begins, as it is written; None if there is none."""
        if not self._places:
            return None
        type_, _, path = key.partition(":")
        shape = self._shapes[type_]
        return None if shape.flat is None else anchor(shape, path)


def written(address: str) -> str:
    """The path of an entity with an address, as requests and rows write it.

    >>> written("main/%folder:f1/%document:d7/c1"), written("main/a%2Fb")
    ('d7/c1', 'main/a%2Fb')
    """
    flat = _FLAT.fullmatch(address) if "%" in address else None
    return address if flat is None else flat[1]
