"""The positions of a validated state's rows in its files, for explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from privtab.state.nodes import RowLocation
from privtab.state.raw import RawRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The raw row for each row of a state, by table, in the order of the state's own tuples. Empty if unknown."""

    rows: Mapping[str, Sequence[RawRow]] = field(default_factory=dict)

    def of(self, table: str, number: int) -> RowLocation | None:
        """The place of the row with this 0-based number in the state's table."""
        rows = self.rows.get(table, ())
        return rows[number].place if number < len(rows) else None


NOWHERE = Places()


def place_text(place: RowLocation | None) -> str:
    """`state.yaml:12`, or `state.json: grants row 3` if the line is unknown; empty without a place."""
    if place is None:
        return ""
    return f"{place.path}: {place.table} row {place.row}" if place.line is None else f"{place.path}:{place.line}"
