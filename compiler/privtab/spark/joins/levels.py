"""Read conditions for paths with any number of levels at once: two forms of request, with one level and with more, suffice for all.

A target is a type and a word, as in `namespace/nearest`, or the number of a level, as in `namespace/1` for the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privtab.engines.conditions import RESOURCE, ConditionReader, RequestShape
from privtab.paths import Level, at_level, base_type

EACH = ("any", "above", "every")
"""The words for each level of a path: one of them, one of those around the nearest, or all of them."""


def level_word(type_: str) -> str:
    """What follows the type in a target; empty where no type nests.

    >>> level_word("namespace/nearest"), level_word("namespace/1"), level_word("catalog")
    ('nearest', '1', '')
    """
    return type_.partition("/")[2]


class LevelReader(ConditionReader):
    """Reads conditions with words for levels. Of `RequestShape.levels`, it only matters whether there is one."""

    def __init__(self, program: Mapping[str, Any]) -> None:
        super().__init__(program)
        self._outer = {name: entity["parent"] for name, entity in program["entities"].items()}

    def targets(self, type_: str, level: Level, slot: str, form: RequestShape) -> tuple[str, ...]:
        """As ConditionReader.targets."""
        has_more = form.levels[slot] > 1
        if level == "first":
            return (at_level(type_, 1),)
        if level == "parent" and not has_more:
            return (str(self._outer[type_]),)
        if level == "any" and has_more and self._leaves_out(type_, slot, form):
            return (f"{type_}/above",)
        return (f"{type_}/{level}",)

    def unnamed(self, type_: str, slot: str, form: RequestShape) -> bool:
        """As ConditionReader.unnamed."""
        if not self._leaves_out(type_, slot, form):
            return False
        match level_word(type_):
            case "parent" | "above":
                return False
            case "1" | "any":
                return form.levels[slot] == 1
            case _:
                return True

    def _leaves_out(self, type_: str, slot: str, form: RequestShape) -> bool:
        """Whether such a request leaves out the name of the nearest entity of a type."""
        resource = form.types[RESOURCE]
        return slot == RESOURCE and not form.named and self.depth(base_type(type_)) >= self.depth(resource)
