"""Rows that allow more than they seem to: to every caller, on any type, without a flag, or past a denial: P304, P311, P319, P335, P340."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from privtab.base.diagnostics import Severity, Span
from privtab.base.errors import Undecided
from privtab.base.hints import listed_names
from privtab.checks._view import Found, check, view_of
from privtab.ir.formula import own_condition
from privtab.model import nodes as m
from privtab.model.nodes import (
    AnyOf,
    HoldsPrivilege,
    OnPlaces,
    Related,
    alternatives,
    conditions,
    flags,
    flat,
    row_terms,
    terms,
)


# P304: a privilege that also suffices on an ancestor, so that an allow there bypasses a denial below.
@check("P304", Severity.WARNING, once=True)
def bypassed_deny(policy: m.Policy) -> Iterator[Found]:
    """`P (catalog, schema)` where P is inherited, under `deny: overrides`, each name of an ancestor once."""
    if policy.semantics.deny != "overrides":
        return
    for row in policy.rows.values():
        for condition in conditions(row):
            for upper, lower, privilege in _pairs(policy, condition):
                yield Found(
                    upper.spot.span,
                    f"`{privilege}` on the `{upper.types[0]}` bypasses a denial on the `{lower.types[0]}`",
                    f"name the `{lower.types[0]}` alone: grants on the `{upper.types[0]}` reach it by inheritance",
                )


def _pairs(policy: m.Policy, condition: m.Condition) -> Iterator[tuple[m.TargetSlot, m.TargetSlot, str]]:
    """Targets of one `or`, the upper one above the lower one, where the same privilege on either suffices."""
    single_terms = [term for term in terms(condition) if isinstance(term, HoldsPrivilege)]
    groups: list[list[HoldsPrivilege]] = [[term] for term in single_terms]
    groups.extend(
        [part for part in flat(any_of, AnyOf) if isinstance(part, HoldsPrivilege) and not part.every]
        for any_of in alternatives(condition)
    )
    for group in groups:
        listed = [(use.members, place) for term in group for use in term.uses for place in term.places]
        for (members, place), (other_members, other_place) in permutations(listed, 2):
            same = place.slot == other_place.slot and len(place.types) == len(other_place.types) == 1
            above = same and place.types != other_place.types and not (place.below or other_place.below)
            if above and policy.hierarchy.within(other_place.types[0], place.types[0]):
                inherited = [p for p in members if policy.semantics.inherits(policy.privileges[p].inheritance)]
                if common := [p for p in inherited if p in other_members]:
                    yield place, other_place, common[0]


# P311: a condition that every caller meets if the request sets no flag.
@check("P311", Severity.WARNING, once=True)
def open_without_flag(policy: m.Policy) -> Iterator[Found]:
    """`requires` and `each` in which every alternative, or one of them, is only a `when`.

    Flags only add requirements, so a condition that requires nothing without flags is open; if it requires nothing with
    all flags either, it is equivalent to `anyone`. `anyone and (A when f)` states that it is open, and is skipped.
    """
    for row in policy.rows.values():
        for condition in conditions(row):
            if not requires_nothing(condition, flags=False) or requires_nothing(condition, flags=True):
                continue
            first = _first(condition)
            if first is not None:
                yield _open_without_flag_finding(condition, first)


def requires_nothing(condition: m.Condition, *, flags: bool) -> bool:
    """Return whether the condition always holds if the request sets all flags and has all objects, or none. A `can` counts as a requirement."""
    match condition:
        case m.AllOf(parts=parts):
            return all(requires_nothing(part, flags=flags) for part in parts)
        case m.AnyOf(parts=parts):
            return any(requires_nothing(part, flags=flags) for part in parts)
        case m.Required(body=body):
            return not flags or requires_nothing(body, flags=flags)
        case m.LeftOut():
            return not flags
        case _:
            return False


def _first(condition: m.Condition) -> m.Required | m.LeftOut | None:
    """The first `when` that opens the condition; None if `anyone` beside it states that it is meant to be open."""
    match condition:
        case m.Required() | m.LeftOut():
            return condition
        case m.AllOf(parts=parts):
            found = (_first(part) for part in parts if m.AllOf() not in parts)
        case m.AnyOf(parts=parts):
            found = (_first(part) for part in parts if requires_nothing(part, flags=False))
        case _:
            return None
    return next((first for first in found if first is not None), None)


def _open_without_flag_finding(condition: m.Condition, first: m.Required | m.LeftOut) -> Found:
    flags = dict.fromkeys(node.flag for node in m.walk(condition) if isinstance(node, m.Required))
    objects = dict.fromkeys(node.slot for node in m.walk(condition) if isinstance(node, m.LeftOut))
    named = (("flag", tuple(flags)), ("object", tuple(objects)))
    without = [f"the {what}{'s' if len(names) > 1 else ''} {listed_names(names)}" for what, names in named if names]
    word = first.flag if isinstance(first, m.Required) else first.slot
    return Found(
        first.spot.span,
        f"without {' and '.join(without)} this condition holds for every caller",
        f"put it beside what is always required: `A and (B when {word})`",
    )


@check("P319", Severity.WARNING)
def unbounded_any(policy: m.Policy) -> Iterator[Found]:
    """Rows for every type that require at most the gate, and `with` objects of `any` type that fit every type.

    A row of `any` with `for` names its types. Ownership and membership are no restriction: any entity may be owned.
    """
    view = view_of(policy)
    reported: set[Span] = set()
    for row in policy.rows.values():
        if row.decl.span in reported:
            continue
        reported.add(row.decl.span)
        rule = view.rule(row)
        if row.origin != "row" and row.decl.for_types is None and view.implies(rule, rule.gate, own_condition(rule)):
            beyond_gate = " beyond the gate" if row.gate is not None else ""
            yield Found(
                row.decl.span,
                f"`{row.operation}` exists on every type, and nothing is required{beyond_gate}",
                "name the types it is for: `for: [TYPE]`"
                if row.origin == "any"
                else "require something, or give types rows",
            )
        for decl in row.decl.withs:
            if decl.types is None and _allows_every_type(policy, row, decl.name.value):
                yield Found(
                    decl.name.span,
                    f"`{decl.name.value}` may be an entity of any type at all",
                    "name its types, or require what only some can give: a privilege, or `can OPERATION`",
                )


def _allows_every_type(policy: m.Policy, row: m.Row, name: str) -> bool:
    """Return whether the row uses the object, but only in ways that every type allows."""
    placed = [term for term in row_terms(row) if isinstance(term, OnPlaces)]
    terms = [term for term in placed if any(place.slot == name for place in term.places)]
    types = next(slot.named for slot in row.withs if slot.name == name)
    return len(types) == len(policy.entities) and bool(terms) and all(isinstance(t, Related) for t in terms)


@check("P335", Severity.WARNING, once=True)
def open_grant(policy: m.Policy) -> Iterator[Found]:
    """Rows that require at most the gate, and grant or give ownership of an entity that they do not create."""
    view = view_of(policy)
    for row in policy.rows.values():
        gains = [outcome for outcome in row.outcomes if outcome.kind == "grant" or outcome.what == "owner"]
        gains = [outcome for outcome in gains if outcome.kind != "revoke"]
        if row.creates == "surely" or not gains:
            continue
        rule = view.rule(row)
        required = own_condition(rule)
        try:
            # A flag that the gate does not depend on only adds requirements.
            settings = view.settings(rule, rule.gate, types_of=required)
            is_open = any(view.exact.implies(rule.gate, required, *setting) for setting in settings)
        except Undecided:
            view.undecided(row)
            continue
        if is_open:
            yield Found(
                row.decl.span,
                f"every caller gets `{gains[0].what}` of a `{gains[0].type}` by `{row.operation}`",
                "require something that not every caller has",
            )


# P340: a row that requires less if the caller forgets a flag.
@check("P340", Severity.NOTE, once=True)
def forgettable_flag(policy: m.Policy) -> Iterator[Found]:
    """The first `when` of each flag that the row itself uses and that `flags` does not declare; each once.

    A condition that requires nothing without flags is left to P311, or states with `anyone` that it is intended.
    """
    for row in policy.rows.values():
        declared = {flag.name.value for flag in row.decl.flags}
        for condition in conditions(row):
            for when in flags(condition):
                if when.flag in declared:
                    continue
                if requires_nothing(condition, flags=False):
                    break
                declared.add(when.flag)
                yield Found(
                    when.spot.span,
                    f"a request without the flag `{when.flag}` has fewer requirements",
                    f"make every request state it: `flags: {{{when.flag}: required}}`; or `optional`, if that is intended",
                )
