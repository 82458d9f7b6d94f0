"""P331: a condition that always holds although it seems to require something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import in_every_type, view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P331", "always-true", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """`requires` and `each` that the gate implies for all flags, unless they are just `anyone`.

    Rows that literally repeat the gate are skipped.
    """
    yield from in_every_type(policy, _found(policy))


def _found(policy: m.Policy) -> Iterator[tuple[m.Row, Diagnostic]]:
    from privtab.ir.nodes import ALWAYS

    view = view_of(policy)
    for row in policy.rows.values():
        rule = view.rule(row)
        for key, formula in (("requires", rule.requires), ("each", rule.each)):
            if formula in (None, ALWAYS, rule.gate):
                continue
            if view.implies(rule, rule.gate, formula, part=key):
                callers = "every caller that passes the gate" if rule.gate != ALWAYS else "every caller"
                yield (
                    row,
                    KIND.at(
                        row.decl.span,
                        f"`{key}` of `{row.operation}` holds for {callers}",
                        f"write `{key}: anyone` if that is intended; else check its alternatives",
                    ),
                )
