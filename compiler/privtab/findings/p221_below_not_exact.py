"""P221: `or below` where it means nothing or cannot be decided exactly."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.names import quoted

KIND = FindingKind("P221", "below-not-exact", Severity.ERROR)


def not_of(span: Span, what: str, target: str) -> Diagnostic:
    """Build the finding for a target of `what`, which is neither privileges nor ownership."""
    return KIND.at(
        span, f"{what} has no `or below`", f"name privileges, as in `READ ({target} or below)`, or the owner"
    )


def by_default(span: Span, privilege: str, role: str) -> Diagnostic:
    """Build the finding for a privilege that a declared role gives by default on every entity of a type."""
    message = f"the role `{role}` gives `{privilege}` by default, also on entities that no row names"
    return KIND.at(span, message, "drop the default grant, and grant the privilege to the role in the state")


def nothing_below(span: Span, privilege: str, type_: str) -> Diagnostic:
    """Build the finding for a privilege that nothing below a type can hold."""
    message = f"nothing below a `{type_}` can hold `{privilege}`"
    return KIND.at(span, message, f"write `{quoted(privilege)} ({type_})`")
