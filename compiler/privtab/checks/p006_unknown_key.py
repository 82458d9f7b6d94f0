"""P006: a key that means nothing there."""

from __future__ import annotations

from collections.abc import Sequence

from privtab.checks._hints import did_you_mean, listed, nearest
from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P006"
NAME = "unknown-key"
SEVERITY = Severity.ERROR


def finding(span: Span, key: str, where: str, known: Sequence[str]) -> Diagnostic:
    """`key` is none of the keys of `where`."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"unknown key `{key}` in {where}",
        span=span,
        help=did_you_mean(key, known) or f"the keys of {where} are {listed(known)}",
        fix=nearest(key, known),
    )
