"""P108: `flags` of a row names a flag that none of its conditions uses."""

from __future__ import annotations

from collections.abc import Collection

from privtab.diagnostics import Diagnostic, Severity, Span
from privtab.hints import listed, nearest

CODE = "P108"
NAME = "unknown-flag"
SEVERITY = Severity.ERROR


def finding(span: Span, operation: str, flag: str, read: Collection[str]) -> Diagnostic:
    """Build the finding for a flag that the row and what it reaches by `can` never use; `read`: the flags they use."""
    near = nearest(flag, read)
    known = f"the row uses {listed(sorted(read))}" if read else "write `CONDITION when FLAG`, or drop it"
    return Diagnostic(
        code=CODE,
        name=NAME,
        severity=SEVERITY,
        message=f"no condition of the row `{operation}` uses the flag `{flag}`",
        span=span,
        help=f"did you mean `{near}`?" if near else known,
    )
