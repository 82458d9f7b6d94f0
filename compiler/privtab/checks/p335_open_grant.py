"""P335: a row that gives every caller something on an existing entity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
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

    view = view_of(policy)
    reported: set[Span] = set()
    for row in policy.rows.values():
        gains = [outcome for outcome in row.outcomes if outcome.kind == "grant" or outcome.what == "owner"]
        gains = [outcome for outcome in gains if outcome.kind != "revoke"]
        if _creates(row) or not gains or row.decl.span in reported:
            continue
        rule = view.rule(row)
        required = rule.requires if rule.each is None else conjunction(rule.requires, rule.each)
        try:
            # A flag that the gate does not depend on only adds requirements.
            settings = view.settings(rule, rule.gate, types_of=required)
            is_open = any(view.exact.implies(rule.gate, required, *setting) for setting in settings)
        except Undecided:
            view.undecided(row)
            continue
        if is_open:
            reported.add(row.decl.span)
            yield KIND.at(
                row.decl.span,
                f"every caller gets `{gains[0].what}` of a `{gains[0].type}` by `{row.operation}`",
                "require something that not every caller has",
            )


def _creates(row: m.Row) -> bool:
    """Whether the row or its name states that it creates its entity; effects alone could also be a claim."""
    if row.decl.creates is not None:
        return row.decl.creates.value
    return row.creates and row.operation.partition("_")[0] in _CREATING
