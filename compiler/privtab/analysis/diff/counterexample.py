"""The fewest facts that distinguish two rows, or that satisfy both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import TypeAlias

from privtab.analysis.diff.shapes import PathForm, Shape, Types, stated_flags
from privtab.errors import Undecided
from privtab.ir.canonical import AtomSet, atom_of, canonical
from privtab.ir.comparisons import Comparisons, Values
from privtab.ir.exact import ImplicationChecker
from privtab.ir.facts import Fact, Facts, Granted, Holding
from privtab.ir.formula import atoms, leaves, mapped, resolve
from privtab.ir.nodes import NEVER, And, Atom, Can, Compare, Formula, Or, Program, Term
from privtab.request import NOT_SET

_Kind: TypeAlias = tuple[PathForm, frozenset[str], Types]
"""A kind of request: the form of the path of the resource, the flags, and the types of the `with` objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """A kind of request, and facts under which one side allows it and the other denies it."""

    facts: Facts
    flags: frozenset[str]
    types: Types
    form: PathForm
    """The form of the path of the resource."""
    values: Values = field(default_factory=dict)
    """Values of attributes under which the comparisons among the facts hold, and no others that matter."""


class RefusedAttributes:
    """Comparisons of attributes that a request of one side gives, and that make it invalid for the other."""

    def __init__(self, exact: ImplicationChecker) -> None:
        self.first = exact.program
        self.second = exact.other_program

    def __bool__(self) -> bool:
        """Whether the sides declare different attributes."""
        return self.first.attributes != self.second.attributes

    def by_second(self, conditions: Iterable[Formula]) -> list[Compare]:
        """Those of the first side that hold only for requests which the second refuses."""
        return _refused(self.first, self.second, conditions)

    def by_first(self, conditions: Iterable[Formula]) -> list[Compare]:
        """Those of the second side that hold only for requests which the first refuses."""
        return _refused(self.second, self.first, conditions)

    def without_those(self, condition: Formula) -> Formula:
        """A condition of the first side for requests that the second does not refuse."""
        if not self.first.attributes:
            return condition

        def leaf(part: Atom | Can) -> Formula:
            if isinstance(part, Can):
                return mapped(resolve(self.first, part), leaf)
            return NEVER if self.by_second([part]) else part

        return mapped(condition, leaf)

    def without_given(self, condition: Formula) -> Formula:
        """A condition of the second side, in minimal sets, without those that the first refuses."""
        if not isinstance(condition, Or) or not self.second.attributes:
            return condition
        return replace(condition, parts=tuple(part for part in condition.parts if not self.by_first([part])))


def _refused(own: Program, other: Program, conditions: Iterable[Formula]) -> list[Compare]:
    if not own.attributes:
        return []
    return [
        atom
        for condition in conditions
        for atom in dict.fromkeys(leaves(own, condition))
        if isinstance(atom, Compare) and any(_must_be_refused(own, other, term) for term in atom.terms)
    ]


def _must_be_refused(own: Program, other: Program, term: Term) -> bool:
    declared, elsewhere = own.attribute(term), other.attribute(term)
    given = declared is not None and "state" not in declared.origins
    return given and (elsewhere is None or "request" not in elsewhere.origins)


def separation(exact: ImplicationChecker, allowing: Shape, denying: Shape, *, alike: bool = False) -> Separation | None:
    """The fewest facts under which one side allows a request and the other does not; None if there are none.

    The solver decides whether there are any, and raises Undecided if that is too expensive. If finding the fewest
    exceeds the budget, the facts returned are few, but not always the fewest.
    """
    model = _model(exact, allowing, denying)
    if model is None:
        return None
    try:
        fewest = _fewest(exact, allowing, denying, alike=alike)
    except Undecided:
        return _with_values(exact, model, denying.conditions.get(model.form, NEVER))
    if fewest is None:
        assert RefusedAttributes(exact), "the solver has found one"
        return _with_values(exact, model, denying.conditions.get(model.form, NEVER))
    return _with_values(exact, fewest, denying.condition(fewest.form, fewest.flags, fewest.types))


def _with_values(exact: ImplicationChecker, found: Separation, denied_by: Formula = NEVER) -> Separation:
    """The separation with values of attributes; `denied_by`: a condition of the other side that does not hold."""
    if not (exact.program.attributes or exact.other_program.attributes):
        return found
    true = {fact.compare for fact in found.facts if isinstance(fact, Holding)}
    false: set[Compare] = set()
    if not RefusedAttributes(exact).by_second(true):
        false = {a for a in leaves(exact.other_program, denied_by) if isinstance(a, Compare)} - true
    values = Comparisons(exact.program, exact.other_program).values(true, false)
    assert values is not None, "only comparisons that can hold together are facts"
    return replace(found, values=values)


def _model(exact: ImplicationChecker, allowing: Shape, denying: Shape) -> Separation | None:
    """A kind of request and facts that distinguish the sides, as the solver finds them."""
    return _solve(exact, allowing, denying, lambda allowed, denied: (allowed, -denied))


def _solve(
    exact: ImplicationChecker, first: Shape, second: Shape, combine: Callable[[int, int], tuple[int, int]]
) -> Separation | None:
    """A request that the first side accepts, and facts; `combine` maps the literals of both sides to what must hold."""
    solver = exact.solver
    solver.renew()
    refused = RefusedAttributes(exact)
    slots = {slot.name: slot.types for slot in first.rule.withs}
    other_slots = {slot.name: slot.types for slot in second.rule.withs}
    # A request may omit a flag that only the other side requires; a flag that is set is never omitted.
    omitted = {flag: solver.flag(f"{flag} left off") for flag in second.required_flags - first.required_flags}
    flag_constraints = [solver.any_of([-solver.flag(flag), -omission]) for flag, omission in omitted.items()]
    # What only one side lets requests give makes a request invalid for the other.
    only_second = [solver.literal(c, exact.side) for c in refused.by_first(second.conditions.values())]
    constraints = [*flag_constraints, *(-literal for literal in only_second)]
    for form, condition in first.conditions.items():
        exact.check_attributes(condition, second.conditions.get(form, NEVER))
        other_holds = -solver.true
        if form in second.conditions and other_slots.keys() <= slots.keys():
            other_condition = solver.literal(second.conditions[form], exact.side)
            acceptable = solver.literal(refused.without_those(condition), 0)
            other_holds = solver.all_of(
                [
                    other_condition,
                    acceptable,
                    solver.requests(other_slots),
                    *(-omission for omission in omitted.values()),
                ]
            )
        model = solver.model([*combine(solver.literal(condition, 0), other_holds), *constraints], slots)
        if model is not None:
            flags = model.flags & (first.flags | second.flags)
            unset = {
                f"{flag}{NOT_SET}"
                for flag in (first.required_flags | second.required_flags) - model.flags
                if f"{flag} left off" not in model.flags
            }
            return Separation(facts=model.facts, flags=flags | unset, types=model.types, form=form)
    return None


def _fewest(exact: ImplicationChecker, allowing: Shape, denying: Shape, *, alike: bool) -> Separation | None:
    """The fewest facts that distinguish the sides; raises Undecided if there are too many kinds of requests.

    Tries every kind of request: with and without the last name, any set of flags, any types of the `with` objects; and
    for each every minimal set, starting with those that need the fewest facts. `alike`: what the conditions name is
    known to mean the same on both sides.
    """
    canonical_form = canonical(exact.program)
    refused = RefusedAttributes(exact)
    candidates: list[tuple[int, int, _Kind, AtomSet, Formula]] = []
    _check_number_of_kinds(allowing, denying)
    for kind in _kinds(allowing, denying):
        condition, other_condition = _conditions(allowing, denying, *kind)
        other_condition = refused.without_given(other_condition)
        sets = allowing.sets(*kind)
        if alike or exact.alike(condition, other_condition):
            denying_sets = denying.sets(*kind)
            sets = tuple(set_ for set_ in sets if not canonical_form.implies([set_], denying_sets))
        for set_ in sets:
            denied_by = NEVER if refused.by_second([_all_of(set_)]) else other_condition
            candidates.append((_lower_bound(exact, set_), len(set_), kind, set_, denied_by))
    best: Separation | None = None
    for lower_bound, _, (form, flags, types), required, other_condition in sorted(
        candidates, key=lambda candidate: candidate[:2]
    ):
        if best is not None and lower_bound >= len(best.facts):
            break
        facts = exact.counterexample(_all_of(required), other_condition, flags, types)
        if facts is None or (best is not None and len(facts) >= len(best.facts)):
            continue
        found = Separation(facts=facts, flags=flags, types=types, form=form)
        # Where the other side refuses what one set takes, the facts may give another set that both sides have.
        if not refused or _distinguishing(exact, allowing, denying, found)(facts):
            best = found
    return best and _smallest(exact, allowing, denying, best)


def _lower_bound(exact: ImplicationChecker, required: AtomSet) -> int:
    """A lower bound on the number of facts that give all of the atoms: one for each group of which a fact may give several."""
    groups: list[Facts] = []
    for atom in required:
        giving = frozenset(exact.semantics.options(atom_of(atom)))
        apart = [group for group in groups if group.isdisjoint(giving)]
        joined = giving.union(*(group for group in groups if not group.isdisjoint(giving)))
        groups = [*apart, joined]
    return len(groups)


def _all_of(required: AtomSet) -> Formula:
    return And(parts=tuple(required))


def _smallest(exact: ImplicationChecker, allowing: Shape, denying: Shape, separation_: Separation) -> Separation:
    """Replace facts by fewer ones that give several things at once, and sets by privileges where these suffice."""
    f = allowing.condition(separation_.form, separation_.flags, separation_.types)
    distinguishes = _distinguishing(exact, allowing, denying, separation_)
    return replace(
        separation_, facts=_without_sets(exact, _fewer(exact, f, separation_.facts, distinguishes), distinguishes)
    )


def _distinguishing(
    exact: ImplicationChecker, allowing: Shape, denying: Shape, request: Separation
) -> Callable[[Facts], bool]:
    """Whether facts distinguish the sides, for one kind of request."""
    f, g = _conditions(allowing, denying, request.form, request.flags, request.types)
    acceptable = RefusedAttributes(exact).without_those(f)

    def distinguishes(facts: Facts) -> bool:
        if not exact.semantics.holds(f, facts, request.flags, request.types):
            return False
        return not _both_hold(exact, (acceptable, g), request.flags, request.types, facts)

    return distinguishes


def _without_sets(exact: ImplicationChecker, facts: Facts, suffices: Callable[[Facts], bool]) -> Facts:
    """The facts, with privileges in place of sets and aliases where these suffice."""
    for fact in sorted(facts, key=repr):
        if isinstance(fact, Granted) and fact.name not in exact.program.privileges:
            names = sorted(exact.semantics.privileges_of(fact.name, fact.target.type, "deny"))
            alternatives = (facts - {fact} | {replace(fact, name=name)} for name in names)
            facts = next((alternative for alternative in alternatives if suffices(alternative)), facts)
    return facts


def _fewer(exact: ImplicationChecker, f: Formula, facts: Facts, distinguishes: Callable[[Facts], bool]) -> Facts:
    """Fewer facts with the same result, where one fact can replace several."""
    if len(facts) < 2:
        return facts
    for extra in (None, *sorted(_combining_facts(exact, f), key=repr)):
        added = facts if extra is None else facts | {extra}
        rest = added
        for fact in sorted(facts - {extra}, key=repr):
            # A comparison holds by values that make others hold, too.
            if not isinstance(fact, Holding) and distinguishes(rest - {fact}):
                rest -= {fact}
        if len(rest) < len(facts) and distinguishes(rest):
            facts = rest
    return facts


def _combining_facts(exact: ImplicationChecker, f: Formula) -> Iterator[Fact]:
    """Facts of the caller that give several of the things that a condition asks for: grants on ancestors, sets, roles, ownership."""
    condition_atoms = dict.fromkeys(atoms(f))
    number = Counter(fact for atom in condition_atoms for fact in exact.semantics.options(atom))
    for fact, given in number.items():
        if given > 1 and getattr(fact, "carrier", None) in (None, "user"):
            yield fact


def common_request(
    forward: ImplicationChecker, backward: ImplicationChecker, before: Shape, after: Shape
) -> Separation | None:
    """Few facts under which both sides allow a request; None if there are none.

    Raises Undecided if the solver exceeds its budget.
    """
    with_attributes = [shape for shape in (before, after) if shape.program.attributes]
    if any(
        isinstance(a, Compare) for s in with_attributes for f in s.conditions.values() for a in leaves(s.program, f)
    ):
        # Values that satisfy each side alone may not satisfy both.
        found = _solve(forward, before, after, lambda first, second: (first, second))
        return None if found is None else _with_values(forward, found)
    try:
        return _fewest_common(forward, backward, before, after)
    except Undecided:
        return _solve(forward, before, after, lambda first, second: (first, second))


def _fewest_common(
    forward: ImplicationChecker, backward: ImplicationChecker, before: Shape, after: Shape
) -> Separation | None:
    best: Separation | None = None
    _check_number_of_kinds(before, after)
    for form, flags, types in _kinds(before, after):
        conditions = _conditions(before, after, form, flags, types)
        facts_before = forward.counterexample(conditions[0], NEVER, flags, types)
        facts_after = backward.counterexample(conditions[1], NEVER, flags, types)
        if facts_before is None or facts_after is None:
            continue
        # Neither has denials, so both conditions hold under the union of the facts.
        sufficient = (facts_before, facts_after, facts_before | facts_after)
        both_hold = partial(_both_hold, forward, conditions, flags, types)
        facts = next(filter(both_hold, sufficient))
        facts = _without_sets(backward, _without_sets(forward, facts, both_hold), both_hold)
        if best is None or len(facts) < len(best.facts):
            best = Separation(facts=facts, flags=flags, types=types, form=form)
    return best


def _both_hold(
    exact: ImplicationChecker, conditions: tuple[Formula, Formula], flags: frozenset[str], types: Types, facts: Facts
) -> bool:
    return exact.semantics.holds(conditions[0], facts, flags, types) and exact.other_semantics.holds(
        conditions[1], facts, flags, types
    )


def _conditions(
    first: Shape, second: Shape, form: PathForm, flags: frozenset[str], types: Types
) -> tuple[Formula, Formula]:
    return first.condition(form, flags, types), second.condition(form, flags, types)


MAX_KINDS = 256
"""The most kinds of requests that are enumerated to find the fewest facts."""


def _check_number_of_kinds(first: Shape, second: Shape) -> None:
    flags = len(first.flags | second.flags)
    types = prod(len(slot.types) for slot in first.rule.withs)
    if flags > MAX_KINDS or types << flags > MAX_KINDS:
        raise Undecided(f"`{first.rule.id}` has more than {MAX_KINDS} kinds of requests")


def _kinds(first: Shape, second: Shape) -> Iterator[_Kind]:
    for form in first.conditions:
        for flags in stated_flags(first, second):
            for types in first.objects():
                yield form, flags, types
