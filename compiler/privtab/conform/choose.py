"""Chooses few callers among the candidates of one row, enough to prove its cells and notice each fault, and packs them into one world."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from privtab.conform.candidates import Candidate, Setting
from privtab.conform.nodes import World
from privtab.ir.canonical import Leaf, atom_of
from privtab.ir.formula import item_condition, leaves
from privtab.ir.nodes import Holds, Member, Owner, OwnsBelow, Program, Rule, ServiceAdmin, Term
from privtab.ir.serialise import vocabulary
from privtab.paths import base_type, level_of
from privtab.request import Entity, Request
from privtab.scenarios.compared import Values
from privtab.scenarios.coverage import Cell, Proof
from privtab.scenarios.expand import GeneratedCallers, entity_values, given_values
from privtab.scenarios.masks import Key, Mask, RowMasks, RuleDependencies
from privtab.scenarios.mutants import UNSEEN, Mutants
from privtab.scenarios.needs import Caller
from privtab.scenarios.ways import HeldAtom, HeldSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: its candidates, and what they are observed to hold."""

    rule: Rule
    settings: tuple[Setting, ...]
    candidates: tuple[Candidate, ...]
    observed: RowMasks
    readings: Mapping[str, Rule]

    def differing(self, changed: Rule) -> Mask:
        """The candidates that a changed rule answers otherwise."""
        return self.observed.outcome(changed) ^ self.observed.allowed


class Choice:
    """What the questions must cover in each row, and the candidates chosen for it."""

    def __init__(self, program: Program, rows: Mapping[Key, Row], *, separate: bool = False) -> None:
        """`separate`: choose enough candidates to distinguish the faults of a row from each other as well."""
        self.program = program
        self._separate = separate
        self.rows = rows
        self.cells: dict[Key, list[tuple[Cell, Mask]]] = {key: list(_cells(row)) for key, row in rows.items()}
        self.readings: dict[Key, dict[str, Mask]] = {
            key: {name: row.differing(rule) for name, rule in row.readings.items()} for key, row in rows.items()
        }
        self._dependencies = RuleDependencies(program)
        self._mutants = Mutants(program, self._dependencies)

    def asked_rules(self) -> list[Rule]:
        """The rows, and those that they refer to."""
        keys = {key for row in self.rows for key in self._dependencies.of(row)}
        return [rule for key, rule in self.program.rules.items() if key in keys]

    def chosen(self) -> dict[Key, tuple[int, ...]]:
        """The positions of the chosen candidates of each row."""
        required: dict[Key, list[Mask]] = {key: list(self._wanted(key)) for key in self.rows}
        elsewhere: list[list[tuple[Key, Mask]]] = []
        for key in self.rows:
            for own, others in self._faults(key):
                if own:
                    required[key].append(own)
                elif others:
                    elsewhere.append(others)
        preferred = {key: self._preferred(row) for key, row in self.rows.items()}
        taken = {key: hitting_set(masks, preferred[key]) for key, masks in required.items()}
        for others in elsewhere:
            if not any(taken[key] & mask for key, mask in others):
                key, mask = others[0]
                taken[key] |= hitting_set([mask], preferred[key])
        for key in self.rows if self._separate else ():
            taken[key] = self._separated(key, taken[key])
        return {key: tuple(bits(mask)) for key, mask in taken.items()}

    def _wanted(self, key: Key) -> Iterator[Mask]:
        yield from (mask for _, mask in self.cells[key])
        by_purpose: defaultdict[str, Mask] = defaultdict(int)
        for position, candidate in enumerate(self.rows[key].candidates):
            if candidate.purpose:
                by_purpose[candidate.purpose] |= 1 << position
        yield from by_purpose.values()
        allowed = self.rows[key].observed.allowed
        for mask in self._by_levels(key):
            yield mask & allowed
            yield mask & ~allowed
        for mask in self.readings[key].values():
            yield mask & allowed
            yield mask & ~allowed

    def _by_levels(self, key: Key) -> Iterable[Mask]:
        """For each form of request and number of levels, where a type nests, its candidates."""
        found: defaultdict[object, Mask] = defaultdict(int)
        for position, candidate in enumerate(self.rows[key].candidates):
            setting = candidate.setting
            if not setting.is_deepest or max(setting.levels.values()) > 1:
                found[setting.form, tuple(setting.levels.values())] |= 1 << position
        return found.values()

    def _faults(self, key: Key) -> Iterator[tuple[Mask, list[tuple[Key, Mask]]]]:
        """For each fault in a row, the candidates that notice it: of the row itself, or of those that refer to it."""
        row = self.rows[key]
        for mutant in self._mutants.of(row.rule):
            if mutant.change in UNSEEN:
                continue
            own = row.differing(mutant.rule)
            others: list[tuple[Key, Mask]] = []
            for dependent in () if own else self._dependencies.dependents(key):
                if dependent in self.rows:
                    observed = self.rows[dependent].observed
                    mask = observed.outcome(observed.rule, mutant.rule, self._dependencies) ^ observed.allowed
                    if mask:
                        others.append((dependent, mask))
            yield own, others

    def _separated(self, key: Key, taken: Mask) -> Mask:
        """The chosen candidates of a row, with further ones that distinguish all of its faults that candidates can distinguish.

        Each fault also has a candidate that it allows and one that it refuses, where it differs from the row in both.
        """
        row = self.rows[key]
        rules = [mutant.rule for mutant in self._mutants.of(row.rule) if mutant.change not in UNSEEN]
        masks = list(dict.fromkeys(row.differing(rule) for rule in (*rules, *row.readings.values())))
        allowed = row.observed.allowed
        both = (part for mask in masks for part in (mask & allowed, mask & ~allowed))
        taken |= hitting_set((part for part in both if not part & taken), row.observed.all_cases)
        groups = [masks]
        while groups:
            by_answers: defaultdict[Mask, list[Mask]] = defaultdict(list)
            for mask in groups.pop():
                by_answers[mask & taken].append(mask)
            for alike in by_answers.values():
                if len(alike) > 1:
                    taken |= hitting_set([alike[0] ^ alike[1]], row.observed.all_cases)
                    groups.append(alike)
        return taken

    @staticmethod
    def _preferred(row: Row) -> Mask:
        """The candidates with privileges of their own who name what they create: no real creation is without a name."""
        is_unnamed = row.rule.each is None
        return sum(
            1 << position
            for position, candidate in enumerate(row.candidates)
            if not (candidate.through_roles or (is_unnamed and candidate.setting.form == "call"))
        )


def hitting_set(masks: Iterable[Mask], preferred: Mask) -> Mask:
    """Few positions, of which each mask has one; rare positions first, then those that most masks have."""
    distinct = sorted({mask & preferred or mask for mask in masks} - {0}, key=lambda mask: (mask.bit_count(), mask))
    hits: defaultdict[int, int] = defaultdict(int)
    for number, mask in enumerate(distinct):
        for position in bits(mask):
            hits[position] |= 1 << number
    left = (1 << len(distinct)) - 1
    taken = 0
    for number, mask in enumerate(distinct):
        if left >> number & 1:
            best = max(bits(mask), key=lambda position: ((hits[position] & left).bit_count(), -position))
            taken |= 1 << best
            left &= ~hits[best]
    return taken


def bits(mask: Mask) -> Iterator[int]:
    """The positions in a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _cells(row: Row) -> Iterator[tuple[Cell, Mask]]:
    """The cells that some candidate proves, as coverage counts them, with those candidates."""
    by_kind: defaultdict[object, Mask] = defaultdict(int)
    for position, candidate in enumerate(row.candidates):
        by_kind[_kind(candidate.setting)] |= 1 << position
    # One setting for each kind: a cell may be proved with any number of levels.
    for kind, setting in {_kind(setting): setting for setting in row.settings}.items():
        if setting.form != "call" or row.rule.each is not None:
            yield from _proofs(setting, row.observed, by_kind[kind])


def _kind(setting: Setting) -> object:
    return setting.form, setting.flags, tuple(setting.types.items())


def _proofs(setting: Setting, observed: RowMasks, in_setting: Mask) -> Iterator[tuple[Cell, Mask]]:
    def cell(proof: Proof, mask: Mask, atoms: tuple[Leaf, ...] = (), missing: Leaf | None = None) -> tuple[Cell, Mask]:
        return Cell(
            rule=setting.rule,
            proof=proof,
            atoms=atoms,
            missing=missing,
            flags=setting.flags,
            types=setting.shown_types,
            form=setting.form,
            covered=True,
        ), mask

    masks = {atom: observed.atom(atom_of(atom)) for atoms in setting.sets for atom in atoms}
    complete = [reduce(int.__and__, (masks[atom] for atom in atoms), in_setting) for atoms in setting.sets]
    denied = in_setting & ~observed.allowed
    for number, atoms in enumerate(setting.sets):
        others = reduce(int.__or__, (mask for other, mask in enumerate(complete) if other != number), 0)
        if mask := complete[number] & ~others & observed.allowed:
            yield cell("allow", mask, atoms)
    for atoms in setting.sets:
        for missing in atoms:
            rest = reduce(int.__and__, (masks[atom] for atom in atoms if atom != missing), denied)
            if mask := rest & ~masks[missing]:
                yield cell("lack", mask, atoms, missing)
    if () not in setting.sets and (mask := denied & ~reduce(int.__or__, masks.values(), 0)):
        yield cell("default", mask)


_SLOT = re.compile(r"\d*$")
"""What ends the names of an object in `with`, as RequestNames writes them."""


_ASKED_OF_TYPES: Mapping[str, type[Member | Holds | Owner]] = {"member": Member, "holds": Holds, "owner": Owner}
"""What a caller is to entities of some types, by the kind of atom."""


@dataclass(frozen=True, slots=True)
class _ExistingCaller:
    """A caller who is there already."""

    number: int
    user: str
    groups: tuple[str, ...]


class Packing:
    """The names and the rows of a world, as callers are added."""

    def __init__(self, program: Program, rules: Iterable[Rule], prefix: str, mark: str = "") -> None:
        """`rules`: the rows that are asked about. `mark`: follows the prefix in the names of principals."""
        self.program = program
        self.prefix = prefix
        self._vocabulary = vocabulary(program)
        self._generated = GeneratedCallers(program, prefix + mark)
        self._known: dict[Hashable, _ExistingCaller] = {}
        self._entities: dict[str, Entity] = {}
        self._principals: dict[str, None] = {}
        """The entities that are principals themselves, as in `role:reader`."""
        owner = program.semantics.owner
        self._owners_hold = owner is not None and bool(owner.holds)
        required = {leaf for rule in rules for leaf in leaves(program, item_condition(rule))}
        self._has_admins = any(isinstance(leaf, ServiceAdmin) for leaf in required)
        self._asked = {
            (kind, leaf.target.type)
            for leaf in required
            for kind, atom in _ASKED_OF_TYPES.items()
            if isinstance(leaf, atom)
        }
        owned_below = {leaf.target.type for leaf in required if isinstance(leaf, OwnsBelow)}
        self._asked |= {("owner", type_) for type_ in program.entities if owned_below & set(program.chain(type_))}

    def request(self, caller: Caller, request: Request, rule: Rule, *, own: bool, through_roles: int) -> Request:
        """The request of a caller with its final names.

        `own`: no other request is about its resource. `through_roles`: as for GeneratedCallers.add_caller.
        """
        caller = replace(caller, held=frozenset(filter(self._matters, caller.held)))
        if rule.creates:
            caller = self._without_created(caller, request.resource)
        shared = not own and HeldAtom("self") not in caller.held
        # No other caller shares an entity of which the state has values.
        in_state = {t for t, v in entity_values(self.program, caller.values, request).items() if v is not None}
        key = caller.held, caller.denied, through_roles, _frozen(caller.values), frozenset(in_state)
        known = self._known.get(key) if shared else None
        number = self._generated.number + 1 if known is None else known.number
        numbered = {_path(atom.on) for atom in caller.held if atom.kind == "owner"}
        numbered |= {_path(term.target.slot) for term in in_state if term.target is not None}
        if own:
            numbered.add(request.resource.id)
        names = _FinalNames(self.program, self.prefix, number, numbered)
        renamed = replace(
            request,
            resource=names.entity(request.resource),
            with_={slot: names.entity(entity) for slot, entity in request.with_.items()},
        )
        named = names.caller(caller)
        if known is None:
            packed = self._generated.add_caller(named, renamed, through_roles=through_roles)
            self._must_exist_beside(named, renamed)
            if shared:
                self._known[key] = _ExistingCaller(number, packed.user, packed.groups)
        else:
            attributes = given_values(self.program, named.values, renamed)
            packed = replace(renamed, user=known.user, groups=known.groups, attributes=attributes)
        self._must_exist(packed, rule)
        return packed

    def _matters(self, atom: HeldAtom) -> bool:
        """Whether some row requires it: no caller becomes a member or the owner of an entity without members or owners."""
        if atom.kind == "admin":
            return self._has_admins
        if atom.kind not in _ASKED_OF_TYPES or (atom.kind == "owner" and self._owners_hold):
            return True
        return (atom.kind, atom.on.partition(":")[0]) in self._asked

    def _without_created(self, caller: Caller, resource: Entity) -> Caller:
        """The caller without what they hold on an entity that does not exist yet."""
        if not self._vocabulary.complete(resource):
            return caller

        def existing(atoms: HeldSet) -> HeldSet:
            return frozenset(atom for atom in atoms if not f"{_path(atom.on)}/".startswith(f"{resource.id}/"))

        return replace(caller, held=existing(caller.held), denied=existing(caller.denied))

    def _must_exist(self, request: Request, rule: Rule) -> None:
        """The entities of a request, and those above; what is created does not exist yet."""
        for entity in (*request.with_.values(), request.resource):
            created = str(entity) if rule.creates and entity is request.resource else None
            self._exist(key for key in self._vocabulary.keys(entity) if key != created)

    def _must_exist_beside(self, caller: Caller, request: Request) -> None:
        """The entities on which a caller holds something that no object of the request is, or lies in."""
        objects = (request.resource, *request.with_.values())
        known = {_path(key) for entity in objects for key in self._vocabulary.keys(entity)}
        for key in sorted({atom.on for atom in caller.held | caller.denied if atom.on and _path(atom.on) not in known}):
            self._exist(self._vocabulary.keys(Entity.parse(key)))

    def _exist(self, keys: Iterable[str]) -> None:
        for key in keys:
            entity = Entity.parse(key)
            kind = self.program.entities[entity.type].principal
            if kind is not None and len(entity.names) == 1:
                self._principals[f"{kind}:{entity.id}"] = None
            else:
                self._entities.setdefault(key, entity)

    def world(self, requests: Iterable[Request]) -> World:
        """The world of all callers that were added."""
        state = self._generated.state()
        principals = [
            *(f"user:{request.user}" for request in requests),
            *(f"group:{group}" for _, group in state.memberships),
            *(name for row in state.assignments for name in (row.principal, f"role:{row.role}")),
            *(owner for _, owner in state.owners),
            *self._principals,
        ]

        def named(kind: str) -> tuple[str, ...]:
            names = (name.removeprefix(f"{kind}:") for name in principals if name.startswith(f"{kind}:"))
            return tuple(dict.fromkeys(names))

        return World(
            state=state,
            entities=tuple(self._entities.values()),
            users=named("user"),
            groups=named("group"),
            roles=named("role"),
        )


class _FinalNames:
    """The final names for one caller: the prefix and the type, with a number if the entity is not shared."""

    def __init__(self, program: Program, prefix: str, number: int, numbered: set[str]) -> None:
        self._program = program
        self._prefix = prefix
        self._number = number
        self._numbered = numbered

    def entity(self, entity: Entity) -> Entity:
        """An entity of the request, or one above."""
        types = vocabulary(self._program).shapes[entity.type].types(entity.id)
        names: list[str] = []
        for depth, (type_, name) in enumerate(zip(types, entity.names, strict=True), 1):
            slot = _SLOT.search(name)
            level = (
                f"_level{level_of(type_)}"
                if level_of(type_) > 1 and self._program.entities[base_type(type_)].nested
                else ""
            )
            own = f"_{self._number}" if "/".join(entity.names[:depth]) in self._numbered else ""
            # A path that leaves off the last name where a type nests ends with an empty one.
            names.append(name and f"{self._prefix}{base_type(type_)}{slot[0] if slot else ''}{level}{own}")
        return Entity(entity.type, "/".join(names))

    def caller(self, caller: Caller) -> Caller:
        """A caller who holds the same on the entities with their final names."""
        values = {self._term(term): value for term, value in caller.values.items()}
        return replace(caller, held=self._atoms(caller.held), denied=self._atoms(caller.denied), values=values)

    def _term(self, term: Term) -> Term:
        if term.target is None:
            return term
        return replace(term, target=replace(term.target, slot=str(self.entity(Entity.parse(term.target.slot)))))

    def _atoms(self, atoms: HeldSet) -> HeldSet:
        return frozenset(
            replace(atom, on=str(self.entity(Entity.parse(atom.on)))) if atom.on else atom for atom in atoms
        )


def _frozen(values: Values) -> Hashable:
    """Values of attributes as a key."""
    return frozenset((term, tuple(value) if isinstance(value, list) else value) for term, value in values.items())


def _path(key: str) -> str:
    return key.partition(":")[2]
