"""P301: a deprecated privilege in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.names import quoted

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P301", "deprecated-privilege", Severity.WARNING)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """Uses in conditions, effects, sets, `implies` and default grants."""
    deprecated = {n: a.deprecated for n, a in policy.aliases.items() if a.deprecated is not None}
    deprecated |= {n: p.deprecated for n, p in policy.privileges.items() if p.deprecated is not None}
    if not deprecated:
        return
    for name, span in _uses(policy):
        if name in deprecated:
            yield _finding(span, name, deprecated[name], policy.aliases[name].of if name in policy.aliases else None)


def _uses(policy: Policy) -> Iterator[tuple[str, Span]]:
    from privtab.model.nodes import HoldsPrivilege
    from privtab.model.walk import row_terms

    reported: set[tuple[int, int, int]] = set()
    for row in policy.rows.values():
        uses = [use for term in row_terms(row) if isinstance(term, HoldsPrivilege) for use in term.uses]
        uses += [outcome.use for outcome in row.outcomes if outcome.use is not None]
        for use in uses:
            key = (id(use.spot.cell), use.spot.start, use.spot.end)
            if key not in reported:
                reported.add(key)
                yield use.written, use.spot.span
    for set_ in policy.tables.sets:
        yield from ((word.value, word.span) for word in set_.members)
    for privilege in policy.tables.privileges:
        yield from ((word.value, word.span) for word in privilege.implies)
    for role in policy.tables.roles:
        yield from ((word.value, word.span) for _, words in role.grants for word in words)


def _finding(span: Span, name: str, advice: str, privilege: str | None) -> Diagnostic:
    return KIND.at(
        span,
        f"`{name}` is deprecated",
        f"write `{quoted(privilege)}`, which means the same" if privilege is not None else advice,
    )
