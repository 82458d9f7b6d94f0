"""Exact implication between conditions, over every state and request, within a program or between two.

A SAT solver (`ir.solver`) decides implication. This module finds the smallest counterexample: a condition is monotone in grants,
ownership, memberships and assignments, and antitone in denials, so `f` fails to imply `g` exactly if some minimal set of `f` can
be given in such a way that `g` does not hold once every denial is added that leaves the set intact. There are few ways to give
a set, and of two ways, only the one that gives less has to be tried:

* a privilege by a grant on the object itself, unless a grant further up has less effect in the other program;
* a privilege by ownership of the object or of one above it, if ownership confers the privilege;
* a privilege by a declared role, if the role differs in the other program;
* anything through a group, if the other program takes groups from elsewhere.

The objects in different slots of a request are assumed to differ: a request that names one object twice has fewer states, and
each of them has an equivalent among the states of two objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain, combinations, islice, product
from math import prod
from typing import assert_never

from privtab.errors import Undecided, UnsupportedError
from privtab.ir.canonical import AtomSet, Leaf, canonical
from privtab.ir.facts import (
    Administers,
    Assigned,
    Carrier,
    Fact,
    Facts,
    FactSemantics,
    Granted,
    GrantedBelow,
    HasRole,
    Is,
    Joined,
    Owned,
    OwnedBelow,
)
from privtab.ir.formula import Truth, depends_on_request, followed, leaves, rule_flags, uses_below, walk, without_name
from privtab.ir.nodes import (
    RESOURCE,
    And,
    Atom,
    ByType,
    Can,
    Formula,
    Has,
    HasBelow,
    Holds,
    Member,
    Or,
    Owner,
    OwnsBelow,
    Program,
    Rule,
    Self,
    ServiceAdmin,
    Target,
    When,
)
from privtab.ir.solver import Slots, Solver
from privtab.ir.unroll import Levels, levels_that_matter, nests, unrolled
from privtab.paths import base_type

_BELOW = (HasBelow, OwnsBelow)
_MAX_COMBINATIONS = 50_000
"""Limit on the ways to give one minimal set; to exceed it, a table would have to ask for a dozen things through a dozen owners."""


class ImplicationChecker:
    """Compares the conditions of one program with those of another, or of itself.

    `unused_names`: names of sets and aliases that no grant of a state uses.
    """

    def __init__(
        self, program: Program, other_program: Program | None = None, unused_names: frozenset[str] = frozenset()
    ) -> None:
        self.program = program
        self.other_program = program if other_program is None else other_program
        self.semantics = FactSemantics(program, unused_names)
        self.other_semantics = self.semantics if other_program is None else FactSemantics(other_program, unused_names)
        self._alike = other_program is None or _same_semantics(program, other_program)
        self._same_words: dict[str, bool] = {}
        self._last_truth: tuple[Atom | tuple[Leaf, ...], Truth] | None = None
        self._nests = nests(self.program) or nests(self.other_program)
        self._unused_names = unused_names
        self._unrolled: dict[int, ImplicationChecker] = {}

    @cached_property
    def solver(self) -> Solver:
        """Circuits for the conditions of both programs: side 0 and side 1, or side 0 alone if the programs are the same."""
        return Solver(self.semantics, self.other_semantics)

    def always_implies(
        self, rule: Rule, f: Formula, g: Formula, flags: frozenset[str] | None = None, *, unnamed: str | None = None
    ) -> bool:
        """Whether `f` in one program implies `g` in the other for every request of a rule, whatever the types of its objects.

        `flags`: those that the request sets; None: any. Raises Undecided if that exceeds the solver's budget.
        """
        decided = self._implied_by_sets(f, g) if unnamed is None and self.plain else None
        slots = {slot.name: slot.types for slot in rule.withs}
        return self.implies_with(f, g, flags, slots, unnamed) if decided is None else decided

    @cached_property
    def plain(self) -> bool:
        """Whether both programs are one, without implied privileges, objects with a root in common, and `or below`."""
        implied = any(privilege.implies for privilege in self.program.privileges.values())
        related = self._nests or implied or self.program.shared_root is not None or uses_below(self.program)
        return self._side == 0 and not related

    def _implied_by_sets(self, f: Formula, g: Formula) -> bool | None:
        """What the solver decides, in less time; None if a condition depends on the request or has too many minimal sets."""
        if any(depends_on_request(self.program, h) or any(isinstance(a, _BELOW) for a in walk(h)) for h in (f, g)):
            return None
        if isinstance(g, Owner | Member | Self | Holds | ServiceAdmin):  # which no other atom entails
            return not self._truth(g, lambda atom: atom != g).fold(f)
        try:
            found = canonical(self.program).minimal_sets(f)
        except Undecided:
            return None
        entails = canonical(self.program).entails
        return all(self._truth(row, partial(entails, frozenset(row))).fold(g) for row in found)

    def _truth(self, key: Atom | tuple[Leaf, ...], holds: Callable[[Atom], bool]) -> Truth:
        """Decides conditions by `holds`; the last one is kept, which is that of a gate if there are many."""
        if self._last_truth is None or self._last_truth[0] != key:
            self._last_truth = key, Truth(self.program, (), {}, holds)
        return self._last_truth[1]

    def implies_with(
        self, f: Formula, g: Formula, flags: frozenset[str] | None, slots: Slots, unnamed: str | None
    ) -> bool:
        """As `always_implies`, with the types of the objects in each slot."""
        if self._nests:
            return all(
                self._implies_at(levels, most, f, g, flags, slots, unnamed) for levels, most in self._levels(f, g)
            )
        if unnamed is not None:
            f, g = without_name(self.program, f, unnamed), without_name(self.other_program, g, unnamed)
        self._check_below(f, g)
        solver = self.solver
        solver.renew()
        assumptions = [solver.literal(f, 0), -solver.literal(g, self._side), solver.requests(slots)]
        return not solver.possible([*assumptions, *(() if flags is None else solver.with_flags(flags))])

    def _levels(self, f: Formula, g: Formula) -> Iterator[tuple[Levels, int]]:
        """The numbers of levels that a question has to be answered for, each with the largest of them."""
        most = levels_that_matter(self.program, f, g)
        if self.other_program is not self.program:
            most = max(most, levels_that_matter(self.program, f) + levels_that_matter(self.other_program, g))
        for levels in unrolled(self.program).requests((f, g), most):
            yield levels, most

    def _implies_at(
        self,
        levels: Levels,
        most: int,
        f: Formula,
        g: Formula,
        flags: frozenset[str] | None,
        slots: Slots,
        unnamed: str | None,
    ) -> bool:
        mine, other = unrolled(self.program), unrolled(self.other_program)
        if most not in self._unrolled:
            one_program = self.other_program is self.program
            self._unrolled[most] = ImplicationChecker(
                mine.at_most(most), None if one_program else other.at_most(most), self._unused_names
            )
        return self._unrolled[most].implies_with(
            mine.formula(f, levels),
            other.formula(g, levels),
            flags,
            {slot: [mine.at(type_, levels.get(slot, 1)) for type_ in types] for slot, types in slots.items()},
            None if unnamed is None else mine.at(unnamed, levels.get(RESOURCE, 1)),
        )

    @property
    def _side(self) -> int:
        return 0 if self.semantics is self.other_semantics else 1

    def alike(self, f: Formula, g: Formula) -> bool:
        """Whether everything that `f` in one program and `g` in the other refer to means the same in both."""
        if self.semantics is self.other_semantics:
            return True
        return self._alike and all(
            self._same_meaning(node) for node in (*followed(self.program, f), *followed(self.other_program, g))
        )

    def _same_meaning(self, node: Formula) -> bool:
        """Whether, in both programs, a privilege is given by the same names and roles, and a target lies on the same path."""
        match node:
            case Has():
                if node.privilege not in self._same_words:
                    self._same_words[node.privilege] = self.semantics.grantable_names(
                        node.privilege
                    ) == self.other_semantics.grantable_names(node.privilege)
                return self._same_words[node.privilege] and self._same_path(node.target.type)
            case HasBelow(privilege=privilege, target=target):
                own = Has(privilege=privilege, target=target)
                return self._same_meaning(own) and self._same_below(target)
            case OwnsBelow(target=target):
                return self._same_path(target.type) and self._same_below(target)
            case Owner() | Member() | Self() | Holds() | Can():
                return self._same_path(node.target.type)
            case ByType():
                return all(self._same_path(type_) for type_, _ in node.cases)
            case ServiceAdmin() | And() | Or() | When():
                return True
            case _:
                assert_never(node)

    def _same_below(self, target: Target) -> bool:
        """Whether the same types lie below a target in both programs."""
        both = [semantics.at_or_below(target) for semantics in (self.semantics, self.other_semantics)]
        return {*both[0]} == {*both[1]} and all(self._same_path(place.type) for place in both[0])

    def _check_below(self, f: Formula, g: Formula) -> None:
        """Raise Undecided for conditions on what is held below that mean different things in the two programs."""
        nodes = (*followed(self.program, f), *followed(self.other_program, g))
        if any(isinstance(node, HasBelow | OwnsBelow) for node in nodes) and not self.alike(f, g):
            raise Undecided("not decided: `or below` under declarations that differ")

    def _same_path(self, type_: str) -> bool:
        return self.semantics.place(type_) == self.other_semantics.place(type_)

    def implies(
        self,
        f: Formula,
        g: Formula,
        flags: frozenset[str] = frozenset(),
        types: Mapping[str, str] | None = None,
        *,
        unnamed: str | None = None,
    ) -> bool:
        """Whether every state that gives `f` in one program gives `g` in the other; arguments as for `counterexample`."""
        return self.implies_with(f, g, flags, {slot: (type_,) for slot, type_ in (types or {}).items()}, unnamed)

    def counterexample(
        self,
        f: Formula,
        g: Formula,
        flags: frozenset[str] = frozenset(),
        types: Mapping[str, str] | None = None,
        *,
        unnamed: str | None = None,
    ) -> Facts | None:
        """The fewest facts under which `f` holds in one program and `g` does not in the other, or None if `f` implies `g`.

        `flags`: those that the request sets. `types`: the type of the object in each `with` slot that allows several.
        `unnamed`: the resource's type, if the request omits its last name.
        """
        if self._nests:
            raise UnsupportedError("counterexamples for types that nest are not worked out; only whether there is one")
        found = list(islice(self._counterexamples(f, g, flags, types or {}, unnamed), 200))
        return min(found, key=lambda facts: (len(facts), sorted(map(repr, facts))), default=None)

    def _counterexamples(
        self, f: Formula, g: Formula, flags: frozenset[str], types: Mapping[str, str], unnamed: str | None
    ) -> Iterator[Facts]:
        if unnamed is not None:
            f, g = without_name(self.program, f, unnamed), without_name(self.other_program, g, unnamed)
        self._check_below(f, g)
        form = canonical(self.program)
        alike = self.alike(f, g)
        other_sets = (
            [frozenset(s) for s in canonical(self.other_program).minimal_sets(g, flags, types)] if alike else ()
        )
        for atoms in map(frozenset, form.minimal_sets(f, flags, types)):
            if alike and form.implies([atoms], other_sets):
                continue
            for base in self._fact_sets(atoms):
                facts = base | self._denials(atoms, base, g)
                if not self.other_semantics.holds(g, facts, flags, types):
                    yield self._with_fewest_denials(base, facts - base, g, flags, types)

    def _fact_sets(self, atoms: AtomSet) -> Iterator[Facts]:
        """The ways to give a set of atoms in the first program."""
        options = [tuple(self._facts_giving(atom)) for atom in sorted(atoms, key=canonical(self.program).order)]
        if prod(map(len, options)) > _MAX_COMBINATIONS:
            raise UnsupportedError(
                f"one condition requires {len(atoms)} atoms that can be given in more than {_MAX_COMBINATIONS:,} ways"
            )
        yield from map(frozenset, product(*options))

    def _facts_giving(self, atom: Leaf) -> Iterator[Fact]:
        """The ways to give one atom, limited to those with the least effect in the other program."""
        match atom:
            case Has(privilege=privilege, target=target):
                yield from self._granted(privilege, target)
                yield from self._by_role(privilege, target)
                if privilege in self.semantics.owner_privileges:
                    for place in self.semantics.looked_at(target):
                        yield from self._owned(place)
            case Owner(target=target):
                yield from self._owned(target)
            case Member(target=target):
                yield Joined(target=target)
                if self.program.entities[target.type].principal == "group":
                    other_type = self.other_program.entities.get(target.type)
                    other_has_no_group = other_type is None or other_type.principal != "group"
                    for carrier in ("group", "brought"):
                        if carrier in self.semantics.carriers and (
                            other_has_no_group or carrier not in self.other_semantics.carriers
                        ):
                            yield Joined(target=target, carrier=carrier)
            case Self(target=target):
                yield Is(target=target)
            case Holds(target=target):
                for carrier in self._carriers():
                    yield HasRole(target=target, carrier=carrier)
            case ServiceAdmin():
                yield Administers()
            case HasBelow(privilege=privilege, target=target):
                if self.semantics.elsewhere(target, privilege):
                    yield GrantedBelow(privilege=privilege, target=target)
                if privilege in self.semantics.owner_privileges and self.semantics.elsewhere(target):
                    yield OwnedBelow(target=target)
                for place in self._only_once_below(target):
                    yield from self._facts_giving(Has(privilege=privilege, target=place))
            case OwnsBelow(target=target):
                if self.semantics.elsewhere(target):
                    yield OwnedBelow(target=target)
                for place in self._only_once_below(target):
                    yield from self._owned(place)
            case ByType():
                raise AssertionError("every object of a request has a type")
            case _:
                assert_never(atom)

    def _only_once_below(self, target: Target) -> Iterator[Target]:
        """The objects at or below a target that no other entity below it can stand for."""
        for place in self.semantics.at_or_below(target):
            if place == target or place.type not in self.semantics.elsewhere(target):
                yield place

    def _carriers(self) -> tuple[Carrier, ...]:
        """The caller, and the sources of groups that count in the first program only."""
        return ("user", *sorted(self.semantics.carriers - self.other_semantics.carriers))

    def _granted(self, privilege: str, target: Target) -> Iterator[Fact]:
        for place in self.semantics.looked_at(target):
            for name in self._names(privilege, place.type):
                # A grant further up, or by another name, is tried unless the other program gives at least as much by it as by the
                # privilege's own name, on the object itself or where the grant is.
                given = self.other_semantics.given(name, place.type, "allow")
                recognised = privilege in given
                reaches = self.other_semantics.down and recognised and self._on_other_path(place, target)
                instead = [target] if place != target and reaches else []
                instead += [place] if name != privilege and recognised else []
                if not any(self.other_semantics.given(privilege, o.type, "allow") <= given for o in instead):
                    for carrier in self._carriers():
                        yield Granted(effect="allow", name=name, target=place, carrier=carrier)

    def _on_other_path(self, place: Target, target: Target) -> bool:
        """Whether `place` is on the path of `target` in the other program too; a type may have moved."""
        return target.type in self.other_program.entities and place in self.other_semantics.path(target)

    def _names(self, privilege: str, type_: str) -> Iterator[str]:
        return iter(self.semantics.names_on(privilege, type_, "allow"))

    def _by_role(self, privilege: str, target: Target) -> Iterator[Fact]:
        for role in self.program.roles.values():
            other_role = self.other_program.roles.get(role.name)
            path = self.semantics.path(target)
            same_role = other_role is not None and (other_role.scope, dict(other_role.grants)) == (
                role.scope,
                dict(role.grants),
            )
            gives_more = all(
                self.other_semantics.given(privilege, type_, "allow") <= frozenset(privileges)
                for type_, privileges in role.grants
                if privilege in privileges
            )
            if same_role and gives_more and all(self._on_other_path(place, target) for place in path):
                continue
            scopes = [None, *path] if role.scope is None else [t for t in path if base_type(t.type) == role.scope]
            for scope in scopes:
                assigned = Assigned(role=role.name, scope=scope)
                if any(
                    self.semantics.by_default(privilege, place, assigned) for place in self.semantics.looked_at(target)
                ):
                    for carrier in self._carriers():
                        yield Assigned(role=role.name, scope=scope, carrier=carrier)

    def _owned(self, target: Target) -> Iterator[Fact]:
        """Ownership in the first way that the other program does not recognise; if it recognises all, by the most direct kind."""
        owner_kinds = [(kind, carrier) for kind in self.semantics.kinds for carrier in self.semantics.carriers_of(kind)]
        unrecognised = [
            (k, c)
            for k, c in owner_kinds
            if k not in self.other_semantics.kinds or c not in self.other_semantics.carriers
        ]
        most_direct_first = sorted(
            owner_kinds, key=lambda kind_and_carrier: ("user", "role", "group").index(kind_and_carrier[0])
        )
        for kind, carrier in unrecognised[:1] or most_direct_first[:1]:
            yield Owned(target=target, kind=kind, carrier=carrier)

    def _denials(self, atoms: AtomSet, base: Facts, g: Formula) -> Facts:
        """Every denial of a privilege that `g` asks for, as long as the base facts still give the atoms."""
        if not self.other_semantics.denies:
            return frozenset()
        protected = self._protected(atoms, base)
        atoms_of_g = leaves(self.other_program, g)
        required = {(a.privilege, a.target) for a in atoms_of_g if isinstance(a, Has)}
        below = (a for a in atoms_of_g if isinstance(a, HasBelow))
        required |= {(a.privilege, place) for a in below for place in self.other_semantics.at_or_below(a.target)}
        found: set[Fact] = set()
        for privilege, target in sorted(required, key=repr):
            if privilege not in self.other_program.privileges or target.type not in self.other_program.entities:
                continue
            for place in self.other_semantics.looked_at(target):
                for name in self.other_semantics.names_on(privilege, place.type, "deny"):
                    own = self.semantics.given(name, place.type, "deny") if self.semantics.denies else frozenset()
                    denied = {(p, place) for p in own}
                    unrecognised = sorted(self.other_semantics.carriers - self.semantics.carriers)
                    carriers: list[Carrier] = ["user"] if not denied & protected else unrecognised[:1]
                    found |= {Granted(effect="deny", name=name, target=place, carrier=c) for c in carriers}
        return frozenset(found)

    def _protected(self, atoms: AtomSet, base: Facts) -> frozenset[tuple[str, Target]]:
        """What must not be denied in the first program: each privilege that no ownership gives, wherever a denial counts."""
        owned = {fact.target for fact in base if isinstance(fact, Owned)}
        owned_below = {fact.target for fact in base if isinstance(fact, OwnedBelow)}
        protected: set[tuple[str, Target]] = set()
        for atom in atoms:
            if isinstance(atom, Has):
                looked_at = self.semantics.looked_at(atom.target)
                if not (atom.privilege in self.semantics.owner_privileges and owned.intersection(looked_at)):
                    protected |= {(atom.privilege, place) for place in looked_at}
            elif isinstance(atom, HasBelow) and atom.target not in owned_below:
                protected |= {(atom.privilege, place) for place in self.semantics.looked_at(atom.target)}
        return frozenset(protected)

    def _with_fewest_denials(
        self,
        base: Facts,
        denials: Facts,
        g: Formula,
        flags: frozenset[str],
        types: Mapping[str, str],
    ) -> Facts:
        """The base facts with as few of the denials as suffice to keep `g` from holding."""
        needed = sorted(
            denials, key=lambda d: (isinstance(d, Granted) and d.name not in self.program.privileges, repr(d))
        )

        def refutes(chosen: Iterable[Fact]) -> bool:
            return not self.other_semantics.holds(g, base | frozenset(chosen), flags, types)

        for chosen in chain.from_iterable(combinations(needed, size) for size in range(3)):
            if refutes(chosen):
                return base | frozenset(chosen)
        for denial in tuple(needed):
            rest = [d for d in needed if d != denial]
            if refutes(rest):
                needed = rest
        return base | frozenset(needed)


def equivalent(program: Program, rule: Rule, f: Formula, g: Formula) -> bool:
    """Whether two conditions over the objects of a rule are equivalent, whatever the flags and the types of the objects."""
    exact = ImplicationChecker(program)
    return exact.always_implies(rule, f, g) and exact.always_implies(rule, g, f)


def settings(program: Program, rule: Rule, *further: Formula) -> Iterator[tuple[frozenset[str], dict[str, str]]]:
    """Every set of the flags that a rule depends on, with every choice of types for its `with` objects.

    `more`: further conditions whose flags are included.
    """
    flags = set(rule_flags(program, rule))
    for formula in further:
        flags |= {node.flag for node in followed(program, formula) if isinstance(node, When)}
    for size in range(len(flags) + 1):
        for chosen in combinations(sorted(flags), size):
            for types in product(*(slot.types for slot in rule.withs)):
                yield frozenset(chosen), dict(zip((slot.name for slot in rule.withs), types, strict=True))


def _same_semantics(first: Program, second: Program) -> bool:
    """Whether the file-wide semantics are the same, apart from the names of privileges and types."""

    def meaning(program: Program) -> tuple[object, ...]:
        semantics = program.semantics
        owner = semantics.owner and (frozenset(semantics.owner.kinds), frozenset(semantics.owner.holds))
        return semantics.inheritance, semantics.deny, owner, frozenset(semantics.groups)

    return meaning(first) == meaning(second)
