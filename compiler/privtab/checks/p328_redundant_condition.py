"""P328: a condition that decides nothing, because the rest of the row requires as much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P328", "redundant-condition", Severity.WARNING)


_WHY = {
    "always": "it holds for every caller",
    "gate": "the gate requires it",
    "others": "the conditions next to it require as much",
    "row": "the row decides the same without it",
}


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Parts of an `and` or of `A + B (…)`, at any depth, that decide nothing: compared exactly.

    `anyone` beside other parts is skipped, since it states that a row is open unless a flag is set.
    """
    for part in view_of(policy).superfluous:
        if part.kind == "condition":
            yield KIND.at(
                part.spot.span,
                f"this condition adds nothing: {_WHY[part.why]}",
                "drop it, or check what it was meant to say",
            )
