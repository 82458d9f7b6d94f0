"""The smallest counterexample to an implication between conditions.

A condition is monotone in grants, ownership, memberships and assignments, and antitone in denials, so `f` fails to imply `g`
exactly if some minimal set of `f` can be given in such a way that `g` does not hold once every denial is added that leaves the
set intact. There are few ways to give a set, and of two ways, only the one that gives less has to be tried:

* a privilege by a grant on the object itself, unless a grant further up has less effect in the other program;
* a privilege by ownership of the object or of one above it, if ownership confers the privilege;
* a privilege by a declared role, if the role differs in the other program;
* anything through a group, if the other program takes groups from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, combinations, product
from math import prod
from typing import assert_never

from privtab.errors import Undecided, UnsupportedError
from privtab.ir.canonical import AtomSet, Leaf, canonical
from privtab.ir.comparisons import Comparisons
from privtab.ir.facts import (
    Administers,
    Assigned,
    BelongsTo,
    Carrier,
    Fact,
    Facts,
    FactSemantics,
    Granted,
    GrantedBelow,
    HasRole,
    Holding,
    IsCaller,
    Owned,
    OwnedBelow,
)
from privtab.ir.formula import leaves
from privtab.ir.nodes import (
    ByType,
    Compare,
    Formula,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnsBelow,
    Self,
    ServiceAdmin,
    Target,
)
from privtab.paths import base_type

_MAX_CHOICES = 1_000
"""Limit on the choices of comparisons that hold."""
_MAX_COMBINATIONS = 50_000
"""Limit on the ways to give one minimal set; to exceed it, a table would have to ask for a dozen things through a dozen owners."""


class CounterexampleSearch:
    """Searches the facts that give a condition of the first program without giving one of the second."""

    def __init__(self, semantics: FactSemantics, other_semantics: FactSemantics) -> None:
        self.semantics = semantics
        self.other_semantics = other_semantics
        self._comparisons = Comparisons(semantics.program, other_semantics.program)
        self.program = semantics.program
        self.other_program = other_semantics.program

    def all(
        self, f: Formula, g: Formula, flags: frozenset[str], types: Mapping[str, str], *, alike: bool
    ) -> Iterator[Facts]:
        """Sets of facts under which `f` holds in the first program and `g` does not in the other.

        `alike`: whether everything that the conditions refer to means the same in both programs.
        """
        form = canonical(self.program)
        other_sets = (
            [frozenset(s) for s in canonical(self.other_program).minimal_sets(g, flags, types)] if alike else ()
        )
        for atoms in map(frozenset, form.minimal_sets(f, flags, types)):
            if alike and form.implies([atoms], other_sets):
                continue
            for base in self._with_comparisons(self._fact_sets(atoms), g):
                facts = base | self._denials(atoms, base, g)
                if not self.other_semantics.holds(g, facts, flags, types):
                    yield self._with_fewest_denials(base, facts - base, g, flags, types)

    def _with_comparisons(self, bases: Iterable[Facts], g: Formula) -> Iterator[Facts]:
        """The facts with every choice of the comparisons of `g` that hold beside theirs, for which there are values."""
        of_g = sorted({a for a in leaves(self.other_program, g) if isinstance(a, Compare)}, key=repr)
        for base in bases:
            own = [fact.compare for fact in base if isinstance(fact, Holding)]
            choices: list[tuple[list[Compare], list[Compare]]] = [(own, [])]
            for compare in of_g:
                wider = [
                    choice
                    for true, false in choices
                    for choice in ((true, [*false, compare]), ([*true, compare], false))
                    if self._comparisons.values(*choice) is not None
                ]
                if len(wider) > _MAX_CHOICES:
                    raise Undecided(f"not decided: {len(of_g)} comparisons of attributes hold in too many ways")
                choices = wider
            for true, _ in choices:
                yield base | {Holding(compare=compare) for compare in true}

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
                    for place in self.semantics.grant_targets(privilege, target):
                        yield from self._owned(place)
            case Owner(target=target):
                yield from self._owned(target)
            case Member(target=target):
                yield BelongsTo(target=target)
                if self.program.entities[target.type].principal == "group":
                    other_type = self.other_program.entities.get(target.type)
                    other_has_no_group = other_type is None or other_type.principal != "group"
                    for carrier in ("group", "from_request"):
                        if carrier in self.semantics.carriers and (
                            other_has_no_group or carrier not in self.other_semantics.carriers
                        ):
                            yield BelongsTo(target=target, carrier=carrier)
            case Self(target=target):
                yield IsCaller(target=target)
            case Holds(target=target):
                for carrier in self._carriers():
                    yield HasRole(target=target, carrier=carrier)
            case ServiceAdmin():
                yield Administers()
            case HasBelow(privilege=privilege, target=target):
                is_named = privilege in self.program.grantable
                for name in (privilege,) if is_named else self.semantics.names_of(privilege, "allow"):
                    if self.semantics.elsewhere(target, name):
                        yield GrantedBelow(privilege=name, target=target)
                if privilege in self.semantics.owner_privileges and self.semantics.elsewhere(target):
                    yield OwnedBelow(target=target)
                for place in self._only_once_below(target):
                    yield from self._facts_giving(Has(privilege=privilege, target=place))
            case OwnsBelow(target=target):
                if self.semantics.elsewhere(target):
                    yield OwnedBelow(target=target)
                for place in self._only_once_below(target):
                    yield from self._owned(place)
            case Compare():
                yield Holding(compare=atom)
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
        for place in self.semantics.grant_targets(privilege, target):
            for name in self._names(privilege, place.type):
                # A grant further up, or by another name, is tried unless the other program gives at least as much by it as by the
                # privilege's own name, on the object itself or where the grant is.
                granted = self.other_semantics.privileges_of(name, place.type, "allow")
                recognised = privilege in granted
                reaches = self.other_program.inherits(privilege) and recognised and self._on_other_path(place, target)
                instead = [target] if place != target and reaches else []
                instead += [place] if name != privilege and recognised else []
                instead = instead if privilege in self.program.grantable else []  # no row has its own name
                if not any(self.other_semantics.privileges_of(privilege, o.type, "allow") <= granted for o in instead):
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
                self.other_semantics.privileges_of(privilege, type_, "allow") <= frozenset(privileges)
                for type_, privileges in role.grants
                if privilege in privileges
            )
            if same_role and gives_more and all(self._on_other_path(place, target) for place in path):
                continue
            scopes = [None, *path] if role.scope is None else [t for t in path if base_type(t.type) == role.scope]
            for scope in scopes:
                assigned = Assigned(role=role.name, scope=scope)
                if any(
                    self.semantics.by_default(privilege, place, assigned)
                    for place in self.semantics.grant_targets(privilege, target)
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
            for place in self.other_semantics.grant_targets(privilege, target):
                for name in self.other_semantics.names_on(privilege, place.type, "deny"):
                    own = (
                        self.semantics.privileges_of(name, place.type, "deny") if self.semantics.denies else frozenset()
                    )
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
                granting = self.semantics.grant_targets(atom.privilege, atom.target)
                if not (atom.privilege in self.semantics.owner_privileges and owned.intersection(granting)):
                    protected |= {(atom.privilege, place) for place in granting}
            elif isinstance(atom, HasBelow) and atom.target not in owned_below:
                places = self.semantics.targets_for_below(atom.privilege, atom.target)
                protected |= {(atom.privilege, place) for place in places}
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
