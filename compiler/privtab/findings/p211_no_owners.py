"""P211: ownership in a file without owners."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P211"
NAME = "no-owners"
SEVERITY = Severity.ERROR


def finding(span: Span, what: str) -> Diagnostic:
    """Build the finding for `what`, which refers to owners, in a file without `semantics.owner`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"{what} refers to owners, but the file has none",
        span=span,
        help="say what ownership means: `semantics: {owner: {creator: true}}`",
    )
