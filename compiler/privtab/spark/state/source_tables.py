"""The sources of a state's tables after they are opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from privtab.spark.state.schemas import windows_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """One source of a table: rows with the table's raw columns as strings."""

    table: str
    rows: DataFrame
    label: str
    """The name of the source in findings, without secrets."""
    not_text: Mapping[str, str] = field(default_factory=dict)
    """Columns whose cells are not text, with their types; each cell is a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All sources of a state."""

    tables: Mapping[str, tuple[TableSource, ...]]
    entities: DataFrame | None = None
    """All entities that exist, in one column `entity`; None if they are not listed."""
    orphans: str = "report"
    """How rows about unlisted entities are treated: `report` or `quarantine`."""


def with_same_columns(sources: Sequence[TableSource]) -> tuple[TableSource, ...]:
    """The sources of a table: `from` and `until` are in all of them if they are in any."""
    window = max((windows_in(source.rows) for source in sources), default=())
    none = dict.fromkeys(window, fn.lit(None).cast("string"))
    return tuple(
        source if windows_in(source.rows) == window else replace(source, rows=source.rows.withColumns(none))
        for source in sources
    )
