"""P341: findings that were not decided for a row because its conditions exceed the budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P341", "undecided", Severity.WARNING)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Rows for which other findings were given up; each has a budget far above what rows of usual tables need.

    Runs after all other checks.
    """
    from privtab.ir.circuits import CONFLICTS

    for pair, codes in view_of(policy).undecided_codes.items():
        row = policy.rows[pair]
        yield KIND.at(
            row.decl.span,
            f"not decided within the budget: {listed(sorted(codes))} for `{row.entity}/{row.operation}`",
            f"write the condition in fewer alternatives or flags; a finding may take {CONFLICTS:,} conflicts of the solver",
        )
