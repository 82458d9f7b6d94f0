"""P304: a privilege that also suffices on an ancestor, so that an allow there bypasses a denial below."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P304", "bypassed-deny", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """`P (catalog, schema)` under `inheritance: down` and `deny: overrides`, each name of an ancestor once."""
    from privtab.model.walk import conditions

    if policy.semantics.inheritance != "down" or policy.semantics.deny != "overrides":
        return
    reported: set[tuple[int, int]] = set()
    for row in policy.rows.values():
        for condition in conditions(row):
            for upper, lower, privilege in _pairs(policy, condition):
                key = (id(upper.spot.cell), upper.spot.start)
                if key not in reported:
                    reported.add(key)
                    yield _finding(upper, lower, privilege)


def _pairs(policy: m.Policy, condition: m.Condition) -> Iterator[tuple[m.TargetSlot, m.TargetSlot, str]]:
    """Targets of one `or`, the upper one above the lower one, where the same privilege on either suffices."""
    from privtab.model.nodes import AnyOf, HoldsPrivilege
    from privtab.model.walk import alternatives, flat, terms

    single_terms = [term for term in terms(condition) if isinstance(term, HoldsPrivilege)]
    groups: list[list[HoldsPrivilege]] = [[term] for term in single_terms]
    groups.extend(
        [part for part in flat(any_of, AnyOf) if isinstance(part, HoldsPrivilege) and not part.every]
        for any_of in alternatives(condition)
    )
    for group in groups:
        listed = [(use.members, place) for term in group for use in term.uses for place in term.places]
        for members, place in listed:
            for other_members, other_place in listed:
                same = place.slot == other_place.slot and len(place.types) == len(other_place.types) == 1
                common = [p for p in members if p in other_members]
                above = same and place.types != other_place.types and not (place.below or other_place.below)
                if above and common and policy.hierarchy.within(other_place.types[0], place.types[0]):
                    yield place, other_place, common[0]


def _finding(upper: m.TargetSlot, lower: m.TargetSlot, privilege: str) -> Diagnostic:
    return KIND.at(
        upper.spot.span,
        f"`{privilege}` on the `{upper.types[0]}` bypasses a denial on the `{lower.types[0]}`",
        f"name the `{lower.types[0]}` alone: grants on the `{upper.types[0]}` reach it by inheritance",
    )
