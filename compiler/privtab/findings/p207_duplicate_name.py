"""P207: two declarations with one name."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity, Span

KIND = FindingKind("P207", "duplicate-name", Severity.ERROR)


def finding(span: Span, what: str, name: str, first: Span) -> Diagnostic:
    """Build the finding for `name` at `span`, which is already declared at `first`."""
    return KIND.at(
        span,
        f"{what} `{name}` is declared twice",
        f"line {first.line} declares `{name}`: every name is unique in a file",
        related=(Related(message="first here", span=first),),
    )
