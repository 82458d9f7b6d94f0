"""What a comparison of two programs says: values only; renderers read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Literal, TypeAlias

from privtab.diagnostics import Span
from privtab.request import Request

Pair: TypeAlias = tuple[str, str]
"""(entity type, operation)"""
Answer: TypeAlias = Literal["allow", "deny", "invalid"]
Tables: TypeAlias = Mapping[str, list[dict[str, str]]]


class Verdict(StrEnum):
    """What became of an operation, or of something that the file declares."""

    WIDER = "wider"
    NARROWER = "narrower"
    INCOMPARABLE = "incomparable"
    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    UNKNOWN = "unknown"
    """Of conditions whose comparison costs more than its budget: nothing is known, and every gate fails."""
    CHANGED = "changed"
    """Of declarations alone, where more and less cannot be told from the declaration itself."""
    EQUAL = "equal"


OPERATION_VERDICTS = tuple(v for v in Verdict if v is not Verdict.CHANGED)
"""The verdicts of operations, those first that a reviewer looks at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One row as it was written, and where."""

    rule: str
    requires: str | None
    each: str | None
    gate: str | None
    """None: no gate applies."""
    withs: tuple[str, ...]
    """`name: type`, or `name: type | type`."""
    flags: tuple[str, ...]
    """`name: required`."""
    effects: tuple[str, ...]
    report: str | None
    parent: str | None
    """The type that contains the row's."""
    unnamed: bool
    """Whether a request may leave off the last name."""
    note: str | None
    source: str | None
    span: Span

    @property
    def text(self) -> str:
        """The conditions on one line."""
        if self.each is None:
            return self.requires or "anyone"
        each = f"each: {self.each}"
        return each if self.requires is None else f"{self.requires}; {each}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A state and a request that the two programs answer differently, or (`effects`) allow with different effects."""

    shows: Literal["wider", "narrower", "effects"]
    request: Request
    state: Tables
    before: Answer
    after: Answer
    effects_before: tuple[str, ...] = ()
    effects_after: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows the state has."""
        return sum(map(len, self.state.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """Somebody's word that one change of one operation is meant, until a day."""

    operation: str
    """`entity/operation`."""
    change: Verdict
    who: str
    why: str
    until: date
    span: Span
    system: str | None = None
    """None: of any system."""

    def covers(self, system: str, row: RowChange) -> bool:
        """Whether this is the change that was meant."""
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
    """Which parts of the row are not what they were: `requires`, `each`, `gate`, `with`, `effects`, …"""
    because: tuple[str, ...] = ()
    """What else it hangs on: rows reached by `can`, and declarations of the file."""
    before: Cell | None = None
    after: Cell | None = None
    was: Pair | None = None
    """The pair before, where an operation or its entity got another name."""
    recognised: str | None = None
    """By what a renamed operation was recognised."""
    witnesses: tuple[Witness, ...] = ()
    waived: Waiver | None = None

    @property
    def own(self) -> bool:
        """Whether the row itself says something else, or a row that it refers to; not the declarations alone."""
        told = {"note", "deprecated", "report"}
        return bool(set(self.parts) - told) or any(reason.startswith("can ") for reason in self.because)

    @property
    def name(self) -> str:
        """`entity/operation`."""
        return f"{self.entity}/{self.operation}"

    @property
    def alike(self) -> bool:
        """Whether there is nothing to tell: the same meaning in the same words."""
        return self.verdict is Verdict.EQUAL and not self.parts and not self.because and self.was is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One thing that a declaration says otherwise; None where it says nothing of it."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A change outside of the rows: semantics, entity types, privileges, aliases, sets, roles."""

    kind: Literal["semantics", "type", "privilege", "alias", "set", "role"]
    name: str
    verdict: Verdict
    details: tuple[Detail, ...] = ()
    was: str | None = None
    recognised: str | None = None
    meaning: bool = True
    """Whether decisions can depend on it: titles and deprecations are words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Which policy a side is."""

    shown: str
    """How the caller called it."""
    system: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Two programs compared: every operation of either, in the order of the file, and every declaration that changed."""

    before: Named
    after: Named
    rows: tuple[RowChange, ...]
    declared: tuple[Declared, ...]

    @property
    def changes(self) -> tuple[RowChange, ...]:
        """The operations whose meaning or name changed."""
        return tuple(row for row in self.rows if row.verdict is not Verdict.EQUAL)

    @property
    def rewritten(self) -> tuple[RowChange, ...]:
        """The operations that mean the same in other words."""
        return tuple(row for row in self.rows if row.verdict is Verdict.EQUAL and not row.alike)

    @property
    def same(self) -> bool:
        """Whether nothing changed that a decision could show, or a name."""
        return not self.changes and not any(d.meaning for d in self.declared)

    def count(self, verdict: Verdict) -> int:
        """How many operations have that verdict."""
        return sum(row.verdict is verdict for row in self.rows)
