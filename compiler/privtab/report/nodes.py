"""What the writers take beside findings: rules, findings that somebody ignored, and the cases of a test run."""

from __future__ import annotations

from dataclasses import dataclass

from privtab.diagnostics import Diagnostic, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a code stands for: one line, and a page of Markdown where there is one."""

    code: str
    name: str
    severity: Severity
    summary: str
    page: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """A finding that somebody decided to live with, and why; `in_source` where a comment beside it says so."""

    finding: Diagnostic
    reason: str
    in_source: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a case failed: one line, and all that helps to understand it."""

    message: str
    text: str = ""
    kind: str = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test: `seconds` it took, what went wrong, or why it was skipped; `file` and `line` are where it is written."""

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
