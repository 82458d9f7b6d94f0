"""Places in another system's requests, as door documents write them: `table.catalogName`, `parents[].name`, `parents[type!=ROOT].name`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_KEY = r"[^.\[\]@!=\s]+"
_KEYS = rf"{_KEY}(?:\.{_KEY})*"
_PLACE = re.compile(rf"({_KEYS})(?:\[(?:({_KEYS})!=([^\[\]]+))?\](?:\.({_KEYS}))?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a value stands, or where the values of a list do."""

    at: tuple[str, ...]
    """The keys that lead to the value, or to the list."""
    items: tuple[str, ...] | None = None
    """The keys that lead from an item of the list to its value; None for a place that has one value."""
    skip: tuple[tuple[str, ...], str] | None = None
    """Items that are left out: those with this value under these keys."""

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Read a place; None if it is none.

        >>> Place.parse("parents[type!=ROOT].name")
        Place(at=('parents',), items=('name',), skip=(('type',), 'ROOT'))
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            return None
        keys, skip_keys, skipped, item_keys = found.groups()
        return cls(
            at=_split(keys),
            items=_split(item_keys) if "[" in text else None,
            skip=(_split(skip_keys), skipped) if skip_keys else None,
        )

    def to_json(self) -> dict[str, Any]:
        """As the generated Rego reads it."""
        found: dict[str, Any] = {"at": list(self.at)}
        if self.items is not None:
            found["items"] = list(self.items)
        if self.skip is not None:
            found["skip"] = {"at": list(self.skip[0]), "value": self.skip[1]}
        return found


def _split(keys: str | None) -> tuple[str, ...]:
    return tuple(keys.split(".")) if keys else ()
