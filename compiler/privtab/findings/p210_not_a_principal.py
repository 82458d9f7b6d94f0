"""P210: `self`, `holds` or revoked rows of an entity that is not such a principal."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P210", "not-a-principal", Severity.ERROR)


def finding(span: Span, word: str, type_: str, kind: str) -> Diagnostic:
    """Build the finding for `word`, which requires a principal of `kind`; `type_` is not one."""
    return KIND.at(
        span,
        f"`{word}` requires a {kind}, but `{type_}` is not one",
        f"if it is one, declare it: `types: {{{type_}: {{principal: {kind}}}}}`",
    )


def without_rows(span: Span, table: str, type_: str) -> Diagnostic:
    """Build the finding for `table`, whose rows are about principals; entities of `type_` are not."""
    return KIND.at(
        span,
        f"`{table}` are rows about a user, group or role, and `{type_}` is none of them",
        f"declare it: `types: {{{type_}: {{principal: user}}}}`, or revoke `owner` or `member`",
    )
