"""The keys of the entities at places of a path, as SQL.

Where a type nests, a path has `further` names beyond those with one level: its levels but one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from privtab.paths import PathShape
from privtab.spark.joins.places import Case, Layout, PathEntity
from privtab.spark.joins.text import beginning, literal
from privtab.spark.paths import decoded, last_name

if TYPE_CHECKING:
    from privtab.spark.joins.rows import ColumnNames


def width(path: str) -> str:
    """SQL expression for the number of names in a path."""
    return f"CASE WHEN {path} = '' THEN 0 ELSE length({path}) - length(replace({path}, '/', '')) + 1 END"


def further(path: str, shape: PathShape, *, above: bool = False) -> str:
    """SQL expression for the further names of a path; `above`: of a path without its last name. Any path has a possible number."""
    if shape.nested is None:
        return "0"
    return f"least(greatest({width(path)} - {shape.depth - above}, 0), {shape.bound - 1})"


def path_at(path: str, place: PathEntity, further_names: str) -> str:
    """SQL expression for the path of the entity at a place, as it is written; undefined if there is none or several."""
    match place.further:
        case "nearest":
            return _written(path, place, f"{place.depth} + {further_names}")
        case "parent":
            return _written(path, place, f"{place.depth} + {further_names} - 1")
        case _:
            return _written(path, place, place.depth + (0 if place.further == "around" else place.further))


def _written(path: str, place: PathEntity, depth: str | int) -> str:
    names = beginning(path, depth)
    return beginning(names, -place.written) if place.written else names


def path_on(slot: str, type_: str, case: Case, layout: Layout, names: ColumnNames) -> str:
    """SQL expression for the path of the entity of a type on a slot's path, as it is written."""
    path, shape = names.whole_path_of(slot), layout.reader.shapes[case.types[slot]]
    return path_at(path, layout.chain(type_)[-1], further(path, shape))


def key(path: str, place: PathEntity, further_names: str) -> str:
    """SQL expression for the key of the entity at a place; null for a null path, and if there is no such entity."""
    if place.depth == 0:
        return f"CASE WHEN {path} IS NOT NULL THEN {literal(place.prefix)} END"
    own_path = path_at(path, place, further_names)
    text = f"concat({literal(place.prefix)}, {decoded(last_name(own_path)) if place.last else own_path})"
    return f"CASE WHEN {further_names} >= {place.further} THEN {text} END" if place.optional else text


def keys(path: str, places: Sequence[PathEntity], further_names: str) -> str:
    """SQL array of the keys of the entities at places of a path, all of which exist."""
    return _array(path, places, further_names, lambda _, key: key)


def steps(path: str, places: Sequence[PathEntity], further_names: str, first: int = 0) -> str:
    """SQL array of the entities at places of a path, each with the number of its place, counted from `first`, and its key."""
    array = _array(path, places, further_names, lambda n, key: f"named_struct('at', {first + n}, 'key', {key})")
    return f"filter({array}, step -> step.key IS NOT NULL)" if any(place.optional for place in places) else array


def _array(path: str, places: Sequence[PathEntity], further_names: str, item: Callable[[int, str], str]) -> str:
    arrays = []
    single = [item(n, key(path, place, further_names)) for n, place in enumerate(places) if not place.several]
    if single:
        arrays.append(f"array({', '.join(single)})")
    for number, place in enumerate(places):
        if place.several:
            depths = f"slice(sequence({place.depth}, {place.depth} + {further_names}), 1, {further_names})"
            own_key = f"concat({literal(place.prefix)}, {_written(path, place, 'depth')})"
            arrays.append(f"transform({depths}, depth -> {item(number, own_key)})")
    return arrays[0] if len(arrays) == 1 else f"concat({', '.join(arrays)})"
