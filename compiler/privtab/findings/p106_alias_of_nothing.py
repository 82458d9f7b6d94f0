"""P106: an alias of a privilege that does not exist."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed, nearest

KIND = FindingKind("P106", "alias-of-nothing", Severity.ERROR)


def finding(span: Span, alias: str, privilege: str, known: Collection[str]) -> Diagnostic:
    """Build the finding for `alias`, whose `privilege` does not exist."""
    return KIND.at(
        span,
        f"`{alias}` is an alias of `{privilege}`, which is not a privilege",
        did_you_mean(privilege, known) or f"the privileges are {listed(known)}",
        fix=nearest(privilege, known),
    )
