"""P009: a value that is not one of those allowed."""

from __future__ import annotations

from collections.abc import Sequence

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed, nearest

KIND = FindingKind("P009", "wrong-value", Severity.ERROR)


def finding(span: Span, what: str, value: str, known: Sequence[str]) -> Diagnostic:
    """Build the finding for `value`, which is not a value of `what`."""
    return KIND.at(
        span,
        f"`{value}` is not a value of {what}",
        did_you_mean(value, known) or f"it is {listed(known, last='or')}",
        fix=nearest(value, known),
    )


def intended(span: Span, what: str, value: str, instead: str) -> Diagnostic:
    """Build the finding for a wrong `value` that clearly stands for `instead`."""
    message = f"`{value}` is not a value of {what}"
    return KIND.at(span, message, f"write `{instead}`", fix=instead)


def other(span: Span, message: str, help_: str | None = None) -> Diagnostic:
    """Build the finding for a value that is wrong in some other way."""
    return KIND.at(span, message, help_)
