"""P319: a row or an object of any type that nothing restricts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.model import nodes as m

KIND = FindingKind("P319", "unbounded-any", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows for every type that require at most the gate, and `with` objects of `any` type that fit every type.

    A row of `any` with `for` names its types. Ownership and membership are no restriction: any entity may be owned.
    """
    view = view_of(policy)
    reported: set[Span] = set()
    for row in policy.rows.values():
        if row.decl.span in reported:
            continue
        reported.add(row.decl.span)
        if row.origin != "row" and row.decl.for_types is None and _requires_nothing(view, row):
            beyond_gate = " beyond the gate" if row.gate is not None else ""
            yield _finding(
                row.decl.span,
                f"`{row.operation}` exists on every type, and nothing is required{beyond_gate}",
                "name the types it is for: `for: [TYPE]`"
                if row.origin == "any"
                else "require something, or give types rows",
            )
        for decl in row.decl.withs:
            if decl.types is None and _allows_every_type(policy, row, decl.name.value):
                yield _finding(
                    decl.name.span,
                    f"`{decl.name.value}` may be an entity of any type at all",
                    "name its types, or require what only some can give: a privilege, or `can OPERATION`",
                )


def _requires_nothing(view: View, row: m.Row) -> bool:
    from privtab.ir.formula import conjunction

    rule = view.rule(row)
    required = rule.requires if rule.each is None else conjunction(rule.requires, rule.each)
    return view.implies(rule, rule.gate, required)


def _allows_every_type(policy: m.Policy, row: m.Row, name: str) -> bool:
    """Whether the row uses the object, but only in ways that every type allows."""
    from privtab.model.nodes import CanDo, HoldsPrivilege, Related
    from privtab.model.walk import row_terms

    terms = [
        term for term in row_terms(row) if isinstance(term, HoldsPrivilege | Related | CanDo) and _refers_to(term, name)
    ]
    types = next(slot.types for slot in row.withs if slot.name == name)
    return len(types) == len(policy.entities) and bool(terms) and all(isinstance(t, Related) for t in terms)


def _refers_to(term: m.HoldsPrivilege | m.Related | m.CanDo, name: str) -> bool:
    return any(place.slot == name for place in term.places)


def _finding(span: Span, message: str, advice: str) -> Diagnostic:
    return KIND.at(span, message, advice)
