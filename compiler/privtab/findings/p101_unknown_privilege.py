"""P101: a privilege that the file does not declare."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed, nearest, not_a_condition

KIND = FindingKind("P101", "unknown-privilege", Severity.ERROR)


def finding(span: Span, name: str, known: Collection[str]) -> Diagnostic:
    """Build the finding for `name`, which is neither a privilege nor an alias nor a set."""
    return KIND.at(
        span,
        f"unknown privilege `{name}`",
        not_a_condition(name) or did_you_mean(name, known) or f"the privileges and sets are {listed(known)}"
        if known
        else "the file lists no privileges: add `privileges: […]`",
        fix=nearest(name, known),
    )
