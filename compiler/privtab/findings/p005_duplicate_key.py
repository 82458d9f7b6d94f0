"""P005: a key that occurs twice in one mapping."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Related, Severity, Span

CODE = "P005"
NAME = "duplicate-key"
SEVERITY = Severity.ERROR


def finding(span: Span, key: str, first: Span) -> Diagnostic:
    """Build the finding for `key` at `span`, which already occurs at `first`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"duplicate key `{key}`",
        span=span,
        help=f"it already occurs on line {first.line}: merge the two",
        related=(Related(message="first here", span=first),),
    )
