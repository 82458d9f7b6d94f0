"""Exact implication between conditions, over every state and request, within a program or between two.

A SAT solver (`ir.solver`) decides implication. The objects in different slots of a request are assumed to differ: a request that
names one object twice has fewer states, and each of them has an equivalent among the states of two objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, partial
from typing import assert_never

from privtab.base.errors import Undecided
from privtab.ir import nodes as ir
from privtab.ir.canonical import Leaf, canonical_form
from privtab.ir.comparisons import Comparisons
from privtab.ir.facts import Fact, Facts, FactSemantics
from privtab.ir.formula import Truth, resolve_can, uses_below, walk_condition, walk_reached, without_name
from privtab.ir.shapes import depends_on_request
from privtab.ir.solver import Slots, Solver
from privtab.ir.unroll import levels_that_matter, unrolled

RELATED = (ir.Below, ir.Compare)
"""Atoms for which entailment between minimal sets is not complete."""


class ImplicationChecker:
    """Compares the conditions of one program with the conditions of another, or of itself.

    `unused_names`: names of sets and aliases that no grant of a state uses. `slots`: as for `FactSemantics`.

    Example:
        ImplicationChecker(before, after).always_implies(rule, rule.requires, later.requires)
    """

    def __init__(
        self,
        program: ir.Program,
        other_program: ir.Program | None = None,
        unused_names: frozenset[str] = frozenset(),
        slots: frozenset[str] = frozenset(),
    ) -> None:
        self.program = program
        self.other_program = program if other_program is None else other_program
        self.slots = slots | self.program.slots | self.other_program.slots
        sides = (program,) if other_program is None else (program, other_program)
        semantics = [FactSemantics(side, unused_names, self.slots) for side in sides]
        self.semantics, self.other_semantics = semantics[0], semantics[-1]
        self.same_semantics = other_program is None or _same_semantics(program, other_program)
        self._same_words: dict[str, bool] = {}
        self._same_paths: dict[str, bool] = {}
        self._last_truth: tuple[ir.Atom | tuple[Leaf, ...], Truth] | None = None
        self._nests = self.program.nests or self.other_program.nests
        self._unused_names = unused_names
        self._unrolled: dict[int, ImplicationChecker] = {}

    @cached_property
    def comparisons(self) -> Comparisons:
        """What comparisons of attributes mean in both programs."""
        return Comparisons(self.program, self.other_program)

    @staticmethod
    def compared(facts: Facts) -> set[ir.Compare]:
        """The comparisons among some facts."""
        return {fact.compare for fact in facts if fact.kind == "comparison"}

    @cached_property
    def solver(self) -> Solver:
        """Circuits for the conditions of both programs: side 0 and side 1, or side 0 alone if the programs are the same."""
        return Solver(self.semantics, self.other_semantics)

    def always_implies(
        self,
        rule: ir.Rule,
        f: ir.Formula,
        g: ir.Formula,
        flags: frozenset[str] | None = None,
        *,
        unnamed: str | None = None,
    ) -> bool:
        """Return whether `f` in one program implies `g` in the other for every request of a rule, whatever the types of its objects.

        `flags`: those that the request sets; None: any. Raises Undecided if that exceeds the solver's budget.
        """
        decided = self._implied_by_sets(f, g) if unnamed is None and self._plain else None
        slots = {slot.name: slot.types for slot in rule.withs}
        return self.implies_with(f, g, flags, slots, unnamed) if decided is None else decided

    @cached_property
    def _plain(self) -> bool:
        """True if both programs are one, without implied privileges, objects with a root in common, and `or below`."""
        program = self.program
        related = self._nests or program.implies or program.shared or uses_below(program)
        return self.side == 0 and not related

    def _implied_by_sets(self, f: ir.Formula, g: ir.Formula) -> bool | None:
        """The solver's answer, in less time; None if a condition depends on the request or has too many minimal sets."""
        if any(
            depends_on_request(self.program, h) or any(isinstance(a, RELATED) for a in walk_condition(h))
            for h in (f, g)
        ):
            return None
        if isinstance(g, ir.Atomic) and g.kind.alone:
            return not self._truth(g, lambda atom: atom != g).fold(f)
        try:
            found = canonical_form(self.program).minimal_sets(f)
        except Undecided:
            return None
        entails = canonical_form(self.program).entails
        return all(self._truth(row, partial(entails, frozenset(row))).fold(g) for row in found)

    def _truth(self, key: ir.Atom | tuple[Leaf, ...], holds: Callable[[ir.Atom], bool]) -> Truth:
        """Decides conditions by `holds`; the last one is kept, which is that of a gate if there are many."""
        if self._last_truth is None or self._last_truth[0] != key:
            self._last_truth = key, Truth(self.program, (), {}, holds)
        return self._last_truth[1]

    def implies_with(
        self, f: ir.Formula, g: ir.Formula, flags: frozenset[str] | None, slots: Slots, unnamed: str | None
    ) -> bool:
        """As `always_implies`, with the types of the objects in each slot."""
        if self._nests:
            self.check_below(f, g)
            most = levels_that_matter((self.program, f), (self.other_program, g))
            first, second = unrolled(self.program), unrolled(self.other_program)
            return all(
                self.at_most(most).implies_with(
                    first.formula(f, levels),
                    second.formula(g, levels),
                    flags,
                    {slot: [first.at(type_, levels.get(slot, 1)) for type_ in types] for slot, types in slots.items()},
                    None if unnamed is None else first.at(unnamed, levels.get(ir.RESOURCE, 1)),
                )
                for levels in first.requests((f, g), most)
            )
        if unnamed is not None:
            f, g = without_name(self.program, f, unnamed), without_name(self.other_program, g, unnamed)
        self.check_attributes(f, g)
        self.check_below(f, g)
        solver = self.solver
        solver.renew()
        assumptions = [solver.literal(f, 0), -solver.literal(g, self.side), solver.requests(slots)]
        return not solver.possible([*assumptions, *(() if flags is None else solver.with_flags(flags))])

    def at_most(self, levels: int) -> ImplicationChecker:
        """The checker of the unrolled programs, for paths of at most this many levels."""
        if levels not in self._unrolled:
            one_program = self.other_program is self.program
            self._unrolled[levels] = ImplicationChecker(
                unrolled(self.program).at_most(levels),
                None if one_program else unrolled(self.other_program).at_most(levels),
                self._unused_names,
                self.slots,
            )
        return self._unrolled[levels]

    @property
    def side(self) -> int:
        """The number of the other program in the solver."""
        return 0 if self.semantics is self.other_semantics else 1

    def alike(self, f: ir.Formula, g: ir.Formula) -> bool:
        """Return whether everything that `f` in one program and `g` in the other refer to means the same in both."""
        if self.semantics is self.other_semantics:
            return True
        return self.same_semantics and all(
            self._node_means_the_same(node)
            for node in (*walk_reached(self.program, f), *walk_reached(self.other_program, g))
        )

    def means_the_same(self, formula: ir.Formula) -> bool:
        """Return whether both programs understand the names of a condition in the same way; a `can` is not followed."""
        return all(map(self._node_means_the_same, walk_condition(formula)))

    def _node_means_the_same(self, node: ir.Formula) -> bool:
        """Return whether the same names and roles give a privilege in both programs, and a target lies on the same path."""
        match node:
            case ir.Has():
                if node.privilege not in self._same_words:
                    self._same_words[node.privilege] = self.semantics.grantable_names(
                        node.privilege
                    ) == self.other_semantics.grantable_names(node.privilege)
                return self._same_words[node.privilege] and self.same_path(node.target.type)
            case ir.HasBelow(privilege=privilege, target=target):
                own = ir.Has(privilege=privilege, target=target)
                return self._node_means_the_same(own) and self._same_below(target)
            case ir.OwnsBelow(target=target):
                return self.same_path(target.type) and self._same_below(target)
            case ir.OnTarget() | ir.Can():
                return self.same_path(node.target.type)
            case ir.ByType():
                return all(self.same_path(type_) for type_, _ in node.cases)
            case ir.Compare():
                return self.same_attributes(node) and all(self.same_path(target.type) for target in node.targets)
            case ir.Atomic() | ir.And() | ir.Or() | ir.When():
                return True
            case _:
                assert_never(node)

    def same_attributes(self, compare: ir.Compare) -> bool:
        """Return whether both programs declare the compared attributes in the same way."""
        programs = self.program, self.other_program
        return all(programs[0].attribute(term) == programs[1].attribute(term) for term in compare.terms)

    def _same_below(self, target: ir.Target) -> bool:
        """Return whether the same types lie below a target in both programs."""
        both = [semantics.at_or_below(target) for semantics in (self.semantics, self.other_semantics)]
        return {*both[0]} == {*both[1]} and all(self.same_path(place.type) for place in both[0])

    def check_attributes(self, f: ir.Formula, g: ir.Formula) -> None:
        """Raise Undecided for comparisons of attributes that the two programs declare differently."""
        if self.other_program is self.program or not (self.program.attributes and self.other_program.attributes):
            return
        for node in (*walk_reached(self.program, f), *walk_reached(self.other_program, g)):
            for term in node.terms if isinstance(node, ir.Compare) else ():
                declared = self.program.attribute(term), self.other_program.attribute(term)
                if None not in declared and declared[0] != declared[1]:
                    raise Undecided(f"not decided: the policies declare `{term.attribute}` differently")

    def same_below(self, nodes: Iterable[ir.Formula], f: ir.Formula, g: ir.Formula) -> bool:
        """Return whether the nodes of two conditions ask for nothing below entities that means different things in the two programs."""
        return not any(isinstance(node, ir.Below) for node in nodes) or self.alike(f, g)

    def check_below(self, f: ir.Formula, g: ir.Formula) -> None:
        """Raise Undecided for conditions on what is held below that mean different things in the two programs."""
        if not self.same_below((*walk_reached(self.program, f), *walk_reached(self.other_program, g)), f, g):
            raise Undecided("not decided: `or below` under declarations that differ")

    def same_path(self, type_: str) -> bool:
        """Return whether entities of a type lie on the same path in both programs."""
        if type_ not in self._same_paths:
            self._same_paths[type_] = self.semantics.place(type_) == self.other_semantics.place(type_)
        return self._same_paths[type_]

    def implies(
        self,
        f: ir.Formula,
        g: ir.Formula,
        flags: frozenset[str] = frozenset(),
        types: Mapping[str, str] | None = None,
        *,
        unnamed: str | None = None,
    ) -> bool:
        """Return whether every state that gives `f` in one program gives `g` in the other.

        `flags`: those that the request sets. `types`: the type of the object in each `with` slot that allows several.
        `unnamed`: the resource's type, if the request omits its last name.
        """
        return self.implies_with(f, g, flags, {slot: (type_,) for slot, type_ in (types or {}).items()}, unnamed)


def _same_semantics(first: ir.Program, second: ir.Program) -> bool:
    """Return whether the file-wide semantics are the same, apart from the names of privileges and types."""

    def meaning(program: ir.Program) -> tuple[object, ...]:
        semantics = program.semantics
        owner = semantics.owner and (frozenset(semantics.owner.kinds), frozenset(semantics.owner.holds))
        return semantics.inheritance, semantics.deny, owner, frozenset(semantics.groups), semantics.everyone

    return meaning(first) == meaning(second)


def unrelated(semantics: FactSemantics, formulas: Iterable[ir.Formula], types: Mapping[str, Collection[str]]) -> bool:
    """Return whether the conditions neither repeat an atom nor contain atoms that affect each other: no fact gives or denies two of them.

    If so, each part of them affects the decision. `types`: the types of the object in each `with` slot.
    """
    known: set[Fact] = set()
    waiting = list(formulas)
    while waiting:
        node = waiting.pop()
        match node:
            case ir.Can():
                waiting.append(resolve_can(semantics.program, node))
            case ir.And() | ir.Or():
                if not node.parts:
                    return False
                waiting += node.parts
            case ir.When():
                waiting.append(node.body)
            case ir.ByType():
                if len(types[node.slot]) > 1:
                    return False
                waiting += (case_ for type_, case_ in node.cases if type_ in types[node.slot])
            case ir.Compare():
                return False  # values decide which comparisons hold together
            case _:
                if any(target.level != "nearest" for target in node.targets):
                    return False  # other levels of the same type affect each other
                facts = semantics.plainest.about(node)
                if not known.isdisjoint(facts):
                    return False
                known |= facts
    return True
