"""Check tables by columns: rows whose cells are of kinds that need no finding are accepted together, the others one by one.

Rows alike in what decides (the types of entities, the kinds of principals, privileges, roles) are judged by one of them, which the code
for single rows reads. A text that is not clearly valid is read once, by that code, too. Needs numpy and pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import arrow
from privtab.base.arrow import Codes, Truth
from privtab.base.moments import ALWAYS, FIRST, LAST, WINDOW_COLUMNS, Window, edge_text, parse_moment
from privtab.base.moments import moment_text as text_of
from privtab.base.names import FILLERS, LONGEST_NAME, PRINCIPAL_KINDS, mixed_scripts
from privtab.base.records import dataclass
from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.checker import MAX_FINDINGS_OF_KIND, Checker
from privtab.state.coded import CodedColumn, RawTable, numbered
from privtab.state.findings import StateFinding
from privtab.state.names import RowProblem, SelectedRows, StateNames
from privtab.state.nodes import ENTITY_COLUMNS, ColumnRows
from privtab.state.raw import TABLE_COLUMNS, RawState

_SUSPICIOUS = rf"[^\pL\pM\pN\pP\pS ]|[^\PL\p{{Latin}}]|[{FILLERS}%*?]|\A | \z"
"""Controls, separators and unassigned characters; letters beside Latin ones; fillers, wildcards and escapes; blanks at the ends."""
_FEW_KINDS = 1 << 22
"""Combinations of kinds up to which one is looked up by its number."""


class _CheckedTable(NamedTuple):
    """Which rows are valid, the numbers of those that were read one by one, and the columns of all rows as a valid one has them."""

    valid: Truth
    doubtful: Sequence[int]
    columns: Mapping[str, CodedColumn]


class ColumnChecker:
    """Checks tables by columns; a row-wise checker reads single rows and reports findings.

    For example:

        valid, columns, findings = ColumnChecker.alone(program).each_row(table, None)
    """

    @classmethod
    def alone(cls, program: Program) -> ColumnChecker:
        """A checker of each row alone, for `each_row`."""
        return cls(Checker(program, RawState(), alone=True))

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.assessor = TextAssessor(checker.names)

    def each_row(
        self, table: RawTable, places: Mapping[str, str] | None
    ) -> tuple[Truth, Mapping[str, CodedColumn], list[StateFinding]]:
        """Which rows of one table are valid, each checked alone; the columns of all as a valid one has them; and all findings.

        `places`: where entities with flat ids lie; None: that is not checked.
        """
        self.checker.names.places = places
        self.checker.findings = []
        checked = self._checked(table)
        for row in checked.doubtful:
            if checked.valid[row]:
                self.checker.look_alikes(table[row])
        return checked.valid, checked.columns, self.checker.findings

    def table(self, name: str) -> ColumnRows | tuple[()]:
        """The valid rows of one table of the state; repetitions are reported and omitted."""
        rows = self.checker.raw.rows.get(name)
        if not rows:
            self.checker.valid_rows[name] = ()
            return ()
        table = RawTable.of(rows)
        valid, doubtful, columns = self._checked(table)
        positions = np.flatnonzero(valid)
        found = {c: texts.rows(positions) for c, texts in columns.items()}
        first = _repeated(found)
        repetitions = first != np.arange(len(positions))
        repeated = np.flatnonzero(repetitions)
        for row in repeated[:MAX_FINDINGS_OF_KIND].tolist():
            number = int(table.numbers[positions[first[row]]])
            message = f"the row says the same as row {number} of `{name}`"
            self.checker.warn(table[int(positions[row])], "S160", message, "leave it out")
        # Beyond the limit, findings are only counted.
        omitted = max(len(repeated) - MAX_FINDINGS_OF_KIND, 0)
        self.checker.finding_counts[table.path, name, "S160", "warning"] += omitted
        valid[positions[repetitions]] = False
        for row in doubtful:
            if valid[row]:
                self.checker.look_alikes(table[row])
        self.checker.valid_rows[name] = SelectedRows(table, positions[~repetitions].tolist())
        found = {c: texts.rows(~repetitions) if repetitions.any() else texts for c, texts in found.items()}
        windows = _windows_of(found)
        if any(window != ALWAYS for window in windows):
            self.checker.windows[name] = windows
        return ColumnRows(name, found)

    def _checked(self, table: RawTable) -> _CheckedTable:
        """Check each row of a table alone; the rows are not compared with each other."""
        name = table.table
        columns = {c: table.column(c) for c in TABLE_COLUMNS[name].names}
        assessments = {c: self._assessment(name, c, own) for c, own in columns.items()}
        of_rows = {c: assessments[c].of_rows(own) for c, own in columns.items()}
        passes = np.logical_and.reduce([good for good, _ in of_rows.values()])
        passes &= self._pass_together(table, passes, [kinds for _, kinds in of_rows.values()])
        edges = {c: own for c in TABLE_COLUMNS[name].window if len((own := _limited(table.column(c), c)).array)}
        for c, own in edges.items():
            assessments[c] = self.assessor.each(
                own, lambda text: edge_text(text) is not None, lambda text: edge_text(text) or ""
            )
            passes &= assessments[c].of_rows(own)[0]
        if edges:
            passes &= _in_order(*(edges.get(c, CodedColumn.without_texts(len(table))) for c in WINDOW_COLUMNS))
        doubtful = np.flatnonzero(~passes).tolist()
        valid = np.ones(len(table), np.bool_)
        for row in doubtful:
            valid[row] = self.checker.value(self.checker.readers[name], table[row]) is not None
        texts = {c: own.replaced(assessments[c].replacements) for c, own in (columns | edges).items()}
        return _CheckedTable(valid, doubtful, texts)

    def _pass_together(self, table: RawTable, good: Truth, kinds: Sequence[Codes]) -> Truth:
        """Which rows are of kinds that need no finding, as one row of each combination shows; `good`: the rows that count."""
        rows = np.flatnonzero(good)
        passes = np.zeros(len(good), np.bool_)
        if not len(rows):
            return passes
        numbers, size = numbered((of_rows[rows], int(of_rows.max()) + 1) for of_rows in kinds)
        if size > _FEW_KINDS:
            distinct, numbers = np.unique(numbers, return_inverse=True)
            size = len(distinct)
        first = np.full(size, -1, np.int64)
        first[numbers[::-1]] = rows[::-1]
        needs_none = np.zeros(size, np.bool_)
        for number in np.flatnonzero(first >= 0).tolist():
            needs_none[number] = self.checker.needs_no_finding(table[int(first[number])])
        passes[rows] = needs_none[numbers]
        return passes

    def _assessment(self, table: str, name: str, column: CodedColumn) -> Assessment:
        """The assessment of a column; its kinds are what decides about a row, beside the other columns."""
        assessor, names, semantics = self.assessor, self.checker.names, self.checker.program.semantics
        match name:
            case "grantee":
                return assessor.principals(column, semantics.grantees)
            case "owner":
                return assessor.principals(
                    column, () if semantics.owner is None else semantics.owner.kinds, bare="user"
                )
            case "principal":
                return self._holders(column)
            case "user" | "group":
                return assessor.bare(column, name, names.member if table == "memberships" and name == "user" else None)
            case "role":
                return self._roles(assessor.bare(column, name))
            case "name":
                return replace(assessor.each(column), kinds=np.zeros(len(column.array), np.int64))
            case _ if name in ENTITY_COLUMNS:
                return assessor.entities(column)
            case _:
                return assessor.each(column, replacement=str.lower if name == "effect" else str)

    def _roles(self, found: Assessment) -> Assessment:
        """Names of roles; each declared role is of a kind of its own, as in `_holders`, and the others are of one or, with advice, of another."""
        declared = {name: number for number, name in enumerate(self.checker.program.roles, start=2)}
        names: list[str] = found.replacements.to_pylist()
        kinds = [declared.get(name) or int(self.checker.advice(name) is not None) for name in names]
        return replace(found, kinds=np.array(kinds, np.int64))

    def _holders(self, column: CodedColumn) -> Assessment:
        """Principals that hold roles; each declared role is of a kind of its own, since its scope counts."""
        found = self.assessor.principals(column, self.checker.names.holders)
        for number, name in enumerate(self.checker.program.roles, start=len(PRINCIPAL_KINDS)):
            at = arrow.position(column.array, f"role:{name}")
            if at >= 0 and found.good[at]:
                found.kinds[at] = number
        return found


@dataclass(frozen=True, slots=True)
class Assessment:
    """An assessment of each distinct text of a column: whether it needs no finding, the number of its kind, and its meaning."""

    good: Truth
    kinds: Codes
    replacements: pa.Array

    def of_rows(self, column: CodedColumn) -> tuple[Truth, Codes]:
        """`good` and `kinds` by row; a row without a text is good."""
        return np.append(self.good, True)[column.codes], np.append(self.kinds, -1)[column.codes]


class TextAssessor:
    """Assesses texts of columns by the names of one policy."""

    def __init__(self, names: StateNames) -> None:
        self.names = names
        self.types = tuple(names.program.entities)
        """Entity types by number."""

    def entities(self, column: CodedColumn) -> Assessment:
        """Entities; the kind is the entity type."""
        texts = column.array
        slashes = arrow.array_numbers(pc.count_substring(texts, "/"))
        plain = self._plain(texts, r"|//|/\z| /|/ |\A[^:]*:(?:[/ ]|\z)")
        kinds = np.full(len(texts), -1, np.int64)
        for number, type_ in enumerate(self.types):
            shape = self.names.shapes[type_]
            if shape.depth and shape.flat is None:
                fits = (slashes >= shape.depth - 1) & (slashes <= shape.most - 1)
                kinds[plain & fits & _starts_with(texts, f"{type_}:")] = number

        def read(text: str) -> tuple[int, str] | None:
            found = self.names.entity(text)
            return (self.types.index(found.type), str(found)) if isinstance(found, Entity) else None

        return _assess(texts, kinds, texts, read)

    def principals(self, column: CodedColumn, allowed: Collection[str], bare: str | None = None) -> Assessment:
        """Principals as `kind:name`, or as names alone of the kind `bare`; kinds are numbered as in PRINCIPAL_KINDS."""
        texts = column.array
        colons = arrow.array_numbers(pc.count_substring(texts, ":"))
        plain = self._plain(texts, r"|: |:\z") & (colons == 1)
        kinds = np.full(len(texts), -1, np.int64)
        for number, kind in enumerate(PRINCIPAL_KINDS):
            if kind in allowed:
                kinds[plain & _starts_with(texts, f"{kind}:")] = number

        def read(text: str) -> tuple[int, str] | None:
            found = self.names.principal(text, PRINCIPAL_KINDS if bare else tuple(allowed), bare)
            if isinstance(found, RowProblem) or found[0] not in allowed:
                return None
            return PRINCIPAL_KINDS.index(found[0]), f"{found[0]}:{found[1]}" if bare else text

        return _assess(texts, kinds, texts, read)

    def bare(
        self, column: CodedColumn, kind: str, reader: Callable[[str, str], str | RowProblem] | None = None
    ) -> Assessment:
        """Names of one kind, read by `reader` if it is given; a group in their place, as `group:name`, is of the second kind."""
        texts = column.array
        colons = arrow.array_numbers(pc.count_substring(texts, ":"))
        kinds = np.where(self._plain(texts, "") & (colons == 0), 0, -1)

        def read(text: str) -> tuple[int, str] | None:
            found = (reader or self.names.bare)(text, kind)
            return None if isinstance(found, RowProblem) else (int(found.startswith("group:")), found)

        return _assess(texts, kinds, texts, read)

    def each(
        self,
        column: CodedColumn,
        good: Callable[[str], bool] = lambda text: text == text.strip(),
        replacement: Callable[[str], str] = str,
    ) -> Assessment:
        """Texts of a column with few distinct ones, each of its own kind."""
        found = [good(text) for text in column.names]
        texts = arrow.text_array([replacement(text) for text in column.names])
        return Assessment(np.array(found, np.bool_), np.arange(len(found)), texts)

    def _plain(self, texts: pa.Array, alternatives: str) -> Truth:
        suspicious = arrow.array_truth(pc.match_substring_regex(texts, _SUSPICIOUS + alternatives))
        short: Truth = arrow.array_numbers(pc.binary_length(texts)) <= LONGEST_NAME
        return short & ~suspicious


def _starts_with(texts: pa.Array, prefix: str) -> Truth:
    return arrow.array_truth(pc.starts_with(texts, prefix))


def _assess(
    texts: pa.Array, kinds: npt.NDArray[np.int64], replacements: pa.Array, read: Callable[[str], tuple[int, str] | None]
) -> Assessment:
    """Assess texts, reading those one by one that are not clearly valid."""
    good = kinds >= 0
    unread = np.flatnonzero(~good)
    changed: dict[int, str] = {}
    for number, text in zip(unread.tolist(), texts.take(arrow.integer_array(unread)).to_pylist(), strict=True):
        found = read(text)
        if found is not None:
            kinds[number] = found[0]
            good[number] = mixed_scripts(text) is None
            if found[1] != text:
                changed[number] = found[1]
    if changed:
        listed = replacements.to_pylist()
        for number, text in changed.items():
            listed[number] = text
        replacements = arrow.text_array(listed)
    return Assessment(good, kinds, replacements)


def _repeated(columns: Mapping[str, CodedColumn]) -> Codes:
    """For each row, the number of the first equal row, which may be its own."""
    found = CodedColumn.numbered_rows(columns.values())
    _, first, inverse = np.unique(found, return_index=True, return_inverse=True)
    result: Codes = first[inverse]
    return result


def _limited(edges: CodedColumn, name: str) -> CodedColumn:
    """The edges `from` or `until` without those that are before or after every moment."""
    no_edge = text_of(ALWAYS[WINDOW_COLUMNS.index(name)])
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
        known = [None if edge_text(text) is None else parse_moment(text) for text in edge_column.names]
        moments.append([*(0 if at is None else at for at in known), no_edge])
    first, last = (np.array(m, np.int64) for m in moments)
    return first[begins.codes] < last[ends.codes]


def _windows_of(columns: dict[str, CodedColumn]) -> list[Window]:
    """Take the columns of edges from those of valid rows, and give the window of each row; none if there are no such columns."""
    edges = [(columns.pop(name, None), no_edge) for name, no_edge in zip(WINDOW_COLUMNS, ALWAYS, strict=True)]
    rows = max((len(column) for column, _ in edges if column is not None), default=0)
    found = []
    for column, no_edge in edges:
        moments = [no_edge] if column is None else [*map(parse_moment, column.names), no_edge]
        found.append([no_edge] * rows if column is None else [moments[code] for code in column.codes.tolist()])
    return list(map(Window, *found))
