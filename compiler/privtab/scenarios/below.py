"""Entities below another one, of each type: on which a condition with `or below` may find what it asks for."""

from __future__ import annotations

from collections.abc import Iterator

from privtab.ir.nodes import Program
from privtab.names import encode_name, path_of


def at_or_below(program: Program, key: str, suffix: str = "") -> Iterator[tuple[str, str]]:
    """An entity and one of each type below it, each with what contains it; nothing contains the first here.

    `suffix` ends the names of those below.
    """
    yield key, ""
    waiting = [key]
    while waiting:
        container = waiting.pop(0)
        path = path_of(container)
        for type_ in program.entities.values():
            if type_.parent != container.partition(":")[0]:
                continue
            name = f"{type_.name}{suffix}"
            if type_.single:
                below = path
            elif type_.flat:
                below = encode_name(f"{name} in {container}")
            else:
                below = f"{path}/{name}" if path else name
            waiting.append(f"{type_.name}:{below}")
            yield waiting[-1], container
