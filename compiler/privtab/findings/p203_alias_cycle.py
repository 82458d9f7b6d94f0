"""P203: aliases that form a cycle."""

from __future__ import annotations

from collections.abc import Sequence

from privtab.diagnostics import Diagnostic, FindingKind, Located, Related, Severity

KIND = FindingKind("P203", "alias-cycle", Severity.ERROR)


def finding(targets: Sequence[Located[str]], names: Sequence[str]) -> Diagnostic:
    """Build the finding for a cycle of `names`, each an alias of the next; `targets` are their `alias_of`."""
    first, *others = targets
    cycle = " → ".join(f"`{name}`" for name in (*names, names[0]))
    return KIND.at(
        first.span,
        f"aliases form a cycle: {cycle}",
        "one of them must be a privilege of its own",
        related=tuple(Related(message="and here", span=other.span) for other in others),
    )
