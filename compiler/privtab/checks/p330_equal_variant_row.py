"""P330: a row of a variant that means the same as the row that it replaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._compare import compare
from privtab.checks._view import view
from privtab.diagnostics import Diagnostic, Related, Severity, Span

if TYPE_CHECKING:
    from privtab.model import nodes as m

CODE = "P330"
NAME = "equal-variant-row"
SEVERITY = Severity.NOTE


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows of variants that decide what the file decides anyway, with the same effects: compared exactly."""
    seen = view(policy)
    told: set[Span] = set()
    for variant, row in seen.others.variants():
        known = policy.rows[row.entity, row.operation]
        if row.decl.span in told or not compare(seen, seen.lowering.rule(row), seen.rule(known)).equal:
            continue
        told.add(row.decl.span)
        yield Diagnostic(
            code=CODE,
            name=NAME,
            severity=SEVERITY,
            message=f"the variant `{variant}` says of `{row.entity}/{row.operation}` what the file says anyway",
            span=row.decl.span,
            help="drop it, or write what the variant changes",
            related=(Related(message="the row of the file", span=known.decl.span),),
        )
