"""The places of the entities of a state, by its table `entities`: for look-ups, for the index, and which rows of it are wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privtab.base.paths import Locations, PathShape
from privtab.base.request import Entity
from privtab.base.vocabulary import Vocabulary
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state.names import RowProblem, similar_place
from privtab.state.nodes import State

Places = Mapping[str, str]
"""Entity with a flat id → what contains it."""


def locations(program: Program, state: State) -> Locations:
    """The places of the entities of a state.

    For example:

        locations(program, state).find(Entity("document", "d1"))
    """
    if not program.flat:
        return Locations(vocabulary(program).shapes, {})
    key = ("locations", tuple(program.entities.values()))
    found: Locations | None = state.derived.get(key)
    if found is None:
        found = Locations(vocabulary(program).shapes, dict(state.texts("entities", "entity", "parent")))
        state.derived[key] = found
    return found


def lying_in(program: Program, rows: State, whole: State) -> State:
    """Some rows of a state, whose entities lie as in the whole state.

    For example:

        lying_in(program, State(grants=some), state)
    """
    if program.flat:
        rows.derived["locations", tuple(program.entities.values())] = locations(program, whole)
    return rows


def parts(program: Program, state: State) -> dict[str, Any]:
    """The parts `places` and `containers` of an index; none for a policy without flat ids."""
    if not program.flat:
        return {}
    where = locations(program, state)
    return {"places": dict(sorted(where.places.items())), "containers": dict(sorted(where.containers.items()))}


def wrong_places(names: Vocabulary, rows: Sequence[tuple[str, str]]) -> dict[int, RowProblem]:
    """The rows of `entities` that place nothing, by number, and why. `rows`: entity and what contains it, each once.

    For example:

        wrong_places(vocabulary(program), [("folder:f1", "folder:f1")])  # {0: RowProblem("S183", …)}
    """
    found: dict[int, RowProblem] = {}
    rows_of: dict[str, list[int]] = defaultdict(list)
    for number, (entity, _) in enumerate(rows):
        rows_of[entity].append(number)
    for entity, numbers in rows_of.items():
        if len(numbers) > 1:
            listed = " and ".join(f"in `{rows[number][1]}`" for number in numbers[:3])
            message = f"`{entity}` lies {listed}{' and elsewhere' if len(numbers) > 3 else ''}"
            found |= dict.fromkeys(numbers, RowProblem("S182", message, "an entity lies in one place: keep one row"))
    places = {entity: parent for number, (entity, parent) in enumerate(rows) if number not in found}
    around = Locations(names.shapes, places).containers
    for number, (entity, parent) in enumerate(rows):
        if number in found:
            continue
        if parent in around:
            problem = _too_deep(names, Entity.parse(entity), len(around[parent]) + 1)
        else:
            problem = _cycle(names, places, entity) or _orphan(names, places, entity, parent)
        if problem is not None:
            found[number] = problem
    return found


def _too_deep(names: Vocabulary, entity: Entity, keys: int) -> RowProblem | None:
    """The problem of an entity on a path with this many keys."""
    shape = names.shapes[entity.type]
    levels = keys - len(shape.chain) + 1
    if shape.nested is None or levels <= shape.bound:
        return None
    nested = shape.chain[shape.nested][0]
    message = f"`{entity}` lies below {levels - (entity.type == nested)} levels of `{nested}`"
    return RowProblem("S184", message, f"a path has at most {shape.bound} levels of `{nested}`")


def _cycle(names: Vocabulary, places: Places, entity: str) -> RowProblem | None:
    """The problem of an entity that contains itself."""
    way = [entity, *_above(names, places, entity)]
    if way.pop() != entity or not way:
        return None
    shown = [*way, entity] if len(way) <= 8 else [*way[:4], "…", *way[-3:], entity]
    message = f"`{entity}` contains itself: {' in '.join(f'`{key}`' if key != '…' else key for key in shown)}"
    return RowProblem("S183", message, "change one of the rows of the cycle")


def _above(names: Vocabulary, places: Places, entity: str) -> Iterator[str]:
    """The entities with flat ids in which one lies, the nearest first, up to one without a place or a repeated one."""
    seen = {entity}
    at = places.get(entity)
    while at is not None and (key := _anchor(names.shapes, at)) is not None:
        yield key
        at = None if key in seen else places.get(key)
        seen.add(key)


def _anchor(shapes: Mapping[str, PathShape], key: str) -> str | None:
    entity = Entity.parse(key)
    shape = shapes[entity.type]
    return None if shape.flat is None else shape.anchor(entity.id)


def _orphan(names: Vocabulary, places: Places, entity: str, parent: str) -> RowProblem:
    """The problem of an entity in one that has no place."""
    missing = next((key for key in _above(names, places, entity) if key not in places), None)
    if missing is None:
        message = f"`{entity}` lies in `{parent}`, which lies in a cycle"
        return RowProblem("S180", message, "change one of the rows of the cycle")
    return RowProblem(
        "S180", f"`{entity}` lies in `{parent}`, {_nowhere(missing, parent)}", similar_place(missing, places)
    )


def _nowhere(missing: str, parent: str) -> str:
    return "which has no row" if missing == parent else f"and `{missing}` has no row"
