"""P210: `self` or `holds` of something that is no such principal."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, Severity, Span

CODE = "P210"
NAME = "not-a-principal"
SEVERITY = Severity.ERROR


def finding(span: Span, word: str, type_: str, kind: str) -> Diagnostic:
    """`word` asks for a principal of `kind`, which `type_` is not."""
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"`{word}` asks for a {kind}, but `{type_}` is none",
        span=span,
        help=f"say so: `types: {{{type_}: {{principal: {kind}}}}}`, if it is one",
    )
