"""P206: a privilege required on a type that it cannot be granted on."""

from __future__ import annotations

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import listed

KIND = FindingKind("P206", "privilege-cannot-bind", Severity.ERROR)


def finding(
    span: Span, written: str, wrong: tuple[str, ...], types: tuple[str, ...], on: tuple[str, ...]
) -> Diagnostic:
    """Build the finding for `written`, which stands for `wrong` privileges.

    None of them can be granted on any of the `types`; the first can be granted `on` others.
    """
    subject = (
        f"`{written}`"
        if wrong == (written,) or (len(wrong) == 1 and wrong[0] == written)
        else f"{listed(wrong)} of `{written}`"
    )
    return KIND.at(
        span,
        f"{subject} cannot be granted on {listed(types, last='or')}",
        f"`{wrong[0]}` can be granted on {listed(on)}" if on else f"`{wrong[0]}` can be granted nowhere",
    )
