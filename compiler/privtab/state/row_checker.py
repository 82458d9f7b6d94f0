"""Check single rows, for readers that distribute the rows of a state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from privtab.ir.nodes import Program
from privtab.moments import ALWAYS, Window
from privtab.state.attribute_rows import attribute_row
from privtab.state.nodes import StateFinding
from privtab.state.placements import placement
from privtab.state.raw import RawRow, RawState
from privtab.state.validate import Checker


class RowChecker:
    """Checks rows one by one, for readers that distribute rows and must compare rows with each other themselves.

    So `S152` (a role that no other row mentions) and `S160` (a row that repeats another) are not reported here.
    """

    def __init__(self, program: Program) -> None:
        self._checker = _SingleRowChecker(program, RawState())
        self._tables: dict[str, Callable[[RawRow], object]] = {
            "members": self._checker.member,
            "memberships": self._checker.membership,
            "assignments": self._checker.assignment,
            "grants": self._checker.grant,
            "owners": self._checker.owner,
            "service_admins": self._checker.service_admin,
            "attributes": partial(attribute_row, self._checker),
            "entities": partial(placement, self._checker),
        }

    @property
    def places(self) -> Mapping[str, str] | None:
        """Where entities with flat ids lie; None: that is not checked."""
        return self._checker.names.places

    @places.setter
    def places(self, places: Mapping[str, str] | None) -> None:
        self._checker.names.places = places

    def check(self, row: RawRow) -> tuple[object, Window, tuple[StateFinding, ...]]:
        """The value of a row, as in `State`, or None for a wrong one; its window; and its findings."""
        checker = self._checker
        checker.findings = []
        checker.finding_counts.clear()
        found = checker.value(self._tables[row.table], row)
        value, window = (None, ALWAYS) if found is None else found
        if value is not None:
            checker.spaces(row)
        return value, window, tuple(checker.findings)

    def similar_declared_role(self, role: str) -> str | None:
        """The advice for a role that no row mentions but whose name resembles a declared one."""
        return Checker.similar_declared_role(self._checker, role)


class _SingleRowChecker(Checker):
    """Checks each row without the others."""

    def similar_declared_role(self, role: str) -> str | None:  # noqa: ARG002  (some other row may speak of it)
        """None: another row may mention the role."""
        return None
