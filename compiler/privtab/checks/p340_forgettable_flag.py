"""P340: a row that requires less if the caller forgets a flag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P340", "forgettable-flag", Severity.NOTE)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """The first `when` of each flag that the row itself uses and that `flags` does not declare; each once.

    A condition that requires nothing without flags is left to P311, or states with `anyone` that it is intended.
    """
    from privtab.checks.p311_open_without_flag import requires_nothing
    from privtab.model.walk import conditions, flags

    reported: set[tuple[int, int]] = set()
    for row in policy.rows.values():
        declared = {flag.name.value for flag in row.decl.flags}
        for condition in conditions(row):
            if requires_nothing(condition, flags=False):
                continue
            for when in flags(condition):
                key = (id(when.spot.cell), when.spot.start)
                if when.flag in declared:
                    continue
                declared.add(when.flag)
                if key in reported:
                    continue
                reported.add(key)
                yield KIND.at(
                    when.spot.span,
                    f"a request without the flag `{when.flag}` has fewer requirements",
                    f"make every request state it: `flags: {{{when.flag}: required}}`; or `optional`, if that is intended",
                )
