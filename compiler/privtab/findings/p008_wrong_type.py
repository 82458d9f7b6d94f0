"""P008: a value of the wrong YAML type."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P008", "wrong-type", Severity.ERROR)


def finding(span: Span, what: str, expected: str, actual: str, help_: str | None = None) -> Diagnostic:
    """Build the finding for `what`, which must be `expected` but is `actual`, both in words."""
    return KIND.at(span, f"{what} must be {expected}, not {actual}", help_)
