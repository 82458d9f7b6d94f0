"""Separation of duty: P320."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from privtab.base.diagnostics import Severity
from privtab.base.errors import Undecided
from privtab.base.hints import listed_names
from privtab.checks._parts import with_implied
from privtab.checks._view import Found, View, check, view_of
from privtab.ir.formula import own_condition
from privtab.ir.nodes import ALWAYS, RESOURCE, Atom, ByType, Effect, Has, Member, OnTarget, Owner, Role, Rule
from privtab.model import nodes as m


@check("P320", Severity.WARNING)
def separation_of_duty(policy: m.Policy) -> Iterator[Found]:
    """Conflicts that a role's default grants violate, or that a single privilege, set, ownership or effect violates.

    A role holds an operation if its default grants, in one scope, suffice for some minimal set of the condition without
    flags. The gate is taken for granted: a caller who does not pass it can do nothing.
    """
    view = view_of(policy)
    for conflict in view.program.conflicts:
        rules = [view.program.rules[pair] for pair in conflict.operations]
        why = conflict.why.strip().rstrip(".") if conflict.why else None
        for subject, held_rules in _violations(view, rules, conflict.at_most):
            names = listed_names(f"{rule.entity}/{rule.operation}" for rule in held_rules)
            yield Found(
                conflict.span,
                f"{subject} {names}" + ("" if conflict.at_most == 1 else f", more than {conflict.at_most} of them"),
                "require something else in one of them, or grant less" + (f": {why}" if why else ""),
            )


def _violations(view: View, rules: list[Rule], at_most: int) -> Iterator[tuple[str, list[Rule]]]:
    """Descriptions of holdings that suffice for too many of the rules, each with these rules."""
    policy = view.policy
    reported: list[frozenset[str]] = []
    """Sets of privileges that were reported; sets that contain one of them are skipped."""
    for name in policy.privileges:
        held_rules = [rule for rule in rules if _suffices(view, rule, _any_of(with_implied(policy, (name,))))]
        if len(held_rules) > at_most:
            reported.append(frozenset({name}))
            yield f"the privilege `{name}` alone is enough for", held_rules
    for name, members in policy.sets.items():
        held_rules = [rule for rule in rules if _suffices(view, rule, _any_of(with_implied(policy, members)))]
        if len(held_rules) > at_most and not any(privileges <= set(members) for privileges in reported):
            yield f"the set `{name}` is enough for", held_rules
    for role in policy.roles.values():
        for scope in role.scopes or (None,):
            in_scope = [rule for rule in rules if scope is None or policy.hierarchy.within(rule.entity, scope)]
            held_rules = [rule for rule in in_scope if _suffices(view, rule, _grants_of(view, role, scope))]
            if len(held_rules) > at_most:
                yield f"the role `{role.name}` holds", held_rules
                break
    owner = policy.semantics.owner
    for type_ in policy.entities if owner is not None else ():
        held_rules = [rule for rule in rules if _owner_may(view, rule, type_)]
        if len(held_rules) > at_most:
            yield f"the owner of a `{type_}` may do", held_rules
    for rule in rules:
        held_rules = [rule, *(other for other in rules if other is not rule and _effects_suffice(view, rule, other))]
        if len(held_rules) > at_most and len(held_rules) > 1:
            yield f"a caller of `{rule.operation}` gets what is required for", held_rules


def _suffices(view: View, rule: Rule, gives: Callable[[str, str], bool]) -> bool:
    """Return whether grants alone suffice; `gives` tells whether they give a privilege on a type."""

    def holds(atom: Atom) -> bool:
        return isinstance(atom, Has) and any(gives(atom.privilege, t) for t in view.program.types_of(atom.target))

    return _atoms_suffice(view, rule, holds)


def _any_of(members: tuple[str, ...]) -> Callable[[str, str], bool]:
    return lambda privilege, _: privilege in members


def _grants_of(view: View, role: Role, scope: str | None) -> Callable[[str, str], bool]:
    """A test that tells whether the default grants of a role give a privilege on a type, within one scope."""
    hierarchy = view.policy.hierarchy
    grants = dict(role.grants)

    def gives(privilege: str, type_: str) -> bool:
        return any(
            privilege in grants.get(granted_on, ()) and (scope is None or hierarchy.within(granted_on, scope))
            for granted_on in view.program.granting_types(privilege, type_)
        )

    return gives


def _owner_may(view: View, rule: Rule, type_: str) -> bool:
    """Return whether ownership of the resource's `type_` suffices."""
    semantics = view.policy.semantics
    owner_privileges = semantics.owner.holds if semantics.owner is not None else ()

    def holds(atom: Atom) -> bool:
        if isinstance(atom, Owner):
            return atom.target.slot == RESOURCE and type_ in view.program.types_of(atom.target)
        if not isinstance(atom, Has) or atom.privilege not in owner_privileges or atom.target.slot != RESOURCE:
            return False
        types = view.program.types_of(atom.target)
        return any(type_ in view.program.granting_types(atom.privilege, own) for own in types)

    return _atoms_suffice(view, rule, holds)


def _effects_suffice(view: View, rule: Rule, other: Rule) -> bool:
    """Return whether the effects of a rule suffice for another on the same objects."""
    semantics = view.policy.semantics
    owner_privileges = semantics.owner.holds if semantics.owner is not None else ()
    gained = [e for e in rule.effects if e.kind != "revoke" and e.target.slot == RESOURCE]

    def reaches(effect: Effect, atom: Atom) -> bool:
        if not isinstance(atom, OnTarget) or atom.target.slot != RESOURCE:
            return False
        same_type = effect.target.type == atom.target.type
        match atom:
            case Has(privilege=privilege):
                owns = effect.what == "owner" and not effect.privileges and privilege in owner_privileges
                reached = effect.target.type in view.program.granting_types(privilege, atom.target.type)
                granted = with_implied(view.policy, effect.privileges, effect.target.type)
                return (privilege in granted or owns) and reached
            case Owner() | Member():
                what = "owner" if isinstance(atom, Owner) else "member"
                return same_type and effect.what == what and not effect.privileges
            case _:
                return False

    return bool(gained) and _atoms_suffice(view, other, lambda atom: any(reaches(effect, atom) for effect in gained))


def _atoms_suffice(view: View, rule: Rule, holds: Callable[[Atom], bool]) -> bool:
    """Return whether some atoms suffice for the rule's own condition, without flags, for some types of its objects."""
    condition = own_condition(rule)
    if condition == ALWAYS:
        return False
    try:
        gate = {atom for atoms in view.sets(rule.gate, (frozenset(), {})) for atom in atoms}
        return any(
            all(not isinstance(atom, ByType) and (atom in gate or holds(atom)) for atom in atoms)
            for setting in view.settings(rule, ALWAYS, types_of=condition)
            for atoms in view.sets(condition, setting)
        )
    except Undecided:
        view.undecided(view.policy.rows[rule.entity, rule.operation])
        return False
