"""Check rows by themselves, for readers that distribute the rows of a state and compare them with each other themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from privtab.ir.nodes import Program
from privtab.state.checker import Checker
from privtab.state.large import CheckedTable, ColumnChecker
from privtab.state.names import Problem
from privtab.state.nodes import StateFinding
from privtab.state.raw import RawRow, RawState
from privtab.state.raw_table import RawTable


class RowChecker:
    """Checks portions of tables, each row alone.

    So `S152` (a role that no other row mentions) and `S160` (a row that repeats another) are not reported here.
    """

    def __init__(self, program: Program) -> None:
        self._checker = _SingleRowChecker(program, RawState())
        self._columns = ColumnChecker(self._checker)

    @property
    def places(self) -> Mapping[str, str] | None:
        """Where entities with flat ids lie; None: that is not checked."""
        return self._checker.names.places

    @places.setter
    def places(self, places: Mapping[str, str] | None) -> None:
        self._checker.names.places = places

    def check(self, table: RawTable) -> tuple[CheckedTable, list[StateFinding]]:
        """The rows of one table, and all findings about them."""
        self._checker.findings = []
        checked = self._columns.checked(table)
        for row in checked.doubtful:
            if checked.valid[row]:
                self._checker.spaces(table[row])
        return checked, self._checker.findings

    def similar_declared_role(self, role: str) -> str | None:
        """The advice for a role that no row mentions but whose name resembles a declared one."""
        return Checker.similar_declared_role(self._checker, role)


class _SingleRowChecker(Checker):
    """Checks each row without the others, and reports every finding."""

    def similar_declared_role(self, role: str) -> str | None:  # noqa: ARG002  (some other row may speak of it)
        """None: another row may mention the role."""
        return None

    def _report(self, row: RawRow, problem: Problem, severity: Literal["error", "warning", "note"]) -> None:
        self.finding_counts.clear()
        super()._report(row, problem, severity)
