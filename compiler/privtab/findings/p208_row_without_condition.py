"""P208: a row without a condition."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P208", "row-without-condition", Severity.ERROR)


def finding(span: Span, operation: str) -> Diagnostic:
    """Build the finding for the row of `operation`, which has neither `requires` nor `each`."""
    return KIND.at(
        span,
        f"the row `{operation}` has neither `requires` nor `each`",
        "say who may: `requires: READ (TYPE)`, or `requires: anyone`",
    )
