"""Check large tables by columns: rows that clearly need no finding are accepted together, the others one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from privtab.arrow import Truth
from privtab.moments import ALWAYS, FIRST, LAST, WINDOW, Window, edge_text, moment
from privtab.moments import text as text_of
from privtab.names import KINDS
from privtab.request import Entity
from privtab.state.coded import CodedColumn
from privtab.state.nodes import State
from privtab.state.raw import COLUMNS, RawRow
from privtab.state.raw_table import RawTable
from privtab.state.rows import ColumnRows
from privtab.state.screen import Judged, TextJudge, all_pairs, column, repeated

if TYPE_CHECKING:
    from privtab.state.validate import Checker


class _Screened(NamedTuple):
    """Which rows need no finding, and the assessment of each column's texts."""

    good: Truth
    judged: Mapping[str, Judged]


class ColumnChecker:
    """Checks the tables of a state by columns; a row-wise checker reports findings."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.program = checker.program
        self.judge = TextJudge(checker.names)

    def state(self) -> State:
        """The state of the valid rows."""
        checker = self.checker
        grants = self._table("grants", self._grants, checker.grant)
        owners = self._table("owners", self._owners, checker.owner)
        first = State(grants=grants, owners=owners)
        checker.mentioned = first.distinct(("grants", "grantee"), ("owners", "owner"))
        return State(
            members=self._table("members", self._members, checker.member),
            memberships=self._table("memberships", self._memberships, checker.membership),
            assignments=self._table("assignments", self._assignments, checker.assignment),
            grants=grants,
            owners=owners,
            service_admins=self._table("service_admins", self._service_admins, checker.service_admin),
            windows=checker.windows,
        )

    def _table(
        self,
        name: str,
        screen: Callable[[Mapping[str, CodedColumn]], _Screened],
        read: Callable[[RawRow], object | None],
    ) -> ColumnRows | tuple[()]:
        """The valid rows of one table; repetitions are reported and omitted."""
        rows = self.checker.raw.rows.get(name)
        if not rows:
            self.checker.kept[name] = ()
            return ()
        table = RawTable.of(rows)
        columns = {column_: column(table, column_) for column_ in COLUMNS[name].names}
        good, judged = screen(columns)
        edges = {c: own for c in COLUMNS[name].window if len((own := _limited(column(table, c), c)).array)}
        for c, own in edges.items():
            means = self.judge.each(own, lambda text: edge_text(text) is not None, lambda text: edge_text(text) or "")
            judged = {**judged, c: means}
            good &= means.of_rows(own)[0]
        columns |= edges
        suspects = np.flatnonzero(~good).tolist()
        kept = np.ones(len(table), np.bool_)
        for row in suspects:
            kept[row] = self.checker.value(read, table[row]) is not None
        at = np.flatnonzero(kept)
        found = {c: own.meaning(judged[c].means).rows(at) for c, own in columns.items()}
        first = repeated(found)
        again = first != np.arange(len(at))
        for row in np.flatnonzero(again).tolist():
            number = int(table.numbers[at[first[row]]])
            message = f"the row says the same as row {number} of `{name}`"
            self.checker.warn(table[int(at[row])], "S160", message, "leave it out")
        kept[at[again]] = False
        for row in suspects:
            if kept[row]:
                self.checker.spaces(table[row])
        self.checker.kept[name] = table.rows(at[~again])
        found = {c: own.rows(~again) if again.any() else own for c, own in found.items()}
        if edges:
            windows = _windows(*(found.pop(c, None) for c in WINDOW))
            if any(window != ALWAYS for window in windows):
                self.checker.windows[name] = windows
        return ColumnRows(name, found)

    def _grants(self, columns: Mapping[str, CodedColumn]) -> _Screened:
        checker, judge = self.checker, self.judge
        effects = {"allow", "deny"} if self.program.semantics.deny != "none" else {"allow"}
        judged = {
            "grantee": judge.principals(columns["grantee"], KINDS),
            "effect": judge.each(columns["effect"], lambda text: text.lower() in effects, str.lower),
            "privilege": judge.each(columns["privilege"], lambda text: text not in checker.deprecated),
            "entity": judge.entities(columns["entity"]),
        }
        good = self._good(columns, judged)
        names, (_, types) = columns["privilege"].names, judged["entity"].of_rows(columns["entity"])

        def binds(privilege: int, type_: int) -> bool:
            return type_ >= 0 and checker.binds(names[privilege], judge.types[type_]) is None

        good &= all_pairs(columns["privilege"].codes, types, binds)
        return _Screened(good, judged)

    def _owners(self, columns: Mapping[str, CodedColumn]) -> _Screened:
        semantics = self.program.semantics.owner
        kinds = semantics.kinds if semantics is not None else ()
        judged = {
            "entity": self.judge.entities(columns["entity"]),
            "owner": self.judge.principals(columns["owner"], kinds, bare="user"),
        }
        return _Screened(self._good(columns, judged), judged)

    def _members(self, columns: Mapping[str, CodedColumn]) -> _Screened:
        judged = {"user": self.judge.bare(columns["user"], "user"), "of": self.judge.entities(columns["of"])}
        good = self._good(columns, judged)
        counts = [type_ in self.checker.uses.member_types for type_ in self.judge.types]
        good &= np.array([*counts, False])[judged["of"].of_rows(columns["of"])[1]]
        return _Screened(good, judged)

    def _memberships(self, columns: Mapping[str, CodedColumn]) -> _Screened:
        judged = {name: self.judge.bare(own, name) for name, own in columns.items()}
        return _Screened(self._good(columns, judged) & self.checker.uses.state_groups, judged)

    def _assignments(self, columns: Mapping[str, CodedColumn]) -> _Screened:
        checker = self.checker
        judged = {
            "principal": self.judge.principals(columns["principal"], ("user", "group")),
            "role": self.judge.bare(columns["role"], "role"),
            "scope": self.judge.entities(columns["scope"]),
        }
        good = self._good(columns, judged)
        _, types = judged["scope"].of_rows(columns["scope"])
        roles: list[str] = judged["role"].means.to_pylist()

        def counts(role: int, type_: int) -> bool:
            scope = Entity(self.judge.types[type_], "") if type_ >= 0 else None
            declared = checker.scope(roles[role], scope, given=scope is not None) is None
            return declared and checker.advice(roles[role]) is None

        good &= all_pairs(columns["role"].codes, types, counts)
        return _Screened(good, judged)

    def _service_admins(self, columns: Mapping[str, CodedColumn]) -> _Screened:
        judged = {"user": self.judge.bare(columns["user"], "user")}
        return _Screened(self._good(columns, judged) & self.checker.uses.service_admins, judged)

    def _good(self, columns: Mapping[str, CodedColumn], judged: Mapping[str, Judged]) -> Truth:
        found = np.ones(len(next(iter(columns.values()))), np.bool_)
        for name, own in columns.items():
            found &= judged[name].of_rows(own)[0]
        return found


def _limited(edges: CodedColumn, name: str) -> CodedColumn:
    """The edges `from` or `until` without those that are before or after every moment."""
    none = text_of(ALWAYS[WINDOW.index(name)])
    beyond = [number for number, text in enumerate(edges.names) if edge_text(text) == none] if len(edges.array) else []
    return (
        CodedColumn(np.where(np.isin(edges.codes, beyond), -1, edges.codes), edges.array).compact() if beyond else edges
    )


def _windows(begins: CodedColumn | None, ends: CodedColumn | None) -> list[Window]:
    """The window of each row, from its valid edges."""
    edges = []
    for own, none in ((begins, FIRST), (ends, LAST)):
        known = [none] if own is None else [*map(moment, own.names), none]
        edges.append(None if own is None else [known[code] for code in own.codes.tolist()])
    first, last = edges
    rows = len(first if first is not None else last or ())
    return list(map(Window, first or [FIRST] * rows, last or [LAST] * rows))
