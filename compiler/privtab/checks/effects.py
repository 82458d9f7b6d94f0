"""Effects of rows: what creators get, what deletions leave behind, and what is not declared: P316, P323, P324, P334, P345, P346, P347, P352."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from privtab.base.diagnostics import Severity, Span
from privtab.base.effects import PRINCIPAL_TABLES
from privtab.base.errors import Undecided
from privtab.base.hints import listed_names
from privtab.checks._parts import with_implied
from privtab.checks._view import Found, FoundInRow, View, check, check_in_every_type, view_of
from privtab.ir.canonical import AtomSet, canonical_form
from privtab.ir.formula import direct_atoms
from privtab.ir.nodes import ALWAYS, RESOURCE, And, Atom, Effect, Formula, Has, Member, Owner, Program, Rule, Target
from privtab.ir.unroll import levels_that_matter, unrolled
from privtab.model import nodes as m
from privtab.model.nodes import Policy

_READING = (
    "get", "read", "load", "view", "show", "see", "describe", "open", "list", "search", "find", "fetch", "browse",
    "download", "look", "inspect",
)  # fmt: skip
"""First words of the names of operations that read, most characteristic first."""


# P316: a creator who cannot read what they created.
@check("P316", Severity.WARNING)
def creator_cannot_read(policy: m.Policy) -> Iterator[Found]:
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
                    given = (o.what for o in row.outcomes if o.kind != "revoke" and o.type == type_)
                    text = listed_names(dict.fromkeys(given))
                    groups.setdefault(text, []).append((row, type_, reading_rows[0].operation))
            except Undecided:
                view.undecided(row)
    for given_text, cases in groups.items():
        row, type_, operation = cases[0]
        others = [other for _, other, _ in cases[1:]]
        yield Found(
            row.decl.span,
            f"the creator of a `{type_}` cannot read it: `{row.operation}` gives {given_text}, which is not enough for `{operation}`",
            f"grant what `{operation}` requires" + (f"; the same applies to {listed_names(others)}" if others else ""),
        )


def _created_types(policy: m.Policy, row: m.Row) -> Iterator[str]:
    """The types that the row creates and on which its effects give something."""
    given_types = dict.fromkeys(o.type for o in row.outcomes if o.kind != "revoke" and o.slot == "")
    for type_ in given_types:
        inside = policy.entities[type_].parent == row.entity and not policy.entities[type_].single
        if inside or (type_ == row.entity and row.creates):
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


def _may_read(view: View, rule: Rule, type_: str, reading_rules: list[Rule], by_shape: dict[int, bool]) -> bool:
    """As `_allows_reading`; answered once for all rules of the same shape."""
    granted = And(
        parts=tuple(atom for effect in rule.effects if effect.kind != "revoke" for atom in _atoms(view, effect))
    )
    conditions = [rule.call_condition, granted, *(reading.item_condition for reading in reading_rules)]
    slots = {slot.name: slot.types for slot in rule.withs} | {"": (type_,)}
    key = view.shapes.of(conditions, slots).number
    if key not in by_shape:
        by_shape[key] = _allows_reading(view, rule, type_, reading_rules)
    return by_shape[key]


def _allows_reading(view: View, rule: Rule, type_: str, reading_rules: list[Rule]) -> bool:
    """Return whether each minimal set for creation, together with the effects, suffices for some reading operation.

    Flags only add requirements, so it is enough to check the sets without flags. Where a type nests, this is asked for paths of each
    number of levels that matters, of which each level is a type of its own.
    """
    creating, reading = rule.call_condition, [other.item_condition for other in reading_rules]
    most = levels_that_matter(*((view.program, formula) for formula in (creating, *reading)))
    unrolling = unrolled(view.program)
    program = unrolling.at_most(most) if unrolling.nested else view.program
    form = canonical_form(program)
    gained = {atom for effect in rule.effects if effect.kind != "revoke" for atom in _atoms(view, effect)}
    for levels in unrolling.requests((creating, *reading, *gained), most):
        at_levels = partial(unrolling.formula, levels=levels) if unrolling.nested else _unchanged
        created = unrolling.at(type_, levels.get(RESOURCE, 1))
        given = {part for atom in gained for part in direct_atoms(at_levels(atom))}
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
    if effect.what in ("owner", "member") and not effect.privileges:
        yield Owner(target=effect.target) if effect.what == "owner" else Member(target=effect.target)
    granted = with_implied(view.policy, effect.privileges, effect.target.type)
    yield from (Has(privilege=privilege, target=effect.target) for privilege in granted)


def _with_inherited(program: Program, atoms: AtomSet, type_: str) -> AtomSet:
    """The atoms and, with inheritance, the privileges they give on the new entity, which has no denials yet."""
    return atoms | {
        Has(privilege=atom.privilege, target=Target(slot="", type=type_))
        for atom in atoms
        if isinstance(atom, Has)
        and atom.target.slot == ""
        and atom.target.type in program.granting_types(atom.privilege, type_)
    }


@check_in_every_type("P323", Severity.WARNING)
def idle_effect(policy: m.Policy) -> Iterator[FoundInRow]:
    """Grants of what the call requires on the same object anyway, or of what no row requires; each row once.

    Some member of a set must be new, and some must count. Ownership counts if a row requires owners or owners hold
    something, membership if a row or the gate requires members.
    """
    view = view_of(policy)
    for row in policy.rows.values():
        rule = view.rule(row)
        for outcome, effect in zip(row.outcomes, rule.effects, strict=True):
            by_creator = outcome.use is None and row.decl.body.becomes is None
            if effect.kind == "revoke" or by_creator:
                continue
            reason = _idle(view, rule, effect)
            if reason is None:
                continue
            verb = "grants" if effect.kind == "grant" else "makes the caller"
            yield (
                row,
                row.decl.span if outcome.use is None else outcome.use.spot.span,
                f"the row `{row.operation}` {verb} `{effect.what}` of the `{effect.target.type}`, {reason}",
                "drop it, or check what it was meant to give",
            )


def _idle(view: View, rule: Rule, effect: Effect) -> str | None:
    given = And.of(*_atoms(view, effect))
    if effect.target.slot == RESOURCE and view.implies(rule, rule.call_condition, given):
        return "which the call already requires"
    if effect.privileges:
        granted = with_implied(view.policy, effect.privileges, effect.target.type)
        matters = any(view.can_matter(privilege, effect.target.type) for privilege in granted)
    else:
        matters = _relation_matters(view, effect)
    return None if matters else "which no row requires"


def _relation_matters(view: View, effect: Effect) -> bool:
    owner = view.policy.semantics.owner
    owner_privileges = owner.holds if effect.what == "owner" and owner is not None else ()
    type_ = effect.target.type
    return (effect.what, type_) in view.required_relations or any(
        view.can_matter(privilege, type_) for privilege in owner_privileges
    )


_DELETING = frozenset({"delete", "drop", "remove", "destroy", "unregister", "purge"})


@check("P324", Severity.NOTE, once=True)
def nothing_revoked(policy: m.Policy) -> Iterator[Found]:
    """Deletions without `revokes`, of types whose creation grants something, in a file whose rows do revoke.

    A file that never revokes, or revokes only what a removed principal holds, leaves revocation to the system and is
    skipped.
    """
    revoked = [o for row in policy.rows.values() for o in row.outcomes if o.kind == "revoke"]
    if all(o.what in PRINCIPAL_TABLES and o.use is None for o in revoked):
        return
    granted: dict[str, str] = {}
    for row in policy.rows.values():
        for outcome in row.outcomes:
            if outcome.kind != "revoke" and outcome.type == row.entity and outcome.slot == "":
                granted.setdefault(row.entity, outcome.what)
    for row in policy.rows.values():
        deletes = row.operation.partition("_")[0] in _DELETING and not row.operation.partition("_")[2]
        revokes = any(o.kind == "revoke" for o in row.outcomes)
        if not deletes or revokes or row.entity not in granted:
            continue
        yield Found(
            row.decl.span,
            f"`{row.operation}` leaves `{granted[row.entity]}` of the `{row.entity}` behind",
            f"whoever creates another with the same name inherits it: add `revokes: {granted[row.entity]}`",
        )


# P334: a creation that requires something on what it creates.
@check("P334", Severity.WARNING, once=True)
def creation_asks_for_itself(policy: m.Policy) -> Iterator[Found]:
    """Rows `create` in which every alternative requires something on the entity, or below it, before it exists.

    `creates: false` states that the entity exists, and `ambiguous` that the cell has been reviewed.
    """
    view = view_of(policy)
    for row in policy.rows.values():
        settled = row.decl.creates is not None or row.decl.ambiguous is not None
        if row.operation != "create" or row.creates or settled:
            continue
        rule = view.rule(row)
        if not view.allowed(rule, rule.call_condition, unnamed=True):
            yield Found(
                row.decl.span,
                f"creating a `{row.entity}` requires something on the `{row.entity}`, which does not exist yet",
                "require it on its parent, or write `creates: false` if it already exists",
            )


@check("P345", Severity.WARNING, once=True)
def refused_effect(policy: m.Policy) -> Iterator[Found]:
    """Grants to the caller where grants to users are refused."""
    grantees = policy.semantics.grantees
    if "user" in grantees:
        return
    for row in policy.rows.values():
        for outcome in row.outcomes:
            if outcome.kind == "grant":
                yield Found(
                    row.decl.span if outcome.use is None else outcome.use.spot.span,
                    f"`{row.operation}` gives the caller `{outcome.what}` of the `{outcome.type}`, which a user cannot have",
                    f"leave the effect out: `semantics.grantees` lists {listed_names(grantees)}",
                )


@check("P346", Severity.WARNING)
def creator_cannot_own(policy: Policy) -> Iterator[Found]:
    """Rows with `becomes: owner`, of their own or by `creator`, where `kinds` leaves users out; `creator` is reported once."""
    owner = policy.semantics.owner
    if owner is None or "user" in owner.kinds:
        return
    kinds = " or ".join(owner.kinds)
    reported: set[Span] = set()
    for row in policy.rows.values():
        owning = any(
            (outcome.kind, outcome.what, outcome.of_role) == ("become", "owner", False) for outcome in row.outcomes
        )
        implied = row.decl.body.becomes is None
        if owning and row.decl.span not in reported and not (implied and reported):
            reported.add(row.decl.span)
            cause = " by `creator: true`" if implied else ""
            yield Found(
                row.decl.span,
                f"`{row.operation}` makes its caller the owner{cause}, and a state refuses a user as an owner: `kinds` has {kinds}",
                "add `user` to `kinds`, give a privilege by `grants` instead, or let a role own by `creator: active_role`",
            )


@check("P347", Severity.NOTE, once=True)
def undeclared_destruction(policy: Policy) -> Iterator[Found]:
    """Rows with `revokes` and without `destructive: true`, each once."""
    for row in policy.rows.values():
        revoked = next((outcome.what for outcome in row.outcomes if outcome.kind == "revoke"), None)
        if revoked is not None and not row.decl.destructive:
            yield Found(
                row.decl.span,
                f"`{row.operation}` revokes `{revoked}`, and certifications do not count it as destructive",
                "add `destructive: true`",
            )


@check("P352", Severity.NOTE, once=True)
def undeclared_creation(policy: Policy) -> Iterator[Found]:
    """Rows that may create their entity or claim one that exists, and do not say which, each once."""
    for row in policy.rows.values():
        if row.creates == "perhaps":
            yield Found(
                row.decl.span,
                f"`{row.operation}` gives something on the `{row.entity}`, and does not say whether it creates it",
                "add `creates: true`, or `creates: false` if the entity exists before",
            )
