"""P007: a required key is missing."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P007", "missing-key", Severity.ERROR)


def finding(span: Span, key: str, where: str, example: str) -> Diagnostic:
    """Build the finding for `where`, which lacks `key`; `example` shows how it could look."""
    return KIND.at(span, f"missing key `{key}` in {where}", f"add `{example}`")
