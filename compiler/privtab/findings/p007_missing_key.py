"""P007: a required key is missing."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P007"
NAME = "missing-key"
SEVERITY = Severity.ERROR


def finding(span: Span, key: str, where: str, example: str) -> Diagnostic:
    """Build the finding for `where`, which lacks `key`; `example` shows how it could look."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"missing key `{key}` in {where}",
        span=span,
        help=f"add `{example}`",
    )
