"""P305: a privilege that rows require and no row ever grants, in a file whose rows grant privileges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._parts import with_implied
from privtab.diagnostics import Diagnostic, FindingKind, Severity
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.model.nodes import CellPart, Policy

KIND = FindingKind("P305", "never-granted", Severity.WARNING)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """One finding for each type whose privileges come from no row's effect, no role and no ownership.

    Root types are skipped, since their privileges are granted from outside. Privileges that only a core row grants are
    reported too: nothing in the tables says that such entities are created on their own.
    """
    by_rows = _granted(policy, core=False)
    by_any_row = _granted(policy, core=True)
    if not any(o.kind == "grant" for row in policy.rows.values() for o in row.outcomes):
        return
    lacking: dict[tuple[str, bool], list[str]] = {}
    first: dict[tuple[str, bool], CellPart] = {}
    for (privilege, type_), spot in _required(policy).items():
        above = policy.hierarchy.chain(type_) if policy.semantics.inheritance == "down" else (type_,)
        if policy.entities[type_].parent is None or any((privilege, t) in by_rows for t in above):
            continue
        key = (type_, any((privilege, t) in by_any_row for t in above))
        lacking.setdefault(key, []).append(privilege)
        first.setdefault(key, spot)
    for (type_, core), privileges in lacking.items():
        addition = "; only a core row does" if core else ""
        yield KIND.at(
            first[type_, core].span,
            f"no row ever grants {listed(privileges)} on the type `{type_}`{addition}",
            f"only an administrator can give it, unless a row that creates the `{type_}` grants it",
        )


def _required(policy: Policy) -> dict[tuple[str, str], CellPart]:
    """The privileges that conditions require, with the first place of each."""
    from privtab.model.nodes import HoldsPrivilege
    from privtab.model.walk import row_terms

    first: dict[tuple[str, str], CellPart] = {}
    for row in policy.rows.values():
        for term in row_terms(row):
            if not isinstance(term, HoldsPrivilege):
                continue
            for use in term.uses:
                for place in term.places:
                    if len(place.types) == 1:
                        for member in use.members:
                            first.setdefault((member, place.types[0]), use.spot)
    return first


def _granted(policy: Policy, *, core: bool) -> set[tuple[str, str]]:
    granted = {(p, type_) for role in policy.roles.values() for type_, privileges in role.grants for p in privileges}
    for row in policy.rows.values():
        if row.origin == "core" and not core:
            continue
        for outcome in row.outcomes:
            if outcome.kind == "grant" and outcome.use is not None:
                granted.update((p, outcome.type) for p in with_implied(policy, outcome.use.members, outcome.type))
            elif outcome.what == "owner" and policy.semantics.owner is not None:
                granted.update((p, outcome.type) for p in policy.semantics.owner.holds)
    return granted
