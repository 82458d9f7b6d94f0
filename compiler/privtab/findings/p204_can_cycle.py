"""P204: rows that refer to each other through `can`."""

from __future__ import annotations

from collections.abc import Sequence

from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity, Span

KIND = FindingKind("P204", "can-cycle", Severity.ERROR)


def finding(spans: Sequence[Span], rows: Sequence[str]) -> Diagnostic:
    """Build the finding for a cycle of `rows` (`entity/operation`), each of which refers to the next at its span."""
    first, *others = spans
    cycle = " → ".join(f"`{row}`" for row in (*rows, rows[0]))
    return KIND.at(
        first,
        f"`can` forms a cycle: {cycle}",
        "one of these rows must state its own requirements",
        related=tuple(Related(message="and here", span=other) for other in others),
    )
