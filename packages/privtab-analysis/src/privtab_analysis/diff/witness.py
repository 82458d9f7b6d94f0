"""Facts that distinguish two conditions, and from them that distinguish two programs into a state and a request, checked by the reference under both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

from privtab.base import NOT_SET, Entity, InvalidRequest, Request, base_type, dataclass
from privtab.ir import (
    NEVER,
    Atom,
    Can,
    Compare,
    Fact,
    Formula,
    ImplicationChecker,
    Or,
    Program,
    Rule,
    Target,
    Term,
    reached_atoms,
    replace_atoms,
    resolve_can,
)
from privtab.reference import EvaluationContext, Reference
from privtab.state import from_tables, validate
from privtab_analysis.diff.nodes import Decided, PathForm, Shape, Shows, Tables, Types, Witness
from privtab_analysis.diff.witness_builder import WitnessBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """A kind of request, and facts under which one side allows it and the other denies it."""

    facts: frozenset[Fact]
    flags: frozenset[str]
    types: Types
    form: PathForm
    """The form of the path of the resource."""
    values: Mapping[Term, Any] = field(default_factory=dict)
    """Values of attributes under which the comparisons among the facts hold, and no others that matter."""


def _without_refused(exact: ImplicationChecker, condition: Formula) -> Formula:
    """A condition of the first side for requests that the second does not refuse."""
    if not exact.program.attributes:
        return condition

    def leaf(part: Atom | Can) -> Formula:
        if isinstance(part, Can):
            return replace_atoms(resolve_can(exact.program, part), leaf)
        return NEVER if _refused(exact.program, exact.other_program, [part]) else part

    return replace_atoms(condition, leaf)


def _refused(own: Program, other: Program, conditions: Iterable[Formula]) -> list[Compare]:
    """Comparisons that hold only where a request gives an attribute of one side, which makes it invalid for the other."""
    if not own.attributes:
        return []
    return [
        atom
        for condition in conditions
        for atom in dict.fromkeys(reached_atoms(own, condition))
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
    true = exact.compared(found.facts)
    false: set[Compare] = set()
    if not _refused(exact.program, exact.other_program, true):
        atoms = (*reached_atoms(exact.other_program, denied_by), *reached_atoms(exact.program, unless))
        false = {atom for atom in atoms if isinstance(atom, Compare)} - true
    values = exact.comparisons.values(true, false)
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
    slots = {slot.name: slot.types for slot in first.rule.withs}
    other_slots = {slot.name: slot.types for slot in second.rule.withs}
    # A request may omit a flag that only the other side requires; a flag that is set is never omitted.
    omitted = {flag: solver.flag(f"{flag} left off") for flag in second.required_flags - first.required_flags}
    flag_constraints = [solver.any_of([-solver.flag(flag), -omission]) for flag, omission in omitted.items()]
    # What only one side lets requests give makes a request invalid for the other.
    only_second = [
        solver.literal(c, exact.side) for c in _refused(exact.other_program, exact.program, second.conditions.values())
    ]
    constraints = [*flag_constraints, *(-literal for literal in only_second)]
    for form, condition in first.conditions.items():
        other, unless, other_unless = (c.get(form, NEVER) for c in (second.conditions, first.unless, second.unless))
        asked, other_asked = Or(parts=(condition, unless)), Or(parts=(other, other_unless))
        exact.check_attributes(asked, other_asked)
        other_holds = -solver.true
        if form in second.conditions and other_slots.keys() <= slots.keys():
            other_condition = solver.literal(second.conditions[form], exact.side)
            acceptable = solver.literal(_without_refused(exact, condition), 0)
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
        model = solver.fewest(must_hold, slots, partial(_plainest_facts, exact, asked, other_asked))
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


def _plainest_facts(exact: ImplicationChecker, f: Formula, g: Formula) -> list[Fact]:
    """The facts that `f` in one program and `g` in the other depend on, plainest first.

    The first facts take one row, about the caller alone, and name privileges. Grants are near their object. Who owns is the owner of
    the root, which objects of a request may share. Last are comparisons in other conditions, which these may imply.
    """
    found: dict[Fact, tuple[object, ...]] = {}
    for semantics, condition in ((exact.semantics, f), (exact.other_semantics, g)):
        for atom in dict.fromkeys(reached_atoms(semantics.program, condition)):
            denials = frozenset().union(*(given.denying for given in semantics.giving(atom)))
            for fact in (*semantics.options(atom), *denials):
                target = getattr(fact, "target", None)
                depth = 0 if target is None else len(semantics.program.chain(target.type))
                place = depth if fact.kind == "owner" else -depth
                oddity = _oddity(semantics.program, fact)
                found.setdefault(fact, (*oddity, 0 if fact in denials else place, repr(fact)))
    others = (fact for fact in exact.solver.facts if fact.kind == "comparison" and fact not in found)
    return [*sorted(found, key=found.__getitem__), *others]


def _oddity(program: Program, fact: Fact) -> tuple[int, bool, bool, bool, bool]:
    """The number of rows that a fact takes besides its own, and further reasons to prefer other facts."""
    carrier, name = getattr(fact, "carrier", None) or "user", getattr(fact, "name", None)
    by_role = fact.kind == "owner" and fact.owner == "role"
    if fact.kind == "grant":
        by_role = ("user" if carrier == "user" else "group") not in program.semantics.grantees
    is_set = name is not None and name not in program.privileges
    is_denial = fact.kind == "grant" and fact.effect == "deny"
    return by_role + (carrier == "group"), carrier != "user", is_set, is_denial, fact.kind == "assignment"


class ProgramPairWitnessBuilder(WitnessBuilder):
    """A witness for two programs: types that only one of them has get names by their depth."""

    def __init__(
        self,
        shape: Shape,
        other: Program,
        original_types: Mapping[str, str],
        separation: Separation,
        *,
        separate_ancestors: bool,
    ) -> None:
        """`original_types`: the original names of types that were renamed for the comparison."""
        unnamed = separation.form.slash or separation.form.names < shape.program.depth(shape.rule.entity)
        super().__init__(
            shape.program,
            shape.rule,
            separation.types,
            separation.facts,
            values=separation.values,
            unnamed=unnamed,
            separate_ancestors=separate_ancestors,
            slash=separation.form.slash,
        )
        self.other_program = other
        self.original_types = original_types

    def entity(self, target: Target) -> Entity:
        """The entity that a target stands for."""
        names = self.path_names(Target(slot=target.slot, type=self.types[target.slot]))
        known = self.program if target.type in self.program.entities else self.other_program
        if known.depth(target.type) > len(names):  # below the object of the request
            named = [link for link in known.chain(target.type) if not known.entities[link].single]
            names += [f"{target.slot or 'resource'}_{base_type(link)}" for link in named[len(names) :]]
        found = self._entity(known, target.type, names[: known.depth(target.type)])
        return Entity(self.original_types.get(found.type, found.type), found.id)

    @property
    def grantees(self) -> Collection[str]:
        """The kinds that both programs take, if any."""
        own, others = self.program.semantics.grantees, self.other_program.semantics.grantees
        return [kind for kind in own if kind in others] or own

    @property
    def assignees(self) -> Collection[str]:
        """The kinds that both programs take, if any."""
        own, others = self.program.semantics.assignees, self.other_program.semantics.assignees
        return [kind for kind in own if kind in others] or own

    def is_in_state(self, term: Term) -> bool:
        """As WitnessBuilder.is_in_state, for attributes of either program."""
        declared = self.program.attribute(term) or self.other_program.attribute(term)
        return declared is not None and "state" in declared.origins


class WitnessCheck:
    """Checks witnesses for one row by the reference under both programs, each without the state rows unknown to it."""

    def __init__(self, before: Program, after: Program, rules: tuple[Rule, Rule]) -> None:
        self.before, self.after = before, after
        self._needs_role = any(rule.needs_active_role for rule in rules)

    def witness(
        self, shows: Shows, shape: Shape, other: Program, original_types: Mapping[str, str], separation: Separation
    ) -> Witness:
        """Return the facts as a state and a request. Raises AssertionError unless both sides answer as expected."""
        expected = {"wider": (False, True), "narrower": (True, False), "effects": (True, True)}[shows]
        witness: Witness | None = None
        for separate_ancestors in (False, True) if shape.rule.withs else (True,):
            builder = ProgramPairWitnessBuilder(
                shape, other, original_types, separation, separate_ancestors=separate_ancestors
            )
            witness = self._decide(shows, *self._as_role(builder.request(separation.flags), builder.tables()))
            if (witness.before == "allow", witness.after == "allow") == expected:
                return self._minimised(witness)
        raise AssertionError(f"{shape.rule.id}: this witness does not show it: {witness}")

    def _as_role(self, request: Request, tables: Tables) -> tuple[Request, Tables]:
        """With an active role that the caller holds, where a side needs one; all other roles are active as well."""
        if not self._needs_role:
            return request, tables
        held = [*tables.get("assignments", ()), {"principal": f"user:{request.user}", "role": "active"}]
        roles = tuple(dict.fromkeys(row["role"] for row in reversed(held)))
        return replace(request, active_roles=roles), {**tables, "assignments": held}

    def _minimised(self, witness: Witness) -> Witness:
        """The witness without unneeded rows: without any remaining row, the answers are others."""

        def shown(found: Witness) -> object:
            return found.before, found.after, found.effects_before, found.effects_after

        shorter = True
        while shorter:
            shorter = False
            for table, at in [
                (table, at) for table, rows in witness.state.items() for at in reversed(range(len(rows)))
            ]:
                rows = witness.state[table]
                fewer = {**witness.state, table: [*rows[:at], *rows[at + 1 :]]}
                tables = {name: listed for name, listed in fewer.items() if listed}
                tried = self._decide(witness.shows, witness.request, tables)
                if shown(tried) == shown(witness):
                    witness, shorter = tried, True
                    break
        return witness

    def _decide(self, shows: Shows, request: Request, state: Tables) -> Witness:
        before, effects_before = answer(self.before, state, request)
        after, effects_after = answer(self.after, state, request)
        return Witness(
            shows=shows,
            request=request,
            state=state,
            before=before,
            after=after,
            effects_before=effects_before,
            effects_after=effects_after,
        )


def answer(program: Program, tables: Tables, request: Request) -> tuple[Decided, tuple[str, ...]]:
    """The answer that `privtab decide` gives, and the effects of an allow."""
    state, _ = validate(program, from_tables(tables, "witness"), notes=False)
    reference = Reference(program, state)
    rule = program.rules.get((request.resource.type, request.action))
    try:
        reference.vocabulary.check(request)
    except InvalidRequest:
        return "invalid", ()
    assert rule is not None
    # As in `Reference.decide`, without looking for other ways to an allow.
    evaluation = EvaluationContext(reference, request)
    if evaluation.unheld or not evaluation.holds(evaluation.condition(rule)):
        return "deny", ()
    if any(map(evaluation.holds, map(evaluation.condition, program.earlier(rule.entity, rule.operation)))):
        return "deny", ()
    if (filter_ := program.filter_of(rule.entity, rule.operation)) is not None:
        return "allow", (filter_.sql,)
    return "allow", tuple(map(evaluation.effect_text, (*rule.effects, *rule.delegations)))
