"""Scenarios: the answers that a policy must give, how much of its table they prove, and the faults they would miss.

Here is the content of scenario files: states, requests and expected answers, and the findings in them.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal, TypeAlias

from privtab.base import Diagnostic, Located, Request, Severity, Span, dataclass
from privtab.ir import Program, Rule
from privtab.state import TABLE_COLUMNS, State

CaseKind: TypeAlias = Literal["case", "item", "need", "cell", "step"]
"""The kind of entry a case comes from: `cases`, `visible`, `needs`, `suites`, `walkthroughs`."""
Text: TypeAlias = Located[str]
Form: TypeAlias = Literal["", "item", "call"]
"""The form of a request: of a listing, about a named item, or the call; empty for other rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Because:
    """A part of a frozen reason: the atom, and optionally the principal and the entity of its grant."""

    atom: str
    through: str | None = None
    on: str | None = None

    def __str__(self) -> str:
        through = f" through {self.through}" if self.through else ""
        return self.atom + through + (f" at {self.on}" if self.on else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected answer; None allows anything."""

    allowed: bool
    effects: tuple[str, ...] | None = None
    missing: frozenset[frozenset[str]] | None = None
    reason: tuple[Because, ...] | None = None
    rule: str | None = None
    report: str | None = None
    """The row's report about items that do not pass; looked up in the policy, since decisions do not include it."""

    @property
    def explained(self) -> bool:
        """True if more than the decision and its effects is frozen."""
        return any(part is not None for part in (self.missing, self.reason, self.rule))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request and its expected answer."""

    name: str
    kind: CaseKind
    world: int
    """The position of its state in the plan."""
    request: Request
    expected: Expected
    span: Span
    """The entry of the file that it comes from; several cases can share it."""
    holds: str | None = None
    """The rights that the caller holds, if the case was generated."""
    why: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The texts that a filter matches."""
        request = self.request
        request_text = f"{request.action} {request.resource}"
        return (self.name, f"{request.user} {request_text}", request_text, request.resource.type, *self.tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of scenario files: a policy with its variant and readings."""

    policy: Path
    variant: str | None = None
    readings: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """The policy's file, and the selected variant and readings in parentheses."""
        return self.policy.as_posix() + self.options_text()

    def options_text(self, most: int | None = None) -> str:
        """The variant and the readings in parentheses; empty if there are none. With more than `most` readings: their number."""
        readings = [f"{row}={name}" for row, name in self.readings]
        if most is not None and len(readings) > most:
            readings = [f"{len(readings)} other readings"]
        options = [*([self.variant] if self.variant else []), *readings]
        return f" ({', '.join(options)})" if options else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePlan:
    """All cases for one subject, with their states."""

    subject: Subject
    program: Program
    files: tuple[str, ...] = ()
    worlds: tuple[State, ...] = ()
    cases: tuple[Case, ...] = ()
    rules: Mapping[tuple[str, str], Rule] = field(default_factory=dict)
    """The rules that the cases should cover; for a variant, the rules that it changes."""


def size(state: State) -> int:
    """The number of rows of a state."""
    return sum(len(getattr(state, table)) for table in TABLE_COLUMNS)


CODES = {
    "T001": "unknown-key",
    "T002": "missing-key",
    "T003": "wrong-type",
    "T004": "wrong-value",
    "T005": "duplicate-key",
    "T006": "keys-that-clash",
    "T101": "policy-not-found",
    "T102": "unusable-state",
    "T103": "request-the-policy-does-not-know",
    "T104": "malformed-atom",
    "T105": "unknown-name",
    "T106": "unknown-parameter",
    "T107": "cycle-of-names",
    "T201": "set-that-is-not-minimal",
    "T202": "cell-said-twice",
    "T203": "nothing-asked",
    "T204": "row-that-is-not-there",
    "T205": "too-many-ways",
}


def finding(code: str, span: Span, message: str, help_: str | None = None) -> Diagnostic:
    """Build a finding. All are errors, since a case that is never decided proves nothing."""
    return Diagnostic(code=code, name=CODES[code], severity=Severity.ERROR, message=message, span=span, help=help_)
