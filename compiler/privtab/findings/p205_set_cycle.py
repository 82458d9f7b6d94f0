"""P205: a set that contains itself."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P205", "set-cycle", Severity.ERROR)


def finding(span: Span, name: str, member: str) -> Diagnostic:
    """Build the finding for the set `name`, whose member `member` contains `name`."""
    return KIND.at(
        span,
        f"the set `{name}` contains itself"
        if name == member
        else f"the sets `{member}` and `{name}` contain each other",
        "sets must eventually resolve to privileges",
    )
