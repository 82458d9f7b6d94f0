"""The fewest facts that distinguish two rows, or that satisfy both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from privtab.analysis.diff.shapes import PathForm, Shape, Types
from privtab.ir.comparisons import Comparisons, Values
from privtab.ir.exact import ImplicationChecker
from privtab.ir.facts import Assigned, Fact, Facts, Granted, Holding, Owned
from privtab.ir.formula import leaves, mapped, resolve
from privtab.ir.nodes import NEVER, Atom, Can, Compare, Formula, Or, Program, Term
from privtab.request import NOT_SET


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


def _with_values(
    exact: ImplicationChecker, found: Separation, denied_by: Formula = NEVER, unless: Formula = NEVER
) -> Separation:
    """The separation with values of attributes.

    `denied_by`, `unless`: conditions of the other side and of this one, of which nothing holds but what is among the facts.
    """
    if not (exact.program.attributes or exact.other_program.attributes):
        return found
    true = {fact.compare for fact in found.facts if isinstance(fact, Holding)}
    false: set[Compare] = set()
    if not RefusedAttributes(exact).by_second(true):
        atoms = (*leaves(exact.other_program, denied_by), *leaves(exact.program, unless))
        false = {atom for atom in atoms if isinstance(atom, Compare)} - true
    values = Comparisons(exact.program, exact.other_program).values(true, false)
    assert values is not None, "only comparisons that can hold together are facts"
    return replace(found, values=values)


def separation(exact: ImplicationChecker, first: Shape, second: Shape, *, denied: bool = True) -> Separation | None:
    """The fewest facts under which the first side allows a request and the other does not; None if there are none.

    Not `denied`: both sides allow it. Raises Undecided if that exceeds the solver's budget; once there are some facts, they are few,
    but not always the fewest.
    """
    best: Separation | None = None
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
        other, unless, other_unless = (c.get(form, NEVER) for c in (second.conditions, first.unless, second.unless))
        asked, other_asked = Or(parts=(condition, unless)), Or(parts=(other, other_unless))
        exact.check_attributes(asked, other_asked)
        other_holds = -solver.true
        if form in second.conditions and other_slots.keys() <= slots.keys():
            other_condition = solver.literal(second.conditions[form], exact.side)
            acceptable = solver.literal(refused.without_those(condition), 0)
            other_holds = solver.all_of(
                [
                    other_condition,
                    -solver.literal(other_unless, exact.side),
                    acceptable,
                    solver.requests(other_slots),
                    *(-omission for omission in omitted.values()),
                ]
            )
        applies = solver.literal(condition, 0), -solver.literal(unless, 0)
        must_hold = [*applies, -other_holds if denied else other_holds, *constraints]
        model = solver.fewest(must_hold, slots, partial(_plainest_first, exact, asked, other_asked))
        if model is not None and (best is None or len(model.facts) < len(best.facts)):
            flags = model.flags & (first.flags | second.flags)
            unset = {
                f"{flag}{NOT_SET}"
                for flag in (first.required_flags | second.required_flags) - model.flags
                if f"{flag} left off" not in model.flags
            }
            found = Separation(facts=model.facts, flags=flags | unset, types=model.types, form=form)
            best = _with_values(exact, found, other_asked if denied else other_unless, unless)
    return best


def _plainest_first(exact: ImplicationChecker, first: Formula, second: Formula) -> list[Fact]:
    """The facts that two conditions depend on, first those that take one row, about the caller alone, and by privileges.

    Grants are near their object. Who owns is the owner of the root, which objects of a request may share.
    """
    found: dict[Fact, tuple[object, ...]] = {}
    for semantics, condition in ((exact.semantics, first), (exact.other_semantics, second)):
        for atom in dict.fromkeys(leaves(semantics.program, condition)):
            denials = frozenset().union(*(given.denying for given in semantics.giving(atom)))
            for fact in (*semantics.options(atom), *denials):
                target = getattr(fact, "target", None)
                depth = 0 if target is None else len(semantics.program.chain(target.type))
                place = depth if isinstance(fact, Owned) else -depth
                found.setdefault(fact, (*_oddity(semantics.program, fact), 0 if fact in denials else place, repr(fact)))
    return sorted(found, key=found.__getitem__)


def _oddity(program: Program, fact: Fact) -> tuple[int, bool, bool, bool, bool]:
    """How many rows a fact takes besides its own, and what else makes others plainer."""
    carrier, name = getattr(fact, "carrier", None) or "user", getattr(fact, "name", None)
    by_role = getattr(fact, "kind", "") == "role"
    if isinstance(fact, Granted):
        by_role = ("user" if carrier == "user" else "group") not in program.semantics.grantees
    is_set = name is not None and name not in program.privileges
    is_denial = getattr(fact, "effect", "allow") == "deny"
    return by_role + (carrier == "group"), carrier != "user", is_set, is_denial, isinstance(fact, Assigned)
