"""P316: a creator who cannot read what they created."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from privtab.checks._parts import with_implied
from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity
from privtab.errors import Undecided
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.ir.canonical import AtomSet
    from privtab.ir.nodes import Atom, Effect, Formula, Program, Rule
    from privtab.model import nodes as m

KIND = FindingKind("P316", "creator-cannot-read", Severity.WARNING)
_READING = [
    "get",
    "read",
    "load",
    "view",
    "show",
    "see",
    "describe",
    "open",
    "list",
    "search",
    "find",
    "fetch",
    "browse",
    "download",
    "look",
    "inspect",
]
"""First words of the names of operations that read, most characteristic first."""


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Creating rows that do not allow the caller any reading operation afterwards, given the condition and the effects.

    The created type is that of the row, or its child type if an effect names it. An operation reads if its first word
    says so and it has no effects; types without such operations are skipped.
    """
    view = view_of(policy)
    readings = _readings(policy)
    by_shape: dict[int, bool] = {}
    groups: dict[str, list[tuple[m.Row, str, str]]] = {}
    for row in policy.rows.values():
        for type_ in _created_types(policy, row):
            reading_rows = readings.get(type_, [])
            try:
                if reading_rows and not _may_read(
                    view, view.rule(row), type_, [view.rule(r) for r in reading_rows], by_shape
                ):
                    groups.setdefault(_given_text(row, type_), []).append((row, type_, reading_rows[0].operation))
            except Undecided:
                view.undecided(row)
    for given_text, cases in groups.items():
        row, type_, operation = cases[0]
        others = [other for _, other, _ in cases[1:]]
        yield KIND.at(
            row.decl.span,
            f"the creator of a `{type_}` cannot read it: `{row.operation}` gives {given_text}, which is not enough for `{operation}`",
            f"grant what `{operation}` requires" + (f"; the same applies to {listed(others)}" if others else ""),
        )


def _created_types(policy: m.Policy, row: m.Row) -> Iterator[str]:
    """The types that the row creates and on which its effects give something."""
    given_types = dict.fromkeys(o.type for o in row.outcomes if o.kind != "revoke" and o.slot == "")
    for type_ in given_types:
        inside = policy.entities[type_].parent == row.entity and not policy.entities[type_].single
        if inside or (type_ == row.entity and (row.creates or row.operation == "create")):
            yield type_


def _readings(policy: m.Policy) -> dict[str, list[m.Row]]:
    """The reading operations of each type, most characteristic first."""
    found: dict[str, list[m.Row]] = {}
    for (type_, operation), row in policy.rows.items():
        if not row.outcomes and not row.creates and not row.withs and _word(operation) in _READING:
            found.setdefault(type_, []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: (_READING.index(_word(row.operation)), len(row.operation)))
    return found


def _word(operation: str) -> str:
    return operation.partition("_")[0]


def _given_text(row: m.Row, type_: str) -> str:
    return listed(dict.fromkeys(o.what for o in row.outcomes if o.kind != "revoke" and o.type == type_))


def _may_read(view: View, rule: Rule, type_: str, reading_rules: list[Rule], by_shape: dict[int, bool]) -> bool:
    """As `_allows_reading`; answered once for all rules of the same shape."""
    from privtab.ir.formula import call_condition, item_condition
    from privtab.ir.nodes import And

    granted = And(
        parts=tuple(atom for effect in rule.effects if effect.kind != "revoke" for atom in _atoms(view, effect))
    )
    conditions = [call_condition(rule), granted, *map(item_condition, reading_rules)]
    slots = {slot.name: slot.types for slot in rule.withs} | {"": (type_,)}
    key = view.shapes.of(conditions, slots).number
    if key not in by_shape:
        by_shape[key] = _allows_reading(view, rule, type_, reading_rules)
    return by_shape[key]


def _allows_reading(view: View, rule: Rule, type_: str, reading_rules: list[Rule]) -> bool:
    """Whether each minimal set for creation, together with the effects, suffices for some reading operation.

    Flags only add requirements, so it is enough to check the sets without flags. Where a type nests, this is asked for paths of each
    number of levels that matters, of which each level is a type of its own.
    """
    from privtab.ir.canonical import canonical
    from privtab.ir.formula import atoms, call_condition, item_condition
    from privtab.ir.nodes import ALWAYS, RESOURCE
    from privtab.ir.unroll import levels_that_matter, unrolled

    creating, reading = call_condition(rule), [item_condition(other) for other in reading_rules]
    most = levels_that_matter(*((view.program, formula) for formula in (creating, *reading)))
    unrolling = unrolled(view.program)
    program = unrolling.at_most(most) if unrolling.nested else view.program
    form = canonical(program)
    gained = {atom for effect in rule.effects if effect.kind != "revoke" for atom in _atoms(view, effect)}
    for levels in unrolling.requests((creating, *reading, *gained), most):
        at_levels = partial(unrolling.formula, levels=levels) if unrolling.nested else _unchanged
        created = unrolling.at(type_, levels.get(RESOURCE, 1))
        given = {part for atom in gained for part in atoms(at_levels(atom))}
        reading_sets = [
            frozenset(found) for formula in reading for found in form.minimal_sets(at_levels(formula), frozenset(), {})
        ]
        for flags, types in view.settings(rule, ALWAYS, types_of=creating):
            types_at = {slot: unrolling.at(name, levels.get(slot, 1)) for slot, name in types.items()}
            for found in form.minimal_sets(at_levels(creating), flags, types_at):
                held = _with_inherited(program, frozenset(found) | given, created)
                if not form.implies([held], reading_sets):
                    return False
    return True


def _unchanged(formula: Formula) -> Formula:
    return formula


def _atoms(view: View, effect: Effect) -> Iterator[Atom]:
    from privtab.ir.nodes import Has, Member, Owner

    if effect.what in ("owner", "member") and not effect.privileges:
        yield Owner(target=effect.target) if effect.what == "owner" else Member(target=effect.target)
    granted = with_implied(view.policy, effect.privileges, effect.target.type)
    yield from (Has(privilege=privilege, target=effect.target) for privilege in granted)


def _with_inherited(program: Program, atoms: AtomSet, type_: str) -> AtomSet:
    """The atoms and, with inheritance, the privileges they give on the new entity, which has no denials yet."""
    from privtab.ir.nodes import Has, Target

    if program.semantics.inheritance == "none":
        return atoms
    return atoms | {
        Has(privilege=atom.privilege, target=Target(slot="", type=type_))
        for atom in atoms
        if isinstance(atom, Has) and atom.target.slot == "" and atom.target.type in program.chain(type_)
    }
