"""P320: operations that `conflicts` separates, but that can be held together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view
from privtab.diagnostics import Diagnostic, FindingKind, Severity
from privtab.errors import Undecided
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.ir.nodes import Atom, Effect, Role, Rule
    from privtab.model import nodes as m

KIND = FindingKind("P320", "separation-of-duty", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Conflicts that a role's default grants violate, or that a single privilege, set, ownership or effect violates.

    A role holds an operation if its default grants, in one scope, suffice for some minimal set of the condition without
    flags. The gate is taken for granted: a caller who does not pass it can do nothing.
    """
    seen = view(policy)
    for conflict in seen.program.conflicts:
        rules = [seen.program.rules[pair] for pair in conflict.operations]
        why = conflict.why.strip().rstrip(".") if conflict.why else None
        for said, held in _broken(seen, rules, conflict.at_most):
            names = listed(f"{rule.entity}/{rule.operation}" for rule in held)
            yield KIND.at(
                conflict.span,
                f"{said} {names}" + ("" if conflict.at_most == 1 else f", more than {conflict.at_most} of them"),
                "require something else in one of them, or grant less" + (f": {why}" if why else ""),
            )


def _broken(seen: View, rules: list[Rule], at_most: int) -> Iterator[tuple[str, list[Rule]]]:
    """Descriptions of what holds too many of the rules, each with those rules."""
    policy = seen.policy
    enough: list[frozenset[str]] = []
    """Sets of privileges that were reported; sets that contain one of them are skipped."""
    for name in policy.privileges:
        held = [rule for rule in rules if _enough(seen, rule, _any_of((name,)))]
        if len(held) > at_most:
            enough.append(frozenset({name}))
            yield f"the privilege `{name}` alone is enough for", held
    for name, members in policy.sets.items():
        held = [rule for rule in rules if _enough(seen, rule, _any_of(members))]
        if len(held) > at_most and not any(told <= set(members) for told in enough):
            yield f"the set `{name}` is enough for", held
    for role in policy.roles.values():
        held = [rule for rule in rules if _in_scope(seen, rule, role) and _enough(seen, rule, _by(seen, role))]
        if len(held) > at_most:
            yield f"the role `{role.name}` holds", held
    owner = policy.semantics.owner
    for type_ in policy.entities if owner is not None else ():
        held = [rule for rule in rules if _owned(seen, rule, type_)]
        if len(held) > at_most:
            yield f"the owner of a `{type_}` may do", held
    for rule in rules:
        held = [rule, *(other for other in rules if other is not rule and _follows(seen, rule, other))]
        if len(held) > at_most and len(held) > 1:
            yield f"a caller of `{rule.operation}` gets what is required for", held


def _enough(seen: View, rule: Rule, gives: Callable[[str, str], bool]) -> bool:
    """Whether grants alone suffice; `gives` tells whether they give a privilege on a type."""
    from privtab.ir.nodes import Has

    def holds(atom: Atom) -> bool:
        return isinstance(atom, Has) and gives(atom.privilege, atom.target.type)

    return holding(seen, rule, holds)


def _any_of(members: tuple[str, ...]) -> Callable[[str, str], bool]:
    return lambda privilege, _: privilege in members


def _in_scope(seen: View, rule: Rule, role: Role) -> bool:
    return role.scope is None or seen.policy.hierarchy.within(rule.entity, role.scope)


def _by(seen: View, role: Role) -> Callable[[str, str], bool]:
    """Whether the default grants of a role give a privilege on a type, within one scope."""
    hierarchy = seen.policy.hierarchy
    down = seen.policy.semantics.inheritance == "down"
    grants = dict(role.grants)

    def gives(privilege: str, type_: str) -> bool:
        looked_at = hierarchy.chain(type_) if down else (type_,)
        return any(
            privilege in grants.get(at, ()) and (role.scope is None or hierarchy.within(at, role.scope))
            for at in looked_at
        )

    return gives


def _owned(seen: View, rule: Rule, type_: str) -> bool:
    """Whether ownership of the resource's `type_` suffices."""
    from privtab.ir.nodes import RESOURCE, Has, Owner

    semantics = seen.policy.semantics
    held = semantics.owner.holds if semantics.owner is not None else ()

    def holds(atom: Atom) -> bool:
        if isinstance(atom, Owner):
            return atom.target.slot == RESOURCE and atom.target.type == type_
        if not isinstance(atom, Has) or atom.privilege not in held or atom.target.slot != RESOURCE:
            return False
        below = seen.policy.hierarchy.within(atom.target.type, type_)
        return below if semantics.inheritance == "down" else atom.target.type == type_

    return holding(seen, rule, holds)


def _follows(seen: View, rule: Rule, other: Rule) -> bool:
    """Whether the effects of a rule suffice for another on the same objects."""
    from privtab.ir.nodes import RESOURCE, Has, Member, Owner, ServiceAdmin

    semantics = seen.policy.semantics
    held = semantics.owner.holds if semantics.owner is not None else ()
    within = seen.policy.hierarchy.within
    gained = [e for e in rule.effects if e.kind != "revoke" and e.target.slot == RESOURCE]

    def reaches(effect: Effect, atom: Atom) -> bool:
        if isinstance(atom, ServiceAdmin) or atom.target.slot != RESOURCE:
            return False
        here = effect.target.type == atom.target.type
        match atom:
            case Has(privilege=privilege):
                owns = effect.what == "owner" and not effect.privileges and privilege in held
                below = semantics.inheritance == "down" and within(atom.target.type, effect.target.type)
                return (privilege in effect.privileges or owns) and (here or below)
            case Owner():
                return here and effect.what == "owner" and not effect.privileges
            case Member():
                return here and effect.what == "member" and not effect.privileges
            case _:
                return False

    return bool(gained) and holding(seen, other, lambda atom: any(reaches(effect, atom) for effect in gained))


def holding(seen: View, rule: Rule, holds: Callable[[Atom], bool]) -> bool:
    """Whether some atoms suffice for the rule's own condition, without flags, for some types of its objects."""
    from privtab.ir.formula import conjunction
    from privtab.ir.nodes import ALWAYS, ByType

    condition = rule.requires if rule.each is None else conjunction(rule.requires, rule.each)
    if condition == ALWAYS:
        return False
    try:
        gate = {atom for atoms in seen.sets(rule.gate, (frozenset(), {})) for atom in atoms}
        return any(
            all(not isinstance(atom, ByType) and (atom in gate or holds(atom)) for atom in atoms)
            for setting in seen.settings(rule, ALWAYS, types_of=condition)
            for atoms in seen.sets(condition, setting)
        )
    except Undecided:
        seen.undecided(seen.policy.rows[rule.entity, rule.operation])
        return False
