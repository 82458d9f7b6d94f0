"""Decide with a SAT solver which conditions a state can satisfy together, without listing minimal sets.

A state is represented by facts about one caller and the objects of one request (`ir.facts`), each a variable. A condition is
a circuit over them with the meaning of `FactSemantics.holds`; two programs are two circuits over the same facts. Flags and the
types of `with` objects are variables too, so that one query covers every request. Questions have a budget.

By the same means are found the atoms that occur in some minimal set of a condition, and what holds for who has all atoms or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import finalize

from privtab.base.errors import Undecided
from privtab.base.records import dataclass
from privtab.ir import nodes as ir
from privtab.ir.comparisons import Comparisons
from privtab.ir.facts import Fact, Facts, FactsByPlace, FactSemantics, Giving
from privtab.ir.formula import resolve_can

if TYPE_CHECKING:
    from pysat.solvers import Solver as Engine

    from privtab.ir.canonical import Canonical


CONFLICTS = 10_000
"""Limit on the solver's conflicts for one finding or comparison: a second or so."""
PROPAGATIONS = 4_000_000
"""Limit on propagated literals for the same: a few seconds, for long conditions."""
LITERALS = 3_000_000
"""Limit on the literals of one circuit: a few hundred megabytes."""
_MOST_VARIABLES = 2_000
"""Variables after which a new circuit is begun, since each model assigns every variable; more if one question needs more."""
_OVER_BUDGET = f"not decided within {CONFLICTS:,} conflicts of the solver"


class Circuits:
    """Circuits of conjunctions over variables, and queries about them.

    A literal is a number, its negation the negative number. Queries raise `Undecided` if they exceed what is left of the budget;
    `renew` restores it.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._delete_engine: Callable[[], object] = lambda: None
        self._new_circuit()
        self.renew()

    def _new_circuit(self) -> None:
        from pysat.solvers import Solver as Engine

        # MiniSat tries false first, so that models have few facts; both its budgets are counts, not times.
        self._engine = Engine(name="minisat-gh")
        # Also free it at exit, before its module is unloaded.
        self._delete_engine()
        self._delete_engine = finalize(self, self._engine.delete)
        self._last_variable = self._variables_at_renewal = self._largest = 0
        self._literals_written = self._literals_at_renewal = 0
        self._gates: dict[tuple[int, ...], int] = {}
        self._inputs: dict[int, frozenset[int]] = {}
        self.true = self._new_variable()
        self._add_clause([self.true])

    def renew(self) -> None:
        """Restore the full budget for the next finding or comparison."""
        self._conflicts = CONFLICTS
        self._propagations = PROPAGATIONS
        self._largest = max(self._largest, self._last_variable - self._variables_at_renewal)
        if self._last_variable > max(_MOST_VARIABLES, 2 * self._largest) or self._literals_written > LITERALS // 2:
            self._new_circuit()
        self._variables_at_renewal, self._literals_at_renewal = self._last_variable, self._literals_written

    @property
    def spent(self) -> float:
        """The share of the budget spent since it was renewed."""
        literals = self._literals_written - self._literals_at_renewal
        return max(1 - self._conflicts / CONFLICTS, 1 - self._propagations / PROPAGATIONS, literals / LITERALS)

    def _new_variable(self) -> int:
        self._last_variable += 1
        return self._last_variable

    def _add_clause(self, literals: list[int]) -> None:
        assert self._engine is not None
        self._literals_written += len(literals)
        if self._literals_written - self._literals_at_renewal > LITERALS:
            raise Undecided(f"the conditions take more than {LITERALS:,} literals")
        self._engine.add_clause(literals)

    def all_of(self, literals: Iterable[int]) -> int:
        """The literal that holds if all the given ones do."""
        distinct: set[int] = set()
        for literal in literals:
            if literal == -self.true or -literal in distinct:
                return -self.true
            if literal != self.true:
                distinct.add(literal)
        if len(distinct) < 2:
            return next(iter(distinct), self.true)
        key = tuple(sorted(distinct))
        if key not in self._gates:
            gate = self._gates[key] = self._new_variable()
            self._inputs[gate] = frozenset(distinct)
            for literal in key:
                self._add_clause([-gate, literal])
            self._add_clause([gate, *(-literal for literal in key)])
        return self._gates[key]

    def any_of(self, literals: Iterable[int]) -> int:
        """The literal that holds if any of the given ones does."""
        return -self.all_of(-literal for literal in literals)

    def possible(self, literals: Iterable[int]) -> bool:
        """Return whether all literals can hold together. Raises Undecided if that exceeds what is left of the budget."""
        assert self._engine is not None
        assumed = {literal for literal in literals if literal != self.true}
        if -self.true in assumed or any(-literal in assumed for literal in assumed):
            return False
        for literal in assumed:  # a negated conjunction contradicts its own parts
            if self._inputs.get(-literal, frozenset()) and self._inputs[-literal] <= assumed:
                return False
        if self._conflicts <= 0 or self._propagations <= 0:
            raise Undecided(_OVER_BUDGET)
        before = self._engine.accum_stats()
        self._engine.conf_budget(self._conflicts)
        self._engine.prop_budget(self._propagations)
        answer = self._engine.solve_limited(assumptions=sorted(assumed, key=abs))
        after = self._engine.accum_stats()
        self._conflicts -= after["conflicts"] - before["conflicts"]
        # Solving costs a decision for each variable that is not propagated.
        self._propagations -= after["propagations"] - before["propagations"]
        self._propagations -= after["decisions"] - before["decisions"]
        if answer is None:
            self._conflicts = 0
            raise Undecided(_OVER_BUDGET)
        return bool(answer)

    def implies(self, premise: int, conclusion: int, *assumptions: int) -> bool:
        """Return whether the premise implies the conclusion if the given literals hold."""
        return premise == conclusion or not self.possible([premise, -conclusion, *assumptions])

    def implied(self, literals: Collection[int], candidates: Collection[int]) -> frozenset[int]:
        """The candidates that hold whenever all the literals do."""
        found: set[int] = set()
        remaining = list(dict.fromkeys(candidates))
        while remaining:
            candidate = remaining.pop()
            if self.possible([*literals, -candidate]):
                if remaining:  # what does not hold in this model is not implied
                    true_literals = self._true_literals()
                    remaining = [other for other in remaining if (abs(other) in true_literals) == (other > 0)]
            else:
                found.add(candidate)
        return frozenset(found)

    def _true_literals(self) -> frozenset[int]:
        assert self._engine is not None
        return frozenset(number for number in self._engine.get_model() if number > 0)


Slots = Mapping[str, Collection[str]]
"""The types that the object in each `with` slot may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A request and a state: flags, the type of each object, and facts."""

    facts: Facts
    flags: frozenset[str]
    types: dict[str, str]


class Solver(Circuits):
    """Circuits for conditions under the semantics of one or two programs, and queries about them."""

    def __init__(self, *sides: FactSemantics) -> None:
        self.sides = sides
        one_program = len({id(semantics) for semantics in sides}) == 1
        self._giving = [semantics.plainest if one_program else semantics.every for semantics in sides]
        self._comparisons = Comparisons(*(semantics.program for semantics in sides))
        super().__init__()

    @property
    def facts(self) -> Iterable[Fact]:
        """The facts of all conditions so far."""
        return self._facts

    def _new_circuit(self) -> None:
        super()._new_circuit()
        self._facts: dict[Fact, int] = {}
        self._compared: dict[ir.Compare, int] = {}
        self._flags: dict[str, int] = {}
        self._type_literals: dict[str, dict[str, int]] = {}
        self._cache: dict[tuple[object, ...], int] = {}
        self._by_identity: dict[tuple[int, int], tuple[ir.Atom, int]] = {}

    def flag(self, name: str) -> int:
        """The literal of a flag of the request."""
        if name not in self._flags:
            self._flags[name] = self._new_variable()
        return self._flags[name]

    def type_of(self, slot: str, type_: str) -> int:
        """The literal that the object in a slot has a type; no two types hold at once."""
        known = self._type_literals.setdefault(slot, {})
        if type_ not in known:
            literal = self._new_variable()
            for other in known.values():
                self._add_clause([-literal, -other])
            known[type_] = literal
        return known[type_]

    def literal(self, formula: ir.Formula, side: int = 0) -> int:
        """The literal of a condition under the semantics of one side."""
        match formula:
            case ir.And():
                return self.all_of([self.literal(part, side) for part in formula.parts])
            case ir.Or():
                return self.any_of([self.literal(part, side) for part in formula.parts])
            case ir.When():
                return self.any_of([-self.flag(formula.flag), self.literal(formula.body, side)])
            case ir.Can():
                key = ("can", side, formula.target.slot, formula.target.type, formula.operation)
                if key not in self._cache:
                    self._cache[key] = self.literal(resolve_can(self.sides[side].program, formula), side)
                return self._cache[key]
            case ir.ByType():
                cases = (
                    self.all_of([self.type_of(formula.slot, type_), self.literal(case_, side)])
                    for type_, case_ in formula.cases
                )
                return self.any_of(list(cases))
            case _:
                return self._atom_literal(formula, side)

    def _atom_literal(self, atom: ir.Atom, side: int) -> int:
        # Long conditions are visited often: look atoms up by identity first, since hashing them costs more.
        known = self._by_identity.get((side, id(atom)))
        if known is not None and known[0] is atom:
            return known[1]
        key = (side, atom)
        if key not in self._cache:
            self._cache[key] = self._atom(atom, side)
        self._by_identity[side, id(atom)] = atom, self._cache[key]
        return self._cache[key]

    def _atom(self, atom: ir.Atom, side: int) -> int:
        """The circuit of an atom, by the facts that give it."""
        found = [self._given(given) for given in self._giving[side].of(atom)]
        if isinstance(atom, ir.Compare):
            self._compared[atom] = found[0]
        return self.any_of(found)

    def _given(self, given: Giving) -> int:
        granted = self.all_of([self._any_place(given.grants), -self._any_place(given.denials)])
        return self.any_of([granted, self._any_place(given.firm)])

    def _any_place(self, places: FactsByPlace) -> int:
        """Return whether there is one of the facts on a path; circuits are shared along it."""
        found = -self.true
        for facts in places:
            found = self.any_of([found, self._any_fact(facts)])
        return found

    def _any_fact(self, facts: Iterable[Fact]) -> int:
        literals = []
        for fact in facts:
            if fact not in self._facts:
                self._facts[fact] = self._new_variable()
            literals.append(self._facts[fact])
        return self.any_of(literals)

    # Questions.

    def possible(self, literals: Iterable[int]) -> bool:
        """As in `Circuits`. Where values contradict the comparisons of an answer, a clause excludes that, and the solver goes on."""
        assumed = list(literals)
        while super().possible(assumed):
            if not self._compared:
                return True
            true_literals = self._true_literals()
            # In an order, not as sets: which clause is found decides how much of the budget the next answers take.
            true, false = (
                [c for c, n in self._compared.items() if (n in true_literals) is holds] for holds in (True, False)
            )
            conflict = self._comparisons.conflict(true, false)
            if conflict is None:
                return True
            self._add_clause([*(-self._compared[c] for c in conflict[0]), *(self._compared[c] for c in conflict[1])])
        return False

    def requests(self, slots: Slots) -> int:
        """The literal that the object in each slot has one of its types."""
        return self.all_of([self.any_of([self.type_of(slot, t) for t in types]) for slot, types in slots.items()])

    def with_flags(self, flags: frozenset[str]) -> list[int]:
        """The literals that the request sets exactly these flags."""
        for name in flags:
            self.flag(name)
        return [number if name in flags else -number for name, number in self._flags.items()]

    def model(self, literals: Collection[int], slots: Slots) -> Model | None:
        """A request and few facts under which all literals hold, or None if there are none.

        No single fact can be removed. `slots`: as for `requests`, which must hold too.
        """
        assumptions = [*literals, self.requests(slots)]
        if not self.possible(assumptions):
            return None
        found = self._model(self._true_literals(), slots)
        facts = list(found.facts)
        fixed = [number if name in found.flags else -number for name, number in self._flags.items()]
        fixed += [self.type_of(slot, type_) for slot, type_ in found.types.items()]
        absent = [-number for fact, number in self._facts.items() if fact not in found.facts]
        for fact in tuple(facts):
            if fact in facts and self.possible([*assumptions, *fixed, *absent, -self._facts[fact]]):
                still_true = self._true_literals()
                absent += [-self._facts[f] for f in facts if self._facts[f] not in still_true]
                facts = [f for f in facts if self._facts[f] in still_true]
        return replace(found, facts=frozenset(facts))

    def _model(self, true: Collection[int], slots: Slots) -> Model:
        """The request and the facts that some true literals say."""
        return Model(
            facts=frozenset(fact for fact, number in self._facts.items() if number in true),
            flags=frozenset(name for name, number in self._flags.items() if number in true),
            types={
                slot: next(t for t in types if self.type_of(slot, t) in true or len(types) == 1)
                for slot, types in slots.items()
            },
        )

    def fewest(self, literals: Collection[int], slots: Slots, facts: Callable[[], Iterable[Fact]]) -> Model | None:
        """As `model`, with the fewest facts there are, few flags, and facts that come first.

        `facts`: those that the literals depend on. If that exceeds the budget, the facts are few, but not always the fewest.
        """
        assumed = [*literals, self.requests(slots)]
        if not self.possible(assumed):
            return None
        true = self._true_literals()
        numbers = [self._facts[fact] for fact in facts() if fact in self._facts]
        assumed += [-number for number in set(self._facts.values()).difference(numbers)]
        types = [self.type_of(slot, type_) for slot, types in slots.items() for type_ in types]
        wanted = [*(-number for number in self._flags.values()), *types, *(-number for number in reversed(numbers))]
        try:
            assert self.possible(assumed), "no other facts matter"
            true = self._true_literals()
            known = sum(number in true for number in numbers)
            more_than = self._counted(numbers, known)
            while known and self.possible([*assumed, -more_than[known - 1]]):
                true = self._true_literals()
                known = sum(number in true for number in numbers)
            assumed += [-literal for literal in more_than[known : known + 1]]
            for literal in wanted:
                if (abs(literal) in true) != (literal > 0):
                    if not self.possible([*assumed, literal]):
                        continue
                    true = self._true_literals()
                assumed.append(literal)
        except Undecided:
            pass
        return self._model(true, slots)

    def _counted(self, variables: list[int], most: int) -> list[int]:
        """The literals that more than none, more than one, … of some variables hold, up to a number."""
        from pysat.card import ITotalizer

        with ITotalizer(lits=variables, ubound=most, top_id=self._last_variable) as total:
            for clause in total.cnf.clauses:
                self._add_clause(clause)
            self._last_variable = max(self._last_variable, total.top_id)
            return list(total.rhs)


class NeededAtoms(Solver):
    """Finds the atoms that occur in some minimal set of a condition, for given flags and types of objects.

    A state is a set of atoms that is closed under entailment. An atom is needed if such a set satisfies the condition, and without
    the atom is still closed but no longer satisfies the condition.
    """

    def __init__(self, semantics: FactSemantics) -> None:
        self._without: dict[ir.Atom, int] = {}
        super().__init__(semantics, semantics)

    def _atom(self, atom: ir.Atom, side: int) -> int:
        if side == 0:
            literal = self._new_variable()
            if isinstance(atom, ir.Compare):
                self._compared[atom] = literal
            return literal
        if atom not in self._without:
            self._without[atom] = self._new_variable()
        return self.all_of([self._atom_literal(atom, 0), -self._without[atom]])

    def needed(
        self,
        conditions: Iterable[ir.Formula],
        slots: Slots,
        known: Collection[ir.Atom],
        form: Canonical,
    ) -> frozenset[ir.Atom]:
        """The atoms that are needed for one of the conditions, except those already `known` to be needed.

        Of atoms that entail each other, the first counts for all, as in the minimal sets of `form`.
        """
        literal_pairs = [(self.literal(formula, 0), self.literal(formula, 1)) for formula in conditions]
        entailments = list(form.entailments(tuple(self._without)))
        equal = {(a, b) for (a, *more), b in entailments if not more} & {(b, a) for (a, *_), b in entailments}
        same = {b: a for a, b in sorted(equal, key=lambda pair: form.order(pair[0]), reverse=True)}
        same = {b: a for b, a in same.items() if form.order(a) < form.order(b)}
        for atom, first in same.items():
            self._add_clause([-self._without[first], self._without[atom]])
            self._add_clause([self._without[first], -self._without[atom]])
        for premises, conclusion in entailments:
            negated_premises = [-self._atom_literal(atom, 0) for atom in premises]
            self._add_clause([*negated_premises, self._atom_literal(conclusion, 0)])
            if not (len(premises) == 1 and (premises[0], conclusion) in equal):
                self._add_clause([*negated_premises, -self._without[conclusion]])
        removable = [self._without[atom] for atom in self._without if atom not in known and atom not in same]
        for atom, literal in self._without.items():
            self._add_clause([-literal, -self.true if atom in known else self._atom_literal(atom, 0)])
        self._at_most_one(removable)
        found: set[ir.Atom] = set()
        atoms_by_literal = {literal: atom for atom, literal in self._without.items()}
        for full, without in literal_pairs:
            while self.possible([full, -without, self.requests(slots)]):
                removed = next(literal for literal in self._true_literals() if literal in atoms_by_literal)
                found.add(atoms_by_literal[removed])
                self._add_clause([-removed])
        return frozenset(found)

    def _at_most_one(self, literals: list[int]) -> None:
        any_before = -self.true
        for literal in literals:
            self._add_clause([-any_before, -literal])
            any_so_far = self._new_variable()
            self._add_clause([-any_before, any_so_far])
            self._add_clause([-literal, any_so_far])
            any_before = any_so_far


class FullAccess(Solver):
    """The solver for a caller who holds every atom, with any values of attributes."""

    def _atom(self, atom: ir.Atom, side: int) -> int:
        return super()._atom(atom, side) if isinstance(atom, ir.Compare) else self.true


class NoAccess(Solver):
    """The solver for a caller who holds no atom."""

    def _atom(self, atom: ir.Atom, side: int) -> int:
        del atom, side
        return -self.true
