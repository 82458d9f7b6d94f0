"""Check large tables by columns: rows that clearly need no finding are accepted together, the others one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from privtab.arrow import Truth
from privtab.moments import ALWAYS, FIRST, LAST, WINDOW, Window, edge_text, moment
from privtab.moments import text as text_of
from privtab.request import Entity
from privtab.state.attribute_rows import attribute_row, value_problem
from privtab.state.coded import CodedColumn
from privtab.state.links import holding_roles
from privtab.state.nodes import State
from privtab.state.placements import placement, placements
from privtab.state.raw import COLUMNS, RawRow
from privtab.state.raw_table import RawTable
from privtab.state.rows import ColumnRows
from privtab.state.screen import Assessment, TextAssessor, all_pairs, column, repeated

if TYPE_CHECKING:
    from privtab.state.checker import Checker


class _ScreeningResult(NamedTuple):
    """Which rows need no finding, and the assessment of each column's texts."""

    passes: Truth
    assessments: Mapping[str, Assessment]


class CheckedTable(NamedTuple):
    """Which rows are valid, the numbers of those that were read one by one, and the columns of all rows as a valid one has them."""

    valid: Truth
    doubtful: Sequence[int]
    columns: Mapping[str, CodedColumn]


class ColumnChecker:
    """Checks the tables of a state by columns; a row-wise checker reports findings."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.program = checker.program
        self.assessor = TextAssessor(checker.names)
        self._screens: Mapping[str, Callable[[Mapping[str, CodedColumn]], _ScreeningResult]] = {
            "members": self._members,
            "memberships": self._memberships,
            "assignments": self._assignments,
            "grants": self._grants,
            "owners": self._owners,
            "service_admins": self._service_admins,
            "attributes": self._attributes,
            "entities": self._entities,
        }
        self._readers: Mapping[str, Callable[[RawRow], object | None]] = {
            "members": checker.member,
            "memberships": checker.membership,
            "assignments": checker.assignment,
            "grants": checker.grant,
            "owners": checker.owner,
            "service_admins": checker.service_admin,
            "attributes": partial(attribute_row, checker),
            "entities": partial(placement, checker),
        }

    def state(self) -> State:
        """The state of the valid rows."""
        checker = self.checker
        entities = placements(checker)
        grants, owners = self._table("grants"), self._table("owners")
        first = State(grants=grants, owners=owners)
        checker.grantees = first.distinct(("grants", "grantee"), ("owners", "owner"))
        checker.grantees |= holding_roles(self.program, checker.raw)
        return State(
            members=self._table("members"),
            memberships=self._table("memberships"),
            assignments=self._table("assignments"),
            grants=grants,
            owners=owners,
            service_admins=self._table("service_admins"),
            attributes=self._table("attributes"),
            entities=entities,
            windows=checker.windows,
        )

    def checked(self, table: RawTable) -> CheckedTable:
        """Check each row of a table alone; the rows are not compared with each other."""
        name = table.table
        columns = {column_: column(table, column_) for column_ in COLUMNS[name].names}
        passes, assessments = self._screens[name](columns)
        edges = {
            c: edge_column for c in COLUMNS[name].window if len((edge_column := _limited(column(table, c), c)).array)
        }
        for c, edge_column in edges.items():
            assessment = self.assessor.each(
                edge_column, lambda text: edge_text(text) is not None, lambda text: edge_text(text) or ""
            )
            assessments = {**assessments, c: assessment}
            passes &= assessment.of_rows(edge_column)[0]
        if len(edges) == len(WINDOW):
            passes &= _in_order(*(edges[c] for c in WINDOW))
        doubtful = np.flatnonzero(~passes).tolist()
        valid = np.ones(len(table), np.bool_)
        for row in doubtful:
            valid[row] = self.checker.value(self._readers[name], table[row]) is not None
        texts = {c: own.replaced(assessments[c].replacements) for c, own in (columns | edges).items()}
        return CheckedTable(valid, doubtful, texts)

    def _table(self, name: str) -> ColumnRows | tuple[()]:
        """The valid rows of one table; repetitions are reported and omitted."""
        rows = self.checker.raw.rows.get(name)
        if not rows:
            self.checker.valid_rows[name] = ()
            return ()
        table = RawTable.of(rows)
        valid, doubtful, columns = self.checked(table)
        positions = np.flatnonzero(valid)
        found = {c: texts.rows(positions) for c, texts in columns.items()}
        first = repeated(found)
        repetitions = first != np.arange(len(positions))
        for row in np.flatnonzero(repetitions).tolist():
            number = int(table.numbers[positions[first[row]]])
            message = f"the row says the same as row {number} of `{name}`"
            self.checker.warn(table[int(positions[row])], "S160", message, "leave it out")
        valid[positions[repetitions]] = False
        for row in doubtful:
            if valid[row]:
                self.checker.spaces(table[row])
        self.checker.valid_rows[name] = table.rows(positions[~repetitions])
        found = {c: texts.rows(~repetitions) if repetitions.any() else texts for c, texts in found.items()}
        edges = {c: found.pop(c, None) for c in WINDOW}
        if any(edges.values()):
            windows = _windows(*edges.values())
            if any(window != ALWAYS for window in windows):
                self.checker.windows[name] = windows
        return ColumnRows(name, found)

    def _grants(self, columns: Mapping[str, CodedColumn]) -> _ScreeningResult:
        checker, assessor = self.checker, self.assessor
        effects = {"allow", "deny"} if self.program.semantics.deny != "none" else {"allow"}
        assessments = {
            "grantee": assessor.principals(columns["grantee"], checker.program.semantics.grantees),
            "effect": assessor.each(columns["effect"], lambda text: text.lower() in effects, str.lower),
            "privilege": assessor.each(columns["privilege"], lambda text: text not in checker.deprecated),
            "entity": assessor.entities(columns["entity"]),
        }
        passes = self._without_finding(columns, assessments)
        names, (_, types) = columns["privilege"].names, assessments["entity"].of_rows(columns["entity"])

        def can_be_granted(privilege: int, type_: int) -> bool:
            return type_ >= 0 and checker.grant_problem(names[privilege], assessor.types[type_]) is None

        passes &= all_pairs(columns["privilege"].codes, types, can_be_granted)
        return _ScreeningResult(passes, assessments)

    def _owners(self, columns: Mapping[str, CodedColumn]) -> _ScreeningResult:
        semantics = self.program.semantics.owner
        kinds = semantics.kinds if semantics is not None else ()
        assessments = {
            "entity": self.assessor.entities(columns["entity"]),
            "owner": self.assessor.principals(columns["owner"], kinds, bare="user"),
        }
        return _ScreeningResult(self._without_finding(columns, assessments), assessments)

    def _members(self, columns: Mapping[str, CodedColumn]) -> _ScreeningResult:
        assessments = {"user": self.assessor.bare(columns["user"], "user"), "of": self.assessor.entities(columns["of"])}
        passes = self._without_finding(columns, assessments)
        is_checked = [type_ in self.checker.uses.member_types for type_ in self.assessor.types]
        passes &= np.array([*is_checked, False])[assessments["of"].of_rows(columns["of"])[1]]
        return _ScreeningResult(passes, assessments)

    def _memberships(self, columns: Mapping[str, CodedColumn]) -> _ScreeningResult:
        assessments = {
            "user": self.assessor.bare(columns["user"], "user", self.checker.names.member),
            "group": self.assessor.bare(columns["group"], "group"),
        }
        return _ScreeningResult(
            self._without_finding(columns, assessments) & self.checker.uses.state_groups, assessments
        )

    def _assignments(self, columns: Mapping[str, CodedColumn]) -> _ScreeningResult:
        checker = self.checker
        assessments = {
            "principal": self.assessor.principals(columns["principal"], checker.names.holders),
            "role": self.assessor.bare(columns["role"], "role"),
            "scope": self.assessor.entities(columns["scope"]),
        }
        passes = self._without_finding(columns, assessments)
        _, types = assessments["scope"].of_rows(columns["scope"])
        roles: list[str] = assessments["role"].replacements.to_pylist()

        def is_useful(role: int, type_: int) -> bool:
            scope = Entity(self.assessor.types[type_], "") if type_ >= 0 else None
            declared = checker.scope(roles[role], scope, has_scope=scope is not None) is None
            return declared and checker.advice(roles[role]) is None

        passes &= all_pairs(columns["role"].codes, types, is_useful)
        return _ScreeningResult(passes, assessments)

    def _service_admins(self, columns: Mapping[str, CodedColumn]) -> _ScreeningResult:
        assessments = {"user": self.assessor.bare(columns["user"], "user")}
        return _ScreeningResult(
            self._without_finding(columns, assessments) & self.checker.uses.service_admins, assessments
        )

    def _attributes(self, columns: Mapping[str, CodedColumn]) -> _ScreeningResult:
        assessor, program = self.assessor, self.program
        users, entities, attributes = columns["user"], columns["entity"], columns["attribute"]
        assessments = {
            "attribute": assessor.each(attributes, lambda _: True),
            "value": assessor.each(columns["value"], lambda text: text == text.strip()),
            "user": assessor.bare(users, "user"),
            "entity": assessor.entities(entities),
        }
        passes = self._without_finding(columns, assessments) & ((users.codes >= 0) != (entities.codes >= 0))
        names, values, count = attributes.names, columns["value"].names, len(attributes.names)
        _, types = assessments["entity"].of_rows(entities)

        def is_value(pair: int, value: int) -> bool:
            type_, name = divmod(pair, count)
            entity = Entity(assessor.types[type_ - 1], "") if type_ else None
            return value_problem(program, entity, names[name], values[value]) is None

        passes &= all_pairs((types + 1) * count + attributes.codes, columns["value"].codes, is_value)
        return _ScreeningResult(passes, assessments)

    def _entities(self, columns: Mapping[str, CodedColumn]) -> _ScreeningResult:
        """None passes: these rows are read one by one."""
        assessments = {name: self.assessor.entities(columns[name]) for name in ("entity", "parent")}
        assessments["name"] = self.assessor.each(columns["name"], lambda _: True)
        return _ScreeningResult(np.zeros(len(columns["entity"]), np.bool_), assessments)

    def _without_finding(self, columns: Mapping[str, CodedColumn], assessments: Mapping[str, Assessment]) -> Truth:
        found = np.ones(len(next(iter(columns.values()))), np.bool_)
        for name, column_ in columns.items():
            found &= assessments[name].of_rows(column_)[0]
        return found


def _limited(edges: CodedColumn, name: str) -> CodedColumn:
    """The edges `from` or `until` without those that are before or after every moment."""
    no_edge = text_of(ALWAYS[WINDOW.index(name)])
    beyond = (
        [number for number, text in enumerate(edges.names) if edge_text(text) == no_edge] if len(edges.array) else []
    )
    return (
        CodedColumn(np.where(np.isin(edges.codes, beyond), -1, edges.codes), edges.array).compact() if beyond else edges
    )


def _in_order(begins: CodedColumn, ends: CodedColumn) -> Any:
    """For each row, whether it ends after it begins; False where an edge is no time."""
    moments = []
    for edge_column, no_edge in ((begins, FIRST), (ends, LAST)):
        known = [None if edge_text(text) is None else moment(text) for text in edge_column.names]
        moments.append([*(0 if at is None else at for at in known), no_edge])
    first, last = (np.array(m, np.int64) for m in moments)
    return first[begins.codes] < last[ends.codes]


def _windows(begins: CodedColumn | None, ends: CodedColumn | None) -> list[Window]:
    """The window of each row, from its valid edges."""
    edges = []
    for edge_column, no_edge in ((begins, FIRST), (ends, LAST)):
        moments = [no_edge] if edge_column is None else [*map(moment, edge_column.names), no_edge]
        edges.append(None if edge_column is None else [moments[code] for code in edge_column.codes.tolist()])
    first, last = edges
    rows = len(first if first is not None else last or ())
    return list(map(Window, first or [FIRST] * rows, last or [LAST] * rows))
