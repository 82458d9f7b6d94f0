"""The result of comparing two programs, and the kinds of requests that are compared: values only, for renderers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import date
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from privtab.base import Request, Span, dataclass
from privtab.ir import Formula, Or, Program, Rule, asked_condition, rule_flags

Pair: TypeAlias = tuple[str, str]
"""(entity type, operation)"""
Decided: TypeAlias = Literal["allow", "deny", "invalid"]
Tables: TypeAlias = Mapping[str, list[dict[str, str]]]
DeclarationKind: TypeAlias = Literal["semantics", "type", "privilege", "alias", "set", "condition", "role", "attribute"]
Shows: TypeAlias = Literal["wider", "narrower", "effects"]
"""The difference that a witness shows."""


class Verdict(StrEnum):
    """The kind of change of an operation, or of a declaration in the file."""

    WIDER = "wider"
    NARROWER = "narrower"
    INCOMPARABLE = "incomparable"
    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    UNKNOWN = "unknown"
    """The comparison of conditions exceeds its budget: nothing is known, and every gate fails."""
    CHANGED = "changed"
    """For declarations only, if the declaration alone does not show whether it gives more or less."""
    EQUAL = "equal"


OPERATION_VERDICTS = tuple(v for v in Verdict if v is not Verdict.CHANGED)
"""The verdicts of operations, most important for a reviewer first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One row as it was written, and its position."""

    rule: str
    requires: str | None
    each: str | None
    gate: str | None
    """None if no gate applies."""
    withs: tuple[str, ...]
    """`name: type`, or `name: type | type`."""
    flags: tuple[str, ...]
    """`name: required`."""
    effects: tuple[str, ...]
    report: str | None
    parent: str | None
    """The parent type of the row's type."""
    unnamed: bool
    """True if a request may omit the last name."""
    note: str | None
    source: str | None
    span: Span
    sql: str | None = None
    """For a row filter or a column mask: its text."""

    @property
    def text(self) -> str:
        """The conditions on one line."""
        if self.each is None:
            return self.requires or "anyone"
        each = f"each: {self.each}"
        return each if self.requires is None else f"{self.requires}; {each}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A state and a request that the two programs decide differently or (`effects`) allow with different effects."""

    shows: Shows
    request: Request
    state: Tables
    before: Decided
    after: Decided
    effects_before: tuple[str, ...] = ()
    effects_after: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows in the state."""
        return sum(map(len, self.state.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """An approval of one change of one operation, until a date."""

    operation: str
    """`entity/operation`."""
    change: Verdict
    who: str
    why: str
    until: date
    span: Span
    system: str | None = None
    """None applies to any system."""

    def covers(self, system: str, row: RowChange) -> bool:
        """Return whether the waiver applies to this change."""
        return (
            self.operation == row.name and self.change is row.verdict and (self.system is None or self.system == system)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One operation on both sides."""

    entity: str
    operation: str
    verdict: Verdict
    condition: Verdict | None = None
    """None for rows that only one side has."""
    effects: Verdict | None = None
    parts: tuple[str, ...] = ()
    """The parts of the row that changed: `requires`, `each`, `gate`, `with`, `effects`, …"""
    because: tuple[str, ...] = ()
    """Other causes of the change: rows reached by `can`, and declarations of the file."""
    before: Cell | None = None
    after: Cell | None = None
    was: Pair | None = None
    """The earlier pair, if the operation or its entity was renamed."""
    recognised: str | None = None
    """The evidence for a renamed operation."""
    witnesses: tuple[Witness, ...] = ()
    waived: Waiver | None = None

    @property
    def row_changed(self) -> bool:
        """True if the row itself changed, or a row that it refers to, and not only declarations."""
        not_deciding = {"note", "deprecated", "report", "sensitive"}
        return bool(set(self.parts) - not_deciding) or any(reason.startswith("can ") for reason in self.because)

    @property
    def name(self) -> str:
        """`entity/operation`."""
        return f"{self.entity}/{self.operation}"

    @property
    def is_unchanged(self) -> bool:
        """True if there is nothing to report: the same meaning in the same words."""
        return self.verdict is Verdict.EQUAL and not self.parts and not self.because and self.was is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One part of a declaration that changed; None if a side does not have it."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclarationChange:
    """A change outside of the rows: semantics, entity types, privileges, aliases, sets, named conditions, roles, attributes."""

    kind: DeclarationKind
    name: str
    verdict: Verdict
    details: tuple[Detail, ...] = ()
    was: str | None = None
    recognised: str | None = None
    meaning: bool = True
    """True if decisions can depend on the declaration; they do not depend on titles and deprecations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyName:
    """The policy on one side."""

    shown: str
    """The name for display."""
    system: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Two programs compared: every operation of either, in the order of the file, and every changed declaration."""

    before: PolicyName
    after: PolicyName
    rows: tuple[RowChange, ...]
    declared: tuple[DeclarationChange, ...]

    @property
    def changes(self) -> tuple[RowChange, ...]:
        """The operations whose meaning or name changed."""
        return tuple(row for row in self.rows if row.verdict is not Verdict.EQUAL)

    @property
    def rewritten(self) -> tuple[RowChange, ...]:
        """The operations that were reworded without a change of meaning."""
        return tuple(row for row in self.rows if row.verdict is Verdict.EQUAL and not row.is_unchanged)

    @property
    def same(self) -> bool:
        """True if neither decisions nor names changed."""
        return not self.changes and not any(change.meaning for change in self.declared)

    def count(self, verdict: Verdict) -> int:
        """The number of operations with this verdict."""
        return sum(row.verdict is verdict for row in self.rows)


Types = dict[str, str]
"""The type of the object in each `with` slot."""


class PathForm(NamedTuple):
    """The number of names in the path of a resource, and whether the path ends with `/`: without its last name it may, and where types nest it does."""

    names: int
    slash: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The requests that a row accepts."""

    program: Program
    rule: Rule
    conditions: Mapping[PathForm, Formula]
    """By the form of the path of the resource; with any other form a request is invalid."""
    unless: Mapping[PathForm, Formula] = field(default_factory=dict)
    """The condition of any earlier filter that applies instead, by the form of the path; only for the rows of filters."""
    flags: frozenset[str]
    required_flags: frozenset[str]
    """Flags that a request must state, set or not set."""

    @classmethod
    def of(cls, program: Program, rule: Rule, *, slash: bool = False, nests: bool = True) -> Shape:
        """The shape of a row. With flat ids, the names are names on the path, not of the id.

        `slash`: paths without their last name may end with `/`; where the type `nests`, they
        do. Two policies in which no type nests take the same spellings, so one is enough.
        """
        depth = program.depth(rule.entity)
        chain = program.chain(rule.entity)
        if any(program.entities[link].flat for link in chain):  # what lies below an id that is flat has no levels
            slash = program.entities[rule.entity].flat
        conditions = {PathForm(depth): asked_condition(program, rule, named=True)}
        if program.unnamed(rule):
            forms = [PathForm(depth, slash=True)] if slash and depth > 1 else []  # a `/` alone names nothing
            forms += [] if slash and nests else [PathForm(depth - 1)]
            conditions |= dict.fromkeys(forms, asked_condition(program, rule, named=False))
        return cls(
            program=program,
            rule=rule,
            conditions=conditions,
            flags=frozenset(rule_flags(program, rule)),
            required_flags=frozenset(rule.required_flags),
        )

    def behind(self, earlier: Sequence[Shape]) -> Shape:
        """The shape of a filter behind others."""
        if not earlier:
            return self
        unless = {form: Or(parts=tuple(shape.conditions[form] for shape in earlier)) for form in self.conditions}
        return replace(self, unless=unless, flags=self.flags.union(*(shape.flags for shape in earlier)))
