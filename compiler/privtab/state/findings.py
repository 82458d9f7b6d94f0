"""Findings in the rows of a state: their places, their codes, and what follows from them.

`S0…` is about a file or a whole table, `S1…` about one row, `S2…` is for `privtab state validate --lint`, `S3…` for `privtab state
push`. An error removes the row from the state (or all rows of
the table that could not be read); a warning or a note does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from privtab.base.printable import printable_text
from privtab.base.records import dataclass
from privtab.state.nodes import ENTITIES, TABLES

if TYPE_CHECKING:
    from privtab.ir.nodes import Program

_NAMES = {
    "S001": "unreadable-file",
    "S002": "broken-syntax",
    "S003": "unknown-table",
    "S004": "wrong-shape",
    "S005": "two-files-for-one-table",
    "S006": "unknown-file",
    "S007": "too-much",
    "S008": "empty-file",
    "S101": "unknown-column",
    "S102": "missing-column",
    "S103": "null-cell",
    "S104": "cell-is-not-text",
    "S105": "empty-cell",
    "S106": "repeated-column",
    "S107": "wrong-number-of-cells",
    "S108": "blank-around-name",
    "S110": "malformed-entity",
    "S111": "unknown-type",
    "S112": "wrong-depth",
    "S113": "malformed-name",
    "S114": "unknown-entity",
    "S115": "wildcard",
    "S116": "unusable-character",
    "S117": "oversized-name",
    "S118": "mixed-scripts",
    "S120": "malformed-principal",
    "S121": "unknown-principal-kind",
    "S122": "wrong-principal-kind",
    "S130": "unknown-privilege",
    "S131": "privilege-not-on-type",
    "S132": "unknown-effect",
    "S133": "no-deny",
    "S140": "no-owners",
    "S141": "owner-kind",
    "S150": "missing-scope",
    "S151": "wrong-scope",
    "S152": "unknown-role",
    "S160": "duplicate-row",
    "S161": "deprecated-name",
    "S162": "unread-row",
    "S163": "conflicting-rows",
    "S164": "empty-group",
    "S165": "unheld-role",
    "S170": "wrong-time",
    "S180": "no-place",
    "S181": "wrong-parent",
    "S182": "two-places",
    "S183": "cycle-of-entities",
    "S184": "too-deep",
    "S185": "idle-entities",
    "S186": "cycle-of-principals",
    "S187": "unknown-attribute",
    "S188": "wrong-value",
    "S189": "two-values",
    "S190": "user-or-entity",
    "S201": "expired-row",
    "S203": "row-ends-soon",
    "S204": "empty-role",
    "S205": "unused-role",
    "S206": "direct-grant",
    "S207": "superfluous-row",
    "S301": "not-expressible",
    "S302": "holds-for-a-time",
    "S303": "not-a-native-name",
    "S304": "shared-native-name",
    "S305": "second-owner",
}
_UNREAD = frozenset({"S001", "S002", "S007", "S101", "S106", "S107"})
"""Something was not read, of the rest of a file, a column, or one of two cells, even if the finding is at a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLocation:
    """The position of a row: the file, its table, its 1-based number in the table, and the line if it is known.

    >>> str(RowLocation(path="grants.csv", table="grants", row=2, line=3))
    'grants.csv:3: grants row 2'
    """

    path: str
    table: str
    row: int
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        table = f" {self.table}" if self.table else ""
        row = f" row {self.row}" if self.row else ""
        return f"{self.path}{line}" + (f":{table}{row}" if table or row else "")

    @staticmethod
    def text_of(place: RowLocation | None) -> str:
        """`state.yaml:12`, or `state.json: grants row 3` if the line is unknown; empty without a place."""
        if place is None:
            return ""
        return f"{place.path}: {place.table} row {place.row}" if place.line is None else f"{place.path}:{place.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFinding:
    """One wrong row: where, why, a hint, and whether it is quarantined (an error) or only reported (a warning, a note).

    A place without a table means the whole file; row 0 means the whole table.

    >>> place = RowLocation(path="grants.csv", table="grants", row=2, line=3)
    >>> print(StateFinding(place=place, message="unknown privilege `SELET`", code="S130"))
    grants.csv:3: grants row 2: error[S130]: unknown privilege `SELET`
    """

    MAY_DENY: ClassVar[str] = "they may include a denial, and ignoring it would widen access"
    """The consequence of wrong rows where a state can deny."""
    NAMES: ClassVar[Mapping[str, str]] = _NAMES
    """The name of each code, as in `S130 unknown-privilege`."""
    REPEATED: ClassVar[str] = "S160"
    """The code of a row that says the same as another."""

    place: RowLocation
    message: str
    code: str
    severity: Literal["error", "warning", "note"] = "error"
    help: str | None = None
    row: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        """The position and the message, and below them the advice."""
        lines = [f"{self.place}: {self.severity}[{self.code}]: {self.message}"]
        if self.help is not None:
            lines.append(f"  help: {self.help}")
        return "\n".join(printable_text(line, one_line=True) for line in lines)

    @classmethod
    def of_more(
        cls, path: str, table: str, number: int, code: str, severity: Literal["error", "warning", "note"]
    ) -> StateFinding:
        """The finding that stands for those of one kind that are left out."""
        message = f"{number:,} more rows of `{table}` have a finding of this kind"
        place = RowLocation(path=path, table=table, row=0)
        return cls(place=place, message=message, code=code, severity=severity)

    @property
    def name(self) -> str:
        """The name of its code."""
        return self.NAMES[self.code]

    def __lt__(self, other: StateFinding) -> bool:
        """Sort by position, then code."""
        return self._order() < other._order()

    def _order(self) -> tuple[str, int, str, int, str, str]:
        place = self.place
        return place.path, place.line or 0, place.table, place.row, self.code, self.message

    def stops(self, program: Program) -> bool:
        """Whether a state is of no use without what an error left out: part of a file, or a row without which callers may be allowed more.

        Such a row denies, or it gives a role or a group that may be denied. Where a policy filters or masks, each row may choose how: without it,
        another filter applies, which may show more.
        """
        place = self.place
        if self.severity != "error":
            return False
        if place.table == ENTITIES and place.row and self.code not in _UNREAD:
            return False  # an entity without a place is denied to everybody
        if place.row == 0 or self.code in _UNREAD or place.table not in TABLES or program.filters:
            return True
        if program.semantics.deny == "none":
            return False
        if place.table == "grants":
            return str(self.row.get("effect", "")).lower() != "allow"
        return place.table in {"assignments", "memberships"}

    def render(self) -> str:
        """The finding as text, with its row and its advice below, each on a line."""
        lines = [f"{self.place}: {self.severity}[{self.code} {self.name}]: {self.message}"]
        if self.row:
            lines.append("  row: " + ", ".join(f"{column}: {_shown(value)}" for column, value in self.row.items()))
        if self.help is not None:
            lines.append(f"  help: {self.help}")
        return "".join(f"{printable_text(line, one_line=True)}\n" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object: code, name, severity, message, help, path, table, row_number, line, row."""
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity,
            "message": self.message,
            "help": self.help,
            "path": self.place.path,
            "table": self.place.table or None,
            "row_number": self.place.row or None,
            "line": self.place.line,
            "row": dict(self.row),
        }


def _shown(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else str(value)
