"""P108: `flags` of a row names a flag that none of its conditions uses."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import listed, nearest

KIND = FindingKind("P108", "unknown-flag", Severity.ERROR)


def finding(span: Span, operation: str, flag: str, used: Collection[str]) -> Diagnostic:
    """Build the finding for a flag that the row and what it reaches by `can` never use; `used`: the flags they use."""
    near = nearest(flag, used)
    known = f"the row uses {listed(sorted(used))}" if used else "write `CONDITION when FLAG`, or drop it"
    return KIND.at(
        span,
        f"no condition of the row `{operation}` uses the flag `{flag}`",
        f"did you mean `{near}`?" if near else known,
    )
