"""Where entities with flat ids lie: the whole path of an entity, from the names of the root down, as if no id were flat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.spark.joins.keys import width
from privtab.spark.joins.text import chosen, literal, one_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from privtab.locations import Locations
    from privtab.vocabulary import Vocabulary

ANCHOR, LOCATED = "__privtab_anchor", "__privtab_located"
"""The columns of the table of whole paths: the key of an entity with a flat id, and its whole path."""


def whole_paths(names: Vocabulary, where: Locations) -> Iterator[tuple[str, str]]:
    """Each entity with a flat id, with its whole path; without those that lie nowhere."""
    named = {
        type_
        for type_, chain in names.chains.items()
        if chain[-1][1] > (chain[-2][1] if len(chain) > 1 else 0)  # a `single` type has no name of its own
    }
    for entity, container in where.places.items():
        if container in where.containers:
            keys = [key.split(":", 1) for key in (*where.containers[container], entity)]
            yield entity, "/".join(id_.rpartition("/")[2] for type_, id_ in keys if type_ in named)


def with_whole_path(
    rows: DataFrame, names: Vocabulary, type_: str, path: str, located: DataFrame, column: str
) -> DataFrame:
    """Rows with a column for the whole path of an entity, null if it lies nowhere; an id without its last name ends with `/`."""
    by_anchor: dict[str, list[str]] = {}
    for name, shape in names.shapes.items():
        if shape.flat is not None:
            by_anchor.setdefault(shape.chain[shape.flat][0], []).append(name)
    # The id of a flat type that is left out: what is around it, then `/`.
    type_around, path_around = f"{column}_type", f"{column}_path"
    is_around = f"endswith({path}, '/') AND {one_of(type_, sorted(names.flat))}"
    colon = f"instr({path}, ':')"
    rows = rows.withColumns(
        {
            type_around: F.expr(f"CASE WHEN {is_around} THEN substring_index({path}, ':', 1) ELSE {type_} END"),
            path_around: F.expr(
                f"CASE WHEN {is_around} THEN substr({path}, {colon} + 1, length({path}) - {colon} - 1) ELSE {path} END"
            ),
        }
    )
    first = f"substring_index({path_around}, '/', 1)"
    anchors = [
        (one_of(type_around, types), f"concat({literal(anchor + ':')}, {first})") for anchor, types in by_anchor.items()
    ]
    rows = rows.withColumn(ANCHOR, F.expr(chosen(anchors, "null"))).join(located, ANCHOR, "left")
    # Below a flat type, an id without its last name has one less.
    depths: dict[int, list[str]] = {}
    for name, shape in names.shapes.items():
        if shape.flat is not None and name not in names.flat:
            depths.setdefault(shape.written.depth, []).append(name)
    shorter = [f"({one_of(type_, types)} AND {width(path)} = {depth - 1})" for depth, types in depths.items()]
    whole = f"CASE WHEN {ANCHOR} IS NULL THEN {path_around} ELSE concat({LOCATED}, substr({path_around}, length({first}) + 1)) END"
    end = chosen([(" OR ".join([f"({is_around})", *shorter]), "'/'")], "''")
    return rows.withColumn(column, F.expr(f"concat({whole}, {end})")).drop(ANCHOR, LOCATED, type_around, path_around)
