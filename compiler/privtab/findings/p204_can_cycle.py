"""P204: rows that ask for each other through `can`."""

from __future__ import annotations

from collections.abc import Sequence

from privtab.diagnostics import Diagnostic, Related, Severity, Span

CODE = "P204"
NAME = "can-cycle"
SEVERITY = Severity.ERROR


def finding(spans: Sequence[Span], rows: Sequence[str]) -> Diagnostic:
    """Each of `rows` (`entity/operation`) asks for the next by a `can` at its span, the last for the first."""
    first, *others = spans
    circle = " → ".join(f"`{row}`" for row in (*rows, rows[0]))
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"`can` goes round in a circle: {circle}",
        span=first,
        help="one of these rows must say itself what it requires",
        related=tuple(Related(message="and here", span=other) for other in others),
    )
