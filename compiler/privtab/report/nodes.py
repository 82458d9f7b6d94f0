"""What the writers take besides findings: rules, suppressed findings, and the cases of a test run."""

from __future__ import annotations

from dataclasses import dataclass

from privtab.diagnostics import Diagnostic, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The meaning of a code: one line, and a page of Markdown if there is one."""

    code: str
    name: str
    severity: Severity
    summary: str
    page: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """A finding that was suppressed, and the reason; `in_source` if a comment beside it does so."""

    finding: Diagnostic
    reason: str
    in_source: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a case failed: one line, and details."""

    message: str
    text: str = ""
    kind: str = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test: how long it took, its failure, or why it was skipped, and the `file` and `line` that define it."""

    name: str
    classname: str
    seconds: float = 0.0
    failure: Failure | None = None
    skipped: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The cases of one file, in order."""

    name: str
    cases: tuple[Case, ...]
    properties: tuple[tuple[str, str], ...] = ()
