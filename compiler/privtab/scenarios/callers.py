"""What callers can hold: by which rows, and what gives it besides. The one module that tells kinds of atoms apart for callers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from privtab.attributes import Value
from privtab.ir.canonical import Leaf, atom_of
from privtab.ir.names import compare_text, privilege_names
from privtab.ir.nodes import (
    RESOURCE,
    Compare,
    EntityType,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnsBelow,
    Program,
    Self,
    ServiceAdmin,
    Target,
    Term,
)
from privtab.ir.serialise import vocabulary
from privtab.names import encode_name, path_of, quoted
from privtab.request import Entity
from privtab.state.nodes import Assignment, Grant

AtomKind: TypeAlias = Literal["has", "owner", "member", "holds", "self", "admin", "compare"]


@dataclass(frozen=True, slots=True)
class HeldAtom:
    """Something that a caller can hold or be: a privilege on an entity, ownership, membership, a role, `self`, or a comparison."""

    kind: AtomKind
    what: str = ""
    on: str = ""
    """The key of the entity, `type:path`."""
    below: bool = False
    """Whether it may be held on an entity below instead."""
    compare: Compare | None = None
    """For `compare`: attributes that stand in a relation; the slot of a target is the key of an entity."""

    @property
    def is_privilege(self) -> bool:
        """Whether it is a privilege on an entity, which grants give and denials take away."""
        return self.kind == "has"

    def __str__(self) -> str:
        if self.compare is not None:
            return compare_text(self.compare, lambda target: target.slot)
        if self.below:
            return f"{quoted(self.what) or self.kind} ({self.on} or below)"
        match self.kind:
            case "has":
                return f"{quoted(self.what)} ({self.on})"
            case "self":
                return "self"
            case "admin":
                return "service admin"
            case _:
                return f"{self.kind} ({self.on})"


HeldSet: TypeAlias = frozenset[HeldAtom]
Ways: TypeAlias = tuple[HeldSet, ...]
ANYONE: Ways = (frozenset(),)
Denied: TypeAlias = frozenset[HeldAtom]
"""Privileges that are denied on their entities."""
AttributeValues: TypeAlias = "Mapping[Term, Value | None]"
"""The value of each attribute that a request is about; None where it is absent."""


def smallest(sets: Iterable[HeldSet]) -> Ways:
    """The sets that contain no other set, in the order given."""
    candidates = list(dict.fromkeys(sets))
    if len({len(atoms) for atoms in candidates}) < 2:
        return tuple(candidates)
    return tuple(atoms for atoms in candidates if not any(subset < atoms for subset in candidates))


def set_text(atoms: HeldSet) -> str:
    """A set as text for messages: `READ (a:x), owner (a:y)`."""
    return ", ".join(sorted(map(str, atoms))) or "anyone"


def comparisons_of(ways: Iterable[HeldSet]) -> Iterator[Compare]:
    """The comparisons in some ways."""
    return (atom.compare for way in ways for atom in way if atom.compare is not None)


class Facts:
    """What gives one atom: a firm fact, or a grant unless there is one of the denials."""

    def __init__(
        self, *, firm: Iterable[HeldAtom], grants: Iterable[HeldAtom] = (), denials: Iterable[HeldAtom] = ()
    ) -> None:
        self.firm = frozenset(firm)
        self.grants = frozenset(grants)
        self.alone = self.firm | self.grants
        """Each of them, without denials, gives the atom."""
        self._denials = frozenset(denials)

    def hold(self, atoms: HeldSet, denied: Denied) -> bool:
        """Whether some facts and denials give it."""
        if not self.firm.isdisjoint(atoms):
            return True
        return not self.grants.isdisjoint(atoms) and self._denials.isdisjoint(denied)


class CallerSemantics:
    """Which facts give what a caller can hold, under the semantics of a program; denials take grants away."""

    def __init__(self, program: Program, keys: Callable[[Entity], Iterable[str]]) -> None:
        """`keys`: the keys on the path of an entity."""
        self.program = program
        self.keys = keys
        self.names = privilege_names(program)
        self.deny_overrides = program.semantics.deny == "overrides"
        owner = program.semantics.owner
        self.owner_privileges = frozenset(owner.holds) if owner else frozenset()
        self._paths: dict[str, tuple[str, ...]] = {}
        self._known_facts: dict[HeldAtom, Facts] = {}
        self._known_ways: dict[HeldSet, tuple[Facts, ...]] = {}

    def suffices(self, way: HeldSet, atoms: HeldSet, denied: Denied) -> bool:
        """Whether a set holds, given some facts and some denials."""
        if way not in self._known_ways:
            self._known_ways[way] = tuple(map(self.facts, way))
        return all(facts.hold(atoms, denied) for facts in self._known_ways[way])

    def holds(self, atom: HeldAtom, atoms: HeldSet, denied: Denied) -> bool:
        """Whether an atom holds, given some facts and some denials."""
        return self.facts(atom).hold(atoms, denied)

    def facts(self, atom: HeldAtom) -> Facts:
        """What gives an atom."""
        if atom not in self._known_facts:
            self._known_facts[atom] = self._facts_of_privilege(atom) if atom.kind == "has" else Facts(firm={atom})
        return self._known_facts[atom]

    def _facts_of_privilege(self, atom: HeldAtom) -> Facts:
        keys = self.grant_keys(atom.what, atom.on)
        giving = (
            HeldAtom("has", name, key)
            for key in keys
            for name in self.names.giving(atom.what, key.partition(":")[0], "allow")
        )
        return Facts(
            firm={HeldAtom("owner", "", key) for key in keys if atom.what in self.owner_privileges},
            grants={atom, *giving},
            denials={HeldAtom("has", atom.what, key) for key in keys},
        )

    def grant_keys(self, privilege: str, key: str) -> tuple[str, ...]:
        """The keys on which a grant of a privilege counts for an entity."""
        if key not in self._paths:
            self._paths[key] = tuple(self.keys(Entity.parse(key)))
        return self._paths[key] if self.program.inherits(privilege) else self._paths[key][-1:]

    def holding(self, leaf: Leaf, key: Callable[[Target], str]) -> list[HeldAtom]:
        """What fulfils an atom about the entities with these keys, any of them; nothing if a caller cannot be given that."""
        match atom_of(leaf):
            case (Has() | HasBelow()) as atom:
                on, below = key(atom.target), isinstance(atom, HasBelow)
                names = self.program.granted_as(atom.privilege)
                may_all = below or len(names) == 1
                return [HeldAtom("has", n, on, below) for n in names if may_all or self.is_grantable(n, on)]
            case (Owner() | OwnsBelow()) as atom:
                return [HeldAtom("owner", "", key(atom.target), isinstance(atom, OwnsBelow))]
            case Member(target=target):
                return [HeldAtom("member", "", key(target))]
            case Holds(target=target):
                return [HeldAtom("holds", "", key(target))]
            case Self(target=target):
                return [HeldAtom("self")] if target.slot == RESOURCE else []
            case ServiceAdmin():
                return [HeldAtom("admin")]
            case Compare() as compare:
                return [HeldAtom("compare", compare=about_request(compare, key))]

    def places(self, atom: HeldAtom, everywhere: Iterable[str], privilege: str = "") -> list[HeldAtom]:
        """What gives an atom that may be held below: the same on its entity, and on each of some that lies below it.

        `privilege`: the one that is wanted, if a grant of the atom's name gives another one.
        """
        keys = [key for key in everywhere if atom.on in self.keys(Entity.parse(key))]
        if atom.kind != "has":
            return [replace(atom, on=key, below=False) for key in keys]
        granted = [replace(atom, on=key, below=False) for key in keys if self.is_grantable(atom.what, key)]
        if (privilege or atom.what) not in self.owner_privileges:
            return granted
        # Owners have the privilege also where it cannot be granted.
        return granted + [HeldAtom("owner", "", key) for key in keys if not self.is_grantable(atom.what, key)]

    def by_ownership(self, way: HeldSet) -> Iterator[HeldSet]:
        """The set with one of its privileges held through ownership, which denials do not affect."""
        for atom in sorted(way, key=str):
            if atom.kind == "has" and atom.what in self.owner_privileges:
                yield way - {atom} | {HeldAtom("owner", "", atom.on)}

    def granting(self, atom: HeldAtom) -> list[HeldAtom]:
        """The grants, or denials, that count for a privilege on an entity: on it, and on each from which it is inherited."""
        keys = self.grant_keys(atom.what, atom.on) if atom.kind == "has" else ()
        return [replace(atom, on=key) for key in keys if self.is_grantable(atom.what, key)]

    def deniable(self, way: HeldSet) -> list[str]:
        """The privileges of a set of which a denial further down may leave the set intact."""
        return sorted({atom.what for atom in way if atom.kind == "has" and self.program.inherits(atom.what)})

    def is_grantable(self, privilege: str, key: str) -> bool:
        """Whether rows can grant or deny a privilege on an entity."""
        return key.partition(":")[0] in self.program.privileges[privilege].on

    def grantable_around(self, atom: HeldAtom, everywhere: Iterable[str]) -> tuple[bool, bool]:
        """Whether a privilege can be granted above its object, and on one of some entities below it."""
        if not atom.is_privilege:
            return False, False
        above = any(grant != atom for grant in self.granting(atom))
        lower = [key for key in everywhere if key != atom.on and self.is_grantable(atom.what, key)]
        below = any(atom.on in self.grant_keys(atom.what, key) for key in lower)
        return above, below

    def matters(self, asked: Iterable[Leaf]) -> Callable[[HeldAtom], bool]:
        """Whether an atom could matter to some rows: nobody need be a member or the owner of an entity without members or owners.

        `asked`: the atoms in the conditions of these rows.
        """
        held = [atom for leaf in asked for atom in self.holding(leaf, lambda target: target.type)]
        wanted = {(atom.kind, atom.on) for atom in held}
        owned_below = {atom.on for atom in held if atom.kind == "owner" and atom.below}
        types = self.program.entities
        wanted |= {("owner", type_) for type_ in types if owned_below & set(self.program.chain(type_))}
        always = {"has", "self", "compare", *(("owner",) if self.owner_privileges else ())}
        return lambda atom: atom.kind in always or (atom.kind, atom.on.partition(":")[0]) in wanted

    def everything(self, everywhere: Iterable[str], resource: Entity) -> Iterator[HeldAtom]:
        """Everything that can be given on the request's objects and their ancestors."""
        for key in everywhere:
            type_ = key.partition(":")[0]
            for privilege in self.program.grantable_on(type_):
                yield HeldAtom("has", privilege, key)
            if self.program.semantics.owner is not None:
                yield HeldAtom("owner", "", key)
            yield HeldAtom("member", "", key)
            if self.program.entities[type_].principal == "role":
                yield HeldAtom("holds", "", key)
        yield HeldAtom("admin")
        if self.program.entities[resource.type].principal == "user" and vocabulary(self.program).complete(resource):
            yield HeldAtom("self")


def row_of(atom: HeldAtom, entity: Entity | None, *, user: str, grantee: str, owner: str) -> tuple[str, object] | None:
    """The table and the row that give a user an atom; None if no row does.

    `entity`: that of the atom. `grantee`, `owner`: the principals to which privileges and entities of the user belong.
    """
    match atom.kind:
        case "has":
            assert entity is not None, "a privilege is held on an entity"
            return "grants", Grant(grantee=grantee, effect="allow", privilege=atom.what, entity=entity)
        case "owner":
            return "owners", (entity, owner)
        case "member":
            return "members", (user, entity)
        case "holds":
            assert entity is not None
            return "assignments", Assignment(principal=f"user:{user}", role=entity.names[-1])
        case "admin":
            return "service_admins", user
        case "self" | "compare":
            return None


def about_request(compare: Compare, key: Callable[[Target], str | None]) -> Compare | None:
    """A comparison about the entities of a request, by their keys; None if the request does not name one of them."""

    def named(term: Term) -> Term | None:
        found = None if term.target is None else key(term.target)
        if found is None:
            return term if term.target is None else None
        return about_entity(term, found)

    left = named(compare.left)
    right = named(compare.right) if isinstance(compare.right, Term) else compare.right
    return None if left is None or right is None else replace(compare, left=left, right=right)


def about_entity(term: Term, key: str) -> Term:
    """An attribute of the entity with a key."""
    return replace(term, target=Target(slot=key, type=key.partition(":")[0]))


def at_or_below(program: Program, key: str, suffix: str = "") -> Iterator[tuple[str, str]]:
    """An entity and one of each type below it, each with what contains it; nothing contains the first here.

    If its type nests, one of the same type is below it, too, unless it has the most levels. `suffix` ends the names of those below.
    """
    yield key, ""
    waiting = [key]
    while waiting:
        container = waiting.pop(0)
        outer, path = container.partition(":")[0], path_of(container)
        for type_ in program.entities.values():
            nests = container == key and type_.name == outer and _may_nest(program, type_, path)
            if type_.parent != outer and not nests:
                continue
            name = f"{'inner_' if nests else ''}{type_.name}{suffix}"
            if type_.single:
                below = path
            elif type_.flat:
                below = encode_name(f"{name} in {container}")
            else:
                below = f"{path}/{name}" if path else name
            waiting.append(f"{type_.name}:{below}")
            yield waiting[-1], container


def _may_nest(program: Program, type_: EntityType, path: str) -> bool:
    """Whether an entity with this path may contain one of its own type; with flat ids, its place does not tell its level here."""
    return type_.nested > 0 and (type_.flat or vocabulary(program).shapes[type_.name].levels(path) < type_.nested)
