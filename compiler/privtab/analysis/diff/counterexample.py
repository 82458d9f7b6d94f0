"""The fewest facts that distinguish two rows, or that satisfy both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

from privtab.analysis.diff.shapes import Shape, Types, stated_flags
from privtab.errors import Undecided
from privtab.ir.canonical import AtomSet, canonical
from privtab.ir.exact import ImplicationChecker
from privtab.ir.facts import Assigned, Fact, Facts, Granted, Owned
from privtab.ir.formula import atoms
from privtab.ir.nodes import NEVER, And, Formula, Has, Owner
from privtab.request import NOT_SET

_Kind: TypeAlias = tuple[int, frozenset[str], Types]
"""A kind of request: the number of names of the resource, the flags, and the types of the `with` objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """A kind of request, and facts under which one side allows it and the other denies it."""

    facts: Facts
    flags: frozenset[str]
    types: Types
    names: int
    """The number of names in the path of the resource."""


def separation(exact: ImplicationChecker, allowing: Shape, denying: Shape, *, alike: bool = False) -> Separation | None:
    """The fewest facts under which one side allows a request and the other does not; None if there are none.

    The solver decides whether there are any, and raises Undecided if that is too expensive. If finding the fewest
    exceeds the budget, the facts returned are few, but not always the fewest.
    """
    model = _model(exact, allowing, denying)
    if model is None:
        return None
    try:
        found = _fewest(exact, allowing, denying, alike=alike)
    except Undecided:
        return model
    assert found is not None, "the solver has found one"
    return found


def _model(exact: ImplicationChecker, allowing: Shape, denying: Shape) -> Separation | None:
    """A kind of request and facts that distinguish the sides, as the solver finds them."""
    return _found(exact, allowing, denying, lambda one, other: (one, -other))


def _found(
    exact: ImplicationChecker, one: Shape, other: Shape, wanted: Callable[[int, int], tuple[int, int]]
) -> Separation | None:
    """A request that the first side accepts, and facts; `wanted` maps the literals of both sides to what must hold."""
    solver = exact.solver
    solver.renew()
    slots = {slot.name: slot.types for slot in one.rule.withs}
    there = {slot.name: slot.types for slot in other.rule.withs}
    # A request may omit a flag that only the other side requires; a flag that is set is never omitted.
    left_off = {flag: solver.flag(f"{flag} left off") for flag in other.required_flags - one.required_flags}
    said = [solver.any_of([-solver.flag(flag), -off]) for flag, off in left_off.items()]
    for names, condition in one.conditions.items():
        taken = -solver.true
        if names in other.conditions and there.keys() <= slots.keys():
            meets = solver.literal(other.conditions[names], 0 if exact.semantics is exact.other_semantics else 1)
            taken = solver.all_of([meets, solver.requests(there), *(-off for off in left_off.values())])
        found = solver.model([*wanted(solver.literal(condition, 0), taken), *said], slots)
        if found is not None:
            flags = found.flags & (one.flags | other.flags)
            unset = {
                f"{flag}{NOT_SET}"
                for flag in (one.required_flags | other.required_flags) - found.flags
                if f"{flag} left off" not in found.flags
            }
            return Separation(facts=found.facts, flags=flags | unset, types=found.types, names=names)
    return None


def _fewest(exact: ImplicationChecker, allowing: Shape, denying: Shape, *, alike: bool) -> Separation | None:
    """The fewest facts that distinguish the sides; raises Undecided if there are too many kinds of requests.

    Tries every kind of request: with and without the last name, any set of flags, any types of the `with` objects; and
    for each every minimal set, starting with those that need the fewest facts. `alike`: what the conditions name is
    known to mean the same on both sides.
    """
    form = canonical(exact.program)
    waiting: list[tuple[int, int, _Kind, AtomSet, Formula]] = []
    _within_reach(allowing, denying)
    for kind in _kinds(allowing, denying):
        condition, there = _conditions(allowing, denying, *kind)
        sets = allowing.sets(*kind)
        if alike or exact.alike(condition, there):
            wanted = denying.sets(*kind)
            sets = tuple(s for s in sets if not form.implies([s], wanted))
        waiting += [(_least(exact, s), len(s), kind, s, there) for s in sets]
    best: Separation | None = None
    for least, _, (names, flags, types), wanted_atoms, there in sorted(waiting, key=lambda one: one[:2]):
        if best is not None and least >= len(best.facts):
            break
        facts = exact.counterexample(_all_of(wanted_atoms), there, flags, types)
        if facts is not None and (best is None or len(facts) < len(best.facts)):
            best = Separation(facts=facts, flags=flags, types=types, names=names)
    return best and _smallest(exact, allowing, denying, best)


def _least(exact: ImplicationChecker, wanted: AtomSet) -> int:
    """A lower bound on the number of facts that give all of the atoms."""
    privileges = {atom.privilege for atom in wanted if isinstance(atom, Has)}
    others = sum(not isinstance(atom, Has) for atom in wanted)
    if privileges & exact.semantics.owner_privileges:
        return max(others, 1)  # ownership may give every privilege
    if len(privileges) > 1 and _given_together(exact, privileges):
        return others + 1  # one role or one set may give all
    return others + len(privileges)  # one grant may give a privilege on several objects, but not two privileges


def _given_together(exact: ImplicationChecker, privileges: set[str]) -> bool:
    """Whether one set or one role gives two of the privileges."""
    names = Counter(name for privilege in privileges for name in exact.semantics.names_of(privilege))
    roles = ({p for _, given in role.grants for p in given} for role in exact.program.roles.values())
    return any(number > 1 for number in names.values()) or any(len(privileges & given) > 1 for given in roles)


def _all_of(wanted: AtomSet) -> Formula:
    return And(parts=tuple(wanted))


def _smallest(exact: ImplicationChecker, allowing: Shape, denying: Shape, found: Separation) -> Separation:
    """Replace facts by fewer ones that give several things at once, and sets by privileges where these suffice."""
    f, g = _conditions(allowing, denying, found.names, found.flags, found.types)

    def tells_apart(facts: Facts) -> bool:
        allowed = exact.semantics.holds(f, facts, found.flags, found.types)
        return allowed and not exact.other_semantics.holds(g, facts, found.flags, found.types)

    return replace(found, facts=_without_sets(exact, _fewer(exact, f, found.facts, tells_apart), tells_apart))


def _without_sets(exact: ImplicationChecker, facts: Facts, do: Callable[[Facts], bool]) -> Facts:
    """The facts, with privileges in place of sets and aliases where these suffice."""
    for fact in sorted(facts, key=repr):
        if isinstance(fact, Granted) and fact.name not in exact.program.privileges:
            names = sorted(exact.semantics.given(fact.name, fact.target.type))
            plainer = (facts - {fact} | {replace(fact, name=name)} for name in names)
            facts = next((some for some in plainer if do(some)), facts)
    return facts


def _fewer(exact: ImplicationChecker, f: Formula, facts: Facts, tells_apart: Callable[[Facts], bool]) -> Facts:
    """Fewer facts with the same result, where one fact can replace several."""
    if len(facts) < 2:
        return facts
    several = sorted(set(_combining_facts(exact, f, facts)), key=repr)
    if not several and all(isinstance(fact, Granted) and fact.name in exact.program.privileges for fact in facts):
        return facts
    for one in (None, *several):
        added = facts if one is None else facts | {one}
        rest = added
        for fact in sorted(facts - {one}, key=repr):
            if tells_apart(rest - {fact}):
                rest -= {fact}
        if len(rest) < len(facts) and tells_apart(rest):
            facts = rest
    return facts


def _combining_facts(exact: ImplicationChecker, f: Formula, facts: Facts) -> Iterator[Fact]:
    """Facts that give several of the things that a condition requires: grants on ancestors, sets, roles, ownership."""
    asked = tuple(dict.fromkeys(atoms(f)))
    privileges = {atom.privilege for atom in asked if isinstance(atom, Has)}
    granted = Counter(fact.name for fact in facts if isinstance(fact, Granted) and fact.effect == "allow")
    here = exact.semantics
    for atom in asked:
        if here.owner_privileges and "user" in here.kinds and isinstance(atom, Owner):
            yield Owned(target=atom.target)
        if not isinstance(atom, Has):
            continue
        for at in here.looked_at(atom.target):
            if granted[atom.privilege] > 1:
                yield Granted(effect="allow", name=atom.privilege, target=at)
            for name in here.names_of(atom.privilege)[1:]:
                if len(privileges & here.given(name, at.type)) > 1:
                    yield Granted(effect="allow", name=name, target=at)
            if atom.privilege in here.owner_privileges and "user" in here.kinds:
                yield Owned(target=at)
        yield from _roles(exact, atom)


def _roles(exact: ImplicationChecker, atom: Has) -> Iterator[Assigned]:
    path = exact.semantics.path(atom.target)
    for role in exact.program.roles.values():
        for scope in (None, *path):
            assigned = Assigned(role=role.name, scope=scope)
            given = any(exact.semantics.by_default(atom.privilege, at, assigned) for at in path)
            if given and exact.semantics.accepts(assigned):
                yield assigned


def common_request(
    forward: ImplicationChecker, backward: ImplicationChecker, before: Shape, after: Shape
) -> Separation | None:
    """Few facts under which both sides allow a request; None if there are none.

    Raises Undecided if the solver exceeds its budget.
    """
    try:
        return _fewest_common(forward, backward, before, after)
    except Undecided:
        return _found(forward, before, after, lambda one, other: (one, other))


def _fewest_common(
    forward: ImplicationChecker, backward: ImplicationChecker, before: Shape, after: Shape
) -> Separation | None:
    best: Separation | None = None
    _within_reach(before, after)
    for names, flags, types in _kinds(before, after):
        conditions = _conditions(before, after, names, flags, types)
        one = forward.counterexample(conditions[0], NEVER, flags, types)
        other = backward.counterexample(conditions[1], NEVER, flags, types)
        if one is None or other is None:
            continue
        # Neither has denials, so both conditions hold under the union of the facts.
        enough = (one, other, one | other)
        hold = partial(_hold, forward, conditions, flags, types)
        facts = next(filter(hold, enough))
        facts = _without_sets(backward, _without_sets(forward, facts, hold), hold)
        if best is None or len(facts) < len(best.facts):
            best = Separation(facts=facts, flags=flags, types=types, names=names)
    return best


def _hold(
    exact: ImplicationChecker, conditions: tuple[Formula, Formula], flags: frozenset[str], types: Types, facts: Facts
) -> bool:
    return exact.semantics.holds(conditions[0], facts, flags, types) and exact.other_semantics.holds(
        conditions[1], facts, flags, types
    )


def _conditions(one: Shape, other: Shape, names: int, flags: frozenset[str], types: Types) -> tuple[Formula, Formula]:
    return one.condition(names, flags, types), other.condition(names, flags, types)


_KINDS = 256
"""The most kinds of requests that are enumerated to find the fewest facts."""


def _within_reach(one: Shape, other: Shape) -> None:
    flags = len(one.flags | other.flags)
    types = prod(len(slot.types) for slot in one.rule.withs)
    if flags > _KINDS or types << flags > _KINDS:
        raise Undecided(f"`{one.rule.id}` has more than {_KINDS} kinds of requests")


def _kinds(one: Shape, other: Shape) -> Iterator[_Kind]:
    for names in one.conditions:
        for flags in stated_flags(one, other):
            for types in one.objects():
                yield names, flags, types
