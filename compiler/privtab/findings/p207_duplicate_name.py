"""P207: two declarations with one name."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Related, Severity, Span

CODE = "P207"
NAME = "duplicate-name"
SEVERITY = Severity.ERROR


def finding(span: Span, what: str, name: str, first: Span) -> Diagnostic:
    """Build the finding for `name` at `span`, which is already declared at `first`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"{what} `{name}` is declared twice",
        span=span,
        help=f"line {first.line} declares `{name}`: every name is unique in a file",
        related=(Related(message="first here", span=first),),
    )
