"""P319: a row or an object of any type that nothing restricts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view
from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.model import nodes as m

KIND = FindingKind("P319", "unbounded-any", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows for every type that require at most the gate, and `with` objects of `any` type that fit every type.

    A row of `any` with `for` names its types. Ownership and membership are no restriction: any entity may be owned.
    """
    seen = view(policy)
    told: set[Span] = set()
    for row in policy.rows.values():
        if row.decl.span in told:
            continue
        told.add(row.decl.span)
        if row.origin != "row" and row.decl.for_types is None and _asks_nothing(seen, row):
            beside = " beyond the gate" if row.gate is not None else ""
            yield _finding(
                row.decl.span,
                f"`{row.operation}` exists on every type, and nothing is required{beside}",
                "name the types it is for: `for: [TYPE]`"
                if row.origin == "any"
                else "require something, or give types rows",
            )
        for decl in row.decl.withs:
            if decl.types is None and _fits_all(policy, row, decl.name.value):
                yield _finding(
                    decl.name.span,
                    f"`{decl.name.value}` may be an entity of any type at all",
                    "name its types, or require what only some can give: a privilege, or `can OPERATION`",
                )


def _asks_nothing(seen: View, row: m.Row) -> bool:
    from privtab.ir.formula import conjunction

    rule = seen.rule(row)
    asks = rule.requires if rule.each is None else conjunction(rule.requires, rule.each)
    return seen.implies(rule, rule.gate, asks)


def _fits_all(policy: m.Policy, row: m.Row, name: str) -> bool:
    """Whether the row uses the object, but only in ways that every type allows."""
    from privtab.model.nodes import CanDo, HoldsPrivilege, Related
    from privtab.model.walk import row_terms

    about = [
        term for term in row_terms(row) if isinstance(term, HoldsPrivilege | Related | CanDo) and _names(term, name)
    ]
    types = next(slot.types for slot in row.withs if slot.name == name)
    return len(types) == len(policy.entities) and bool(about) and all(isinstance(t, Related) for t in about)


def _names(term: m.HoldsPrivilege | m.Related | m.CanDo, name: str) -> bool:
    return any(place.slot == name for place in term.places)


def _finding(span: Span, message: str, advice: str) -> Diagnostic:
    return KIND.at(span, message, advice)
