"""Findings in scenario files: their codes, and a builder."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODES = {
    "T001": "unknown-key",
    "T002": "missing-key",
    "T003": "wrong-type",
    "T004": "wrong-value",
    "T005": "duplicate-key",
    "T006": "keys-that-clash",
    "T101": "policy-not-found",
    "T102": "unusable-state",
    "T103": "request-the-policy-does-not-know",
    "T104": "malformed-atom",
    "T105": "unknown-name",
    "T106": "unknown-parameter",
    "T107": "cycle-of-names",
    "T201": "set-that-is-not-minimal",
    "T202": "cell-said-twice",
    "T203": "nothing-asked",
    "T204": "row-that-is-not-there",
    "T205": "too-many-ways",
}


def finding(code: str, span: Span, message: str, help_: str | None = None) -> Diagnostic:
    """Build a finding. All are errors, since a case that is never decided proves nothing."""
    return Diagnostic(code=code, name=CODES[code], severity=Severity.ERROR, message=message, span=span, help=help_)
