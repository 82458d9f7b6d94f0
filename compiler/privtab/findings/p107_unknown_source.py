"""P107: a row from a document that the file does not declare."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed

KIND = FindingKind("P107", "unknown-source", Severity.ERROR)


def finding(span: Span, name: str | None, known: Collection[str]) -> Diagnostic:
    """Build the finding for a row with the source `name`; None if it is ambiguous which source is meant."""
    help_ = "add `sources: {NAME: {document: FILE}}`"
    if known and name is not None:
        help_ = did_you_mean(name, known) or f"the sources are {listed(known)}"
    elif known:
        help_ = f"write `name:line`; the sources are {listed(known)}"
    return KIND.at(
        span, f"unknown source `{name}`" if name else "the row does not say which source its line is in", help_
    )
