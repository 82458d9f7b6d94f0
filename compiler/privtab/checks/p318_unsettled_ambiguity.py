"""P318: an ambiguous cell without other readings, or without a reason for the one that was chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P318", "unsettled-ambiguity", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows with `ambiguous` but without readings or without `why`; each once."""
    reported: set[int] = set()
    for row in policy.rows.values():
        ambiguous = row.decl.ambiguous
        if ambiguous is None or id(ambiguous) in reported:
            continue
        reported.add(id(ambiguous))
        if not ambiguous.readings:
            message = f"the row `{row.operation}` is ambiguous, but records no other reading"
            advice = "write the other readings under `readings`, or drop `ambiguous`"
        elif not (ambiguous.why or "").strip():
            message = f"the row `{row.operation}` does not say why its reading was chosen"
            advice = "add `why: …`"
        else:
            continue
        yield KIND.at(row.decl.span, message, advice)
