"""P335: a row that gives every caller something on an existing entity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view
from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.errors import Undecided

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P335", "open-grant", Severity.WARNING)
_CREATING = frozenset(
    ["create", "add", "register", "make", "new", "deploy", "submit", "upload", "import", "copy", "clone", "run", "sign"]
)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows that require at most the gate, and grant or give ownership of an entity that they do not create."""
    from privtab.ir.formula import conjunction

    seen = view(policy)
    told: set[Span] = set()
    for row in policy.rows.values():
        given = [outcome for outcome in row.outcomes if outcome.kind == "grant" or outcome.what == "owner"]
        given = [outcome for outcome in given if outcome.kind != "revoke"]
        if _creates(row) or not given or row.decl.span in told:
            continue
        rule = seen.rule(row)
        asks = rule.requires if rule.each is None else conjunction(rule.requires, rule.each)
        try:
            # A flag that the gate does not depend on only adds requirements.
            settings = seen.settings(rule, rule.gate, types_of=asks)
            is_open = any(seen.exact.implies(rule.gate, asks, *setting) for setting in settings)
        except Undecided:
            seen.undecided(row)
            continue
        if is_open:
            told.add(row.decl.span)
            yield KIND.at(
                row.decl.span,
                f"every caller gets `{given[0].what}` of a `{given[0].type}` by `{row.operation}`",
                "require something that not every caller has",
            )


def _creates(row: m.Row) -> bool:
    """Whether the row or its name states that it creates its entity; effects alone could also be a claim."""
    if row.decl.creates is not None:
        return row.decl.creates.value
    return row.creates and row.operation.partition("_")[0] in _CREATING
