"""Entities below another one, of each type: on which a condition with `or below` may find what it asks for."""

from __future__ import annotations

from collections.abc import Iterator

from privtab.ir.nodes import EntityType, Program
from privtab.ir.serialise import vocabulary
from privtab.names import encode_name, path_of


def at_or_below(program: Program, key: str, suffix: str = "") -> Iterator[tuple[str, str]]:
    """An entity and one of each type below it, each with what contains it; nothing contains the first here.

    If its type nests, one of the same type is below it, too, unless it has the most levels. `suffix` ends the names of those below.
    """
    yield key, ""
    waiting = [key]
    while waiting:
        container = waiting.pop(0)
        outer, path = container.partition(":")[0], path_of(container)
        for type_ in program.entities.values():
            nests = container == key and type_.name == outer and _may_nest(program, type_, path)
            if type_.parent != outer and not nests:
                continue
            name = f"{'inner_' if nests else ''}{type_.name}{suffix}"
            if type_.single:
                below = path
            elif type_.flat:
                below = encode_name(f"{name} in {container}")
            else:
                below = f"{path}/{name}" if path else name
            waiting.append(f"{type_.name}:{below}")
            yield waiting[-1], container


def _may_nest(program: Program, type_: EntityType, path: str) -> bool:
    """Whether an entity with this path may contain one of its own type; with flat ids, its place does not tell its level here."""
    return type_.nested > 0 and (type_.flat or vocabulary(program).shapes[type_.name].levels(path) < type_.nested)
