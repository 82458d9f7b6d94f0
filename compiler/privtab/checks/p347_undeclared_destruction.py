"""P347: a row that revokes something and is not declared destructive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P347", "undeclared-destruction", Severity.NOTE)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Rows with `revokes` and without `destructive: true`, each once."""
    reported: set[Span] = set()
    for row in policy.rows.values():
        revoked = next((outcome.what for outcome in row.outcomes if outcome.kind == "revoke"), None)
        if revoked is not None and not row.decl.destructive and row.decl.span not in reported:
            reported.add(row.decl.span)
            yield KIND.at(
                row.decl.span,
                f"`{row.operation}` revokes `{revoked}`, and certifications do not count it as destructive",
                "add `destructive: true`",
            )
