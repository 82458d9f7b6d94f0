"""P310: an alternative that adds nothing, because the rest of the row is enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.checks._superfluous import Superfluous
    from privtab.model import nodes as m

KIND = FindingKind("P310", "shadowed-alternative", Severity.WARNING)
_WHY = {
    "same": "is never needed: another alternative means the same",
    "less": "is never needed: another alternative requires less",
    "others": "is never needed: the others are enough wherever it is",
}


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Parts of an `or`, at any depth, that decide nothing: compared exactly, including through `can`.

    This includes the privileges and objects of one term: with inheritance, `READ (shop, shelf)` requires no more than
    `READ (shelf)`. It excludes conditions that always hold, and a set beside its members in one term.
    """
    for part in view_of(policy).superfluous:
        if part.kind != "condition":
            yield KIND.at(
                part.spot.span, f"this {part.kind} {_why(part)}", "drop it, or check what it was meant to say"
            )


def _why(part: Superfluous) -> str:
    if part.why == "twice":
        return "occurs twice"
    if part.why == "row":
        return "is never needed: the row decides the same without it"
    if part.kind == "object":
        return "is never needed: what is held here is held on the other too"
    return _WHY[part.why]
