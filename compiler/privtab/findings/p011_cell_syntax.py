"""P011: a cell that does not parse."""

from __future__ import annotations

from collections.abc import Sequence

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P011", "cell-syntax", Severity.ERROR)


def finding(span: Span, message: str, expected: Sequence[str], advice: str | None = None) -> Diagnostic:
    """Build the finding; `message` says what is at `span`, `expected` in plain words what could be there."""
    alternatives = " or ".join(filter(None, (", ".join(expected[:-1]), *expected[-1:])))
    parts = [f"expected {alternatives}" if expected else None, advice]
    return KIND.at(span, message, "; ".join(p for p in parts if p) or None)
