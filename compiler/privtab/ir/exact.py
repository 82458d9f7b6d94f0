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

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain, combinations, islice, product
from math import prod
from typing import assert_never

from privtab.errors import UnsupportedError
from privtab.ir.canonical import AtomSet, Leaf, canonical
from privtab.ir.facts import (
    Administers,
    Assigned,
    Carrier,
    Fact,
    Facts,
    FactSemantics,
    Granted,
    HasRole,
    Is,
    Joined,
    Owned,
)
from privtab.ir.formula import followed, leaves, rule_flags, without_name
from privtab.ir.nodes import (
    And,
    ByType,
    Can,
    Formula,
    Has,
    Holds,
    Member,
    Or,
    Owner,
    Program,
    Rule,
    Self,
    ServiceAdmin,
    Target,
    When,
)
from privtab.ir.solver import Slots, Solver

_WAYS = 50_000
"""Limit on the ways to give one minimal set; to exceed it, a table would have to ask for a dozen things through a dozen owners."""


class ImplicationChecker:
    """Compares the conditions of one program with those of another, or of itself.

    `unsaid`: names of sets and aliases that no grant of a state uses.
    """

    def __init__(self, one: Program, other: Program | None = None, unsaid: frozenset[str] = frozenset()) -> None:
        self.one = one
        self.other = one if other is None else other
        self.here = FactSemantics(one, unsaid)
        self.there = self.here if other is None else FactSemantics(other, unsaid)
        self._alike = other is None or _same_semantics(one, other)
        self._same_words: dict[str, bool] = {}

    @cached_property
    def solver(self) -> Solver:
        """Circuits for the conditions of both programs: side 0 and side 1, or side 0 alone if the programs are the same."""
        return Solver(self.here, self.there)

    def always_implies(
        self, rule: Rule, f: Formula, g: Formula, flags: frozenset[str] | None = None, *, unnamed: str | None = None
    ) -> bool:
        """Whether `f` in one program implies `g` in the other for every request of a rule, whatever the types of its objects.

        `flags`: those that the request sets; None: any. Raises Undecided if that exceeds the solver's budget.
        """
        return self._implies(f, g, flags, {slot.name: slot.types for slot in rule.withs}, unnamed)

    def _implies(self, f: Formula, g: Formula, flags: frozenset[str] | None, slots: Slots, unnamed: str | None) -> bool:
        if unnamed is not None:
            f, g = without_name(self.one, f, unnamed), without_name(self.other, g, unnamed)
        solver = self.solver
        solver.renew()
        wanted = [solver.literal(f, 0), -solver.literal(g, self._side), solver.requests(slots)]
        return not solver.possible([*wanted, *(() if flags is None else solver.with_flags(flags))])

    @property
    def _side(self) -> int:
        return 0 if self.here is self.there else 1

    def alike(self, f: Formula, g: Formula) -> bool:
        """Whether everything that `f` in one program and `g` in the other refer to means the same in both."""
        if self.here is self.there:
            return True
        return self._alike and all(self._same(node) for node in (*followed(self.one, f), *followed(self.other, g)))

    def _same(self, node: Formula) -> bool:
        """Whether, in both programs, a privilege is given by the same names and roles, and a target lies on the same path."""
        match node:
            case Has():
                if node.privilege not in self._same_words:
                    self._same_words[node.privilege] = self.here.grantable_names(
                        node.privilege
                    ) == self.there.grantable_names(node.privilege)
                return self._same_words[node.privilege] and self._same_path(node.target.type)
            case Owner() | Member() | Self() | Holds() | Can():
                return self._same_path(node.target.type)
            case ByType():
                return all(self._same_path(type_) for type_, _ in node.cases)
            case ServiceAdmin() | And() | Or() | When():
                return True
            case _:
                assert_never(node)

    def _same_path(self, type_: str) -> bool:
        return self.here.place(type_) == self.there.place(type_)

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
        return self._implies(f, g, flags, {slot: (type_,) for slot, type_ in (types or {}).items()}, unnamed)

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
        found = list(islice(self._counterexamples(f, g, flags, types or {}, unnamed), 200))
        return min(found, key=lambda facts: (len(facts), sorted(map(repr, facts))), default=None)

    def _counterexamples(
        self, f: Formula, g: Formula, flags: frozenset[str], types: Mapping[str, str], unnamed: str | None
    ) -> Iterator[Facts]:
        if unnamed is not None:
            f, g = without_name(self.one, f, unnamed), without_name(self.other, g, unnamed)
        form = canonical(self.one)
        alike = self.alike(f, g)
        wanted = [frozenset(s) for s in canonical(self.other).minimal_sets(g, flags, types)] if alike else ()
        for atoms in map(frozenset, form.minimal_sets(f, flags, types)):
            if alike and form.implies([atoms], wanted):
                continue
            for given in self._fact_sets(atoms):
                facts = given | self._denials(atoms, given, g)
                if not self.there.holds(g, facts, flags, types):
                    yield self._with_fewest_denials(given, facts - given, g, flags, types)

    def _fact_sets(self, atoms: AtomSet) -> Iterator[Facts]:
        """The ways to give a set of atoms in the first program."""
        options = [tuple(self._facts_giving(atom)) for atom in sorted(atoms, key=canonical(self.one).order)]
        if prod(map(len, options)) > _WAYS:
            raise UnsupportedError(
                f"one condition requires {len(atoms)} atoms that can be given in more than {_WAYS:,} ways"
            )
        yield from map(frozenset, product(*options))

    def _facts_giving(self, atom: Leaf) -> Iterator[Fact]:
        """The ways to give one atom, limited to those with the least effect in the other program."""
        match atom:
            case Has(privilege=privilege, target=target):
                yield from self._granted(privilege, target)
                yield from self._by_role(privilege, target)
                if privilege in self.here.held:
                    for at in self.here.looked_at(target):
                        yield from self._owned(at)
            case Owner(target=target):
                yield from self._owned(target)
            case Member(target=target):
                yield Joined(target=target)
                if self.one.entities[target.type].principal == "group":
                    there = self.other.entities.get(target.type)
                    unseen = there is None or there.principal != "group"
                    for carrier in ("group", "brought"):
                        if carrier in self.here.carriers and (unseen or carrier not in self.there.carriers):
                            yield Joined(target=target, carrier=carrier)
            case Self(target=target):
                yield Is(target=target)
            case Holds(target=target):
                for carrier in self._carriers():
                    yield HasRole(target=target, carrier=carrier)
            case ServiceAdmin():
                yield Administers()
            case ByType():
                raise AssertionError("every object of a request has a type")
            case _:
                assert_never(atom)

    def _carriers(self) -> tuple[Carrier, ...]:
        """The caller, and the sources of groups that count in the first program only."""
        return ("user", *sorted(self.here.carriers - self.there.carriers))

    def _granted(self, privilege: str, target: Target) -> Iterator[Fact]:
        for at in self.here.looked_at(target):
            for name in self._names(privilege, at.type):
                seen = privilege in self.there.given(name, at.type)
                # A grant further up, or by a set or an alias, gives at least as much as one of the privilege on the object itself.
                # So it is tried only where the other program does not recognise it.
                reaches = self.there.down and seen and self._on_other_path(at, target)
                if (at == target or not reaches) and (name == privilege or not seen):
                    for carrier in self._carriers():
                        yield Granted(effect="allow", name=name, target=at, carrier=carrier)

    def _on_other_path(self, at: Target, target: Target) -> bool:
        """Whether `at` is on the path of `target` in the other program too; a type may have moved."""
        return target.type in self.other.entities and at in self.there.path(target)

    def _names(self, privilege: str, type_: str) -> Iterator[str]:
        return (name for name in self.here.names_of(privilege) if privilege in self.here.given(name, type_))

    def _by_role(self, privilege: str, target: Target) -> Iterator[Fact]:
        for role in self.one.roles.values():
            there = self.other.roles.get(role.name)
            path = self.here.path(target)
            same = there is not None and (there.scope, dict(there.grants)) == (role.scope, dict(role.grants))
            if same and all(self._on_other_path(at, target) for at in path):
                continue
            scopes = [None, *path] if role.scope is None else [t for t in path if t.type == role.scope]
            for scope in scopes:
                assigned = Assigned(role=role.name, scope=scope)
                if any(self.here.by_default(privilege, at, assigned) for at in self.here.looked_at(target)):
                    for carrier in self._carriers():
                        yield Assigned(role=role.name, scope=scope, carrier=carrier)

    def _owned(self, target: Target) -> Iterator[Fact]:
        """Ownership in the first way that the other program does not recognise; if it recognises all, by the most direct kind."""
        ways = [(kind, carrier) for kind in self.here.kinds for carrier in self.here.carriers_of(kind)]
        unseen = [(k, c) for k, c in ways if k not in self.there.kinds or c not in self.there.carriers]
        plain = sorted(ways, key=lambda way: ("user", "role", "group").index(way[0]))
        for kind, carrier in unseen[:1] or plain[:1]:
            yield Owned(target=target, kind=kind, carrier=carrier)

    def _denials(self, atoms: AtomSet, given: Facts, g: Formula) -> Facts:
        """Every denial of a privilege that `g` asks for, as long as it leaves the given atoms intact."""
        if not self.there.denies:
            return frozenset()
        protected = self._protected(atoms, given)
        asked = {(a.privilege, a.target) for a in leaves(self.other, g) if isinstance(a, Has)}
        found: set[Fact] = set()
        for privilege, target in sorted(asked, key=repr):
            if privilege not in self.other.privileges or target.type not in self.other.entities:
                continue
            for at in self.there.looked_at(target):
                for name in self.there.names_of(privilege):
                    if privilege not in self.there.given(name, at.type):
                        continue
                    taken = {(p, at) for p in self.here.given(name, at.type)} if self.here.denies else set()
                    hidden = sorted(self.there.carriers - self.here.carriers)
                    carriers: list[Carrier] = ["user"] if not taken & protected else hidden[:1]
                    found |= {Granted(effect="deny", name=name, target=at, carrier=c) for c in carriers}
        return frozenset(found)

    def _protected(self, atoms: AtomSet, given: Facts) -> frozenset[tuple[str, Target]]:
        """What must not be denied in the first program: each privilege that no ownership gives, wherever a denial counts."""
        owned = {fact.target for fact in given if isinstance(fact, Owned)}
        kept: set[tuple[str, Target]] = set()
        for atom in atoms:
            if isinstance(atom, Has):
                looked_at = self.here.looked_at(atom.target)
                if not (atom.privilege in self.here.held and owned.intersection(looked_at)):
                    kept |= {(atom.privilege, at) for at in looked_at}
        return frozenset(kept)

    def _with_fewest_denials(
        self,
        given: Facts,
        denials: Facts,
        g: Formula,
        flags: frozenset[str],
        types: Mapping[str, str],
    ) -> Facts:
        """The given facts with as few of the denials as suffice to keep `g` from holding."""
        listed = sorted(denials, key=lambda d: (isinstance(d, Granted) and d.name not in self.one.privileges, repr(d)))

        def stands(some: Iterable[Fact]) -> bool:
            return not self.there.holds(g, given | frozenset(some), flags, types)

        for some in chain.from_iterable(combinations(listed, size) for size in range(3)):
            if stands(some):
                return given | frozenset(some)
        for one in tuple(listed):
            rest = [d for d in listed if d != one]
            if stands(rest):
                listed = rest
        return given | frozenset(listed)


def equivalent(program: Program, rule: Rule, f: Formula, g: Formula) -> bool:
    """Whether two conditions over the objects of a rule are equivalent, whatever the flags and the types of the objects."""
    exact = ImplicationChecker(program)
    return exact.always_implies(rule, f, g) and exact.always_implies(rule, g, f)


def settings(program: Program, rule: Rule, *more: Formula) -> Iterator[tuple[frozenset[str], dict[str, str]]]:
    """Every set of the flags that a rule depends on, with every choice of types for its `with` objects.

    `more`: further conditions whose flags are included.
    """
    flags = set(rule_flags(program, rule))
    for formula in more:
        flags |= {node.flag for node in followed(program, formula) if isinstance(node, When)}
    for size in range(len(flags) + 1):
        for some in combinations(sorted(flags), size):
            for types in product(*(slot.types for slot in rule.withs)):
                yield frozenset(some), dict(zip((slot.name for slot in rule.withs), types, strict=True))


def _same_semantics(one: Program, other: Program) -> bool:
    """Whether the file-wide semantics are the same, apart from the names of privileges and types."""

    def meaning(program: Program) -> tuple[object, ...]:
        said = program.semantics
        owner = said.owner and (frozenset(said.owner.kinds), frozenset(said.owner.holds))
        return said.inheritance, said.deny, owner, frozenset(said.groups)

    return meaning(one) == meaning(other)
