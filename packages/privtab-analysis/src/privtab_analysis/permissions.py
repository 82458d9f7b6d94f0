"""Permissions of one user: every operation on every entity that the state names.

Most entities of a large state are equivalent for one user: the user holds something only near the root, and below that
point all entities of a type get the same answers. The reference decides each equivalence class once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import prod
from typing import TypeAlias

from privtab.base import LEFT_OUT, Entity, Undecided, bare_name, check_principal, dataclass, once
from privtab.ir import (
    RESOURCE,
    ByType,
    Compare,
    Formula,
    Leaf,
    OnTarget,
    Program,
    Rule,
    Tool,
    asked_condition,
    canonical_form,
    compared_terms,
    vocabulary,
)
from privtab.reference import Reference
from privtab.state import State
from privtab_analysis.caller import Caller, EquivalenceClasses, asked_forms
from privtab_analysis.entitlements.universe import Universe, universe

Atoms: TypeAlias = tuple[Leaf, ...]
MOST_NAMES = 5
"""Maximum entities named on one line."""
CHOICES = 4_096
"""The most choices of types, or of objects, that are tried for the `with` objects of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedOperation:
    """One allowed operation. `with_`: a choice of `with` objects that it is allowed with.

    `choices`: how many entities would do as the `with` object, if there is exactly one. An unnamed call has a resource
    without its last name, as in `list` and `create` under a parent.
    """

    operation: str
    resource: Entity
    unnamed: bool = False
    with_: Mapping[str, Entity] = field(default_factory=dict)
    choices: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatCan:
    """The permissions of a principal, in the order of the policy's types, then by path, and the entities that were looked at."""

    principal: str
    """`user:alice`, `group:hr` or `role:analyst`."""
    entities: tuple[Entity, ...]
    allowed: tuple[AllowedOperation, ...]
    question_count: int
    """The number of questions answered: pairs of operation and entity."""
    undecided: tuple[Rule, ...] = ()
    """The rows with too many choices of `with` objects to try."""


def what_can(
    reference: Reference,
    state: State,
    user: str,
    entity: Entity | None = None,
    *,
    flags: frozenset[str] = frozenset(),
    groups: Collection[str] = (),
    active_roles: Collection[str] | None = None,
    known: Universe | None = None,
) -> WhatCan:
    """Return the permissions of `user` on each entity that the state names, or on `entity` alone.

    For `group:hr` or `role:analyst`: the permissions of a user who is only in that group, or only holds that role.

    Operations that create are decided without a last name, since the entity does not exist yet, and so are unnamed
    calls such as listings. `with` objects are chosen among the same entities. Raises InvalidRequest if `entity` is not
    valid in this policy, and if the user does not hold one of the `active_roles`. `known`: the universe of the whole state, if it was
    worked out before.
    """
    Tool.WHAT_CAN.check(reference.program)
    if entity is not None:
        reference.vocabulary.check_path(entity)
    if entity is None:
        found = known or universe(reference.program, state)
    else:
        found = universe(reference.program, state, _types(reference.program, entity.type))
        found.add(entity)
    name = bare_name(user, "user")
    is_principal_alone = user.startswith(("group:", "role:"))
    if is_principal_alone:
        caller = Caller.of_principal(reference, user, flags=flags)
    else:
        check_principal(name)
        caller = Caller(reference, name, groups=groups, flags=flags, active_roles=active_roles)
        caller.check_active_roles()
    decisions = _Decisions(caller, state, found)
    entities = list(found) if entity is None else [entity]
    allowed: list[AllowedOperation] = []
    total = 0
    for resource in [*([Entity("", "")] if entity is None else []), *entities]:
        total += len(questions(reference.program, resource.type))
        allowed += decisions.allowed(resource)
    return WhatCan(
        principal=user if is_principal_alone else f"user:{name}",
        entities=tuple(entities),
        allowed=tuple(allowed),
        question_count=total,
        undecided=tuple(decisions.undecided.values()),
    )


def lines(program: Program, allowed: Iterable[AllowedOperation]) -> list[tuple[str, str, list[str]]]:
    """(type, paths, operations) for entities with allowed operations; neighbours with the same operations share a line.

    `[list table]`: a call that names no item. `run*`: with some further object.
    """
    order = list(program.entities)
    by_entity: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for may in allowed:
        type_ = _container(program, may.resource) if may.unnamed else may.resource.type
        path = may.resource.id.removesuffix("/")  # a path without its last name ends so where a type nests
        if may.unnamed and may.resource.type in program.flat:
            type_, _, path = path.partition(":")
        named, calls = by_entity.setdefault((type_, path), ([], []))
        word = may.operation + ("*" if may.with_ else "")
        if may.unnamed:
            calls.append(f"{word} {may.resource.type}")
        else:
            named.append(word)
    found = []
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (type_, path), (named, calls) in by_entity.items():
        words = (*named, *(f"[{call}]" for call in calls))
        alike.setdefault((type_, path.rpartition("/")[0], words), []).append(path)
    for (type_, parent, words), paths in alike.items():
        names = paths[0] if len(paths) == 1 else _joined(parent, paths)
        found.append((type_ or "anywhere", names, list(words)))
    return sorted(found, key=lambda line: (order.index(line[0]) if line[0] in order else -1, line[1]))


def _container(program: Program, resource: Entity) -> str:
    """The type of the entity that contains a resource; empty for the root."""
    parent = program.entities[resource.type].parent
    levels = vocabulary(program).shapes[resource.type].levels(resource.id)
    return resource.type if program.entities[resource.type].nested and levels > 1 else parent or ""


def _joined(parent: str, paths: list[str]) -> str:
    last = [path.rpartition("/")[2] for path in paths]
    listed = f"{{{','.join(last)}}}" if len(last) <= MOST_NAMES else f"{{{','.join(last[:3])},…}} ({len(last):,})"
    return f"{parent}/{listed}" if parent else listed


def questions(program: Program, type_: str) -> Sequence[tuple[Rule, bool]]:
    """The operations on an entity type (empty for the root): named ones, and unnamed calls (True)."""
    return _questions(program).get(type_, ())


@once
def _questions(program: Program) -> Mapping[str, Sequence[tuple[Rule, bool]]]:
    found: dict[str, list[tuple[Rule, bool]]] = defaultdict(list)
    forms = [(rule, named) for rule in program.rules.values() for named in asked_forms(program, rule)]
    for rule, named in sorted(forms, key=lambda form: not form[1]):
        for type_ in [rule.entity] if named else vocabulary(program).containers(rule.entity) or [""]:
            found[type_].append((rule, not named))
    return found


def _types(program: Program, type_: str) -> set[str]:
    """The types whose entities may matter for an entity of a type: the types of `with` objects, and of principals."""
    with_ = {t for rule, _ in questions(program, type_) for slot in rule.withs for t in slot.named}
    return with_ | {t.name for t in program.entities.values() if t.principal is not None}


class _Decisions:
    """Answers for one caller, one decision for each class of entities."""

    def __init__(self, caller: Caller, state: State, universe: Universe) -> None:
        self.caller = caller
        self.program: Program = caller.program
        self.universe = universe
        self._classes = EquivalenceClasses(caller, state, universe)
        self.choices = Choices(caller, universe, self._classes)
        self.undecided: dict[str, Rule] = {}
        self._known: dict[tuple[str, str], list[AllowedOperation]] = {}
        self._conditions: dict[tuple[str, bool], tuple[int, Formula]] = {}
        self._numbers: dict[Formula, int] = {}
        self._held: dict[tuple[int, Entity], bool] = {}
        """For the entity that is decided: by number of the condition and resource, since many operations have equal conditions."""
        self._flat = frozenset(self.program.flat)

    def allowed(self, entity: Entity) -> Iterator[AllowedOperation]:
        """The operations that are allowed on an entity."""
        kind = self._classes.of(entity)
        if kind not in self._known:
            self._held.clear()
            questioned = (
                (rule, self._resource(rule, entity, unnamed=u), u) for rule, u in questions(self.program, entity.type)
            )
            answers = (
                self._decide(rule, resource, unnamed=u) for rule, resource, u in questioned if resource is not None
            )
            self._known[kind] = [may for may in answers if may is not None]
        for may in self._known[kind]:
            if may.unnamed and may.resource.type in self._flat:
                yield replace(may, resource=Entity(may.resource.type, f"{entity}/"))
                continue
            of_class = may.resource.id.removesuffix("/")
            end = may.resource.id[len(of_class) :]
            if of_class == entity.id:
                yield may
                continue
            # `replace` takes three times as long.
            yield AllowedOperation(
                operation=may.operation,
                resource=Entity(may.resource.type, entity.id + end),
                unnamed=may.unnamed,
                with_=may.with_,
                choices=may.choices,
            )

    def _resource(self, rule: Rule, entity: Entity, *, unnamed: bool) -> Entity | None:
        """The resource of a question about an entity; None if it lies deeper than its type nests."""
        shape = self.caller.vocabulary.shapes[rule.entity]
        id_ = shape.unnamed_in(entity.type, entity.id) if unnamed else entity.id
        return None if id_ is None else Entity(rule.entity, id_)

    def _decide(self, rule: Rule, resource: Entity, *, unnamed: bool) -> AllowedOperation | None:
        if rule.needs_active_role and not self.caller.active_roles:
            return None
        number, condition = self._condition(rule, unnamed=unnamed)
        if not rule.withs:
            if (number, resource) not in self._held:
                self._held[number, resource] = self.caller.about({RESOURCE: resource}).holds(condition)
            holds = self._held[number, resource]
            return AllowedOperation(operation=rule.operation, resource=resource, unnamed=unnamed) if holds else None
        listed_slots = [rule.withs[0].name] if len(rule.withs) == 1 else []
        found: list[dict[str, Entity]] = []
        try:
            found += self.choices.of(rule, condition, resource, listed_slots=listed_slots)
        except Undecided:
            self.undecided[rule.id] = rule
        if not found:
            return None
        return AllowedOperation(
            operation=rule.operation,
            resource=resource,
            unnamed=unnamed,
            with_=found[0],
            choices=len(found) if len(rule.withs) == 1 else None,
        )

    def _condition(self, rule: Rule, *, unnamed: bool) -> tuple[int, Formula]:
        """The condition of a question, with a number that is equal for equal conditions."""
        key = rule.id, unnamed
        if key not in self._conditions:
            condition = asked_condition(self.program, rule, named=not unnamed)
            self._conditions[key] = self._numbers.setdefault(condition, len(self._numbers)), condition
        return self._conditions[key]


class Choices:
    """The `with` objects for which a rule's condition holds, chosen among the entities of a universe.

    For given types of all objects, a condition is its minimal sets, and each atom is about one object; so each object
    is chosen independently. If there are too many minimal sets, every choice is tried, with one object for each
    equivalence class.
    """

    def __init__(self, caller: Caller, universe: Universe, classes: EquivalenceClasses) -> None:
        self.caller = caller
        self.universe = universe
        self.classes = classes
        self._split: dict[
            tuple[str, bool, tuple[tuple[str, ...], ...]], list[tuple[dict[str, str], Atoms, dict[str, Atoms]]]
        ] = {}
        self._candidates: dict[tuple[str, Atoms, str], list[Entity | None]] = {}
        self._classes_of_entities: dict[str, list[tuple[Entity, tuple[str, str]]]] = {}
        self.exists: Callable[[Entity], bool] = lambda _: True
        """Tells which entities of the universe may be chosen. Call `forget` after a change."""

    def forget(self) -> None:
        """Drop cached choices, because the universe has grown or the caller holds more."""
        self._candidates.clear()
        self._classes_of_entities.clear()

    def of(
        self, rule: Rule, condition: Formula, resource: Entity, *, listed_slots: Collection[str] = ()
    ) -> Iterator[dict[str, Entity]]:
        """The choices for which the condition holds: every one for the slots in `listed_slots`, any one for the others.

        Raises Undecided if there are too many to try.
        """
        yielded: set[tuple[Entity | None, ...]] = set()
        for candidates in self._pools(rule, condition, resource):
            pools = [found if slot in listed_slots else found[:1] for slot, found in candidates.items()]
            for combination in product(*pools):
                chosen = zip(candidates, combination, strict=True)
                with_ = {slot: entity for slot, entity in chosen if entity is not None}
                key = tuple(with_.get(slot) for slot in listed_slots)
                if key not in yielded:
                    yielded.add(key)
                    yield with_

    def _pools(self, rule: Rule, condition: Formula, resource: Entity) -> Iterator[dict[str, list[Entity | None]]]:
        """Candidates for each slot, None for no object; any of them may be combined with any of the other slots."""
        if compared_terms(self.caller.program):  # of two objects with each other, too
            yield from self._enumerated(rule, condition, resource)
            return
        try:
            splits = self.split(rule, condition, resource)
        except Undecided:
            yield from self._enumerated(rule, condition, resource)
            return
        for types, resource_atoms, by_slot in splits:
            self.caller.about({RESOURCE: resource})
            if not all(self.caller.holds(atom) for atom in resource_atoms):
                continue
            candidates = {slot: self.candidates(slot, by_slot.get(slot, ()), type_) for slot, type_ in types.items()}
            if all(candidates.values()):
                yield candidates

    def _enumerated(self, rule: Rule, condition: Formula, resource: Entity) -> Iterator[dict[str, list[Entity | None]]]:
        """The same as `_pools`, by evaluating the condition itself."""
        classes_of_slots: list[list[list[Entity | None]]] = []
        for slot in rule.withs:
            kinds: dict[tuple[str, str], list[Entity | None]] = {}
            for entity in (
                e for t in slot.named for _, e in sorted(self.universe.by_type[t].items()) if self.exists(e)
            ):
                kinds.setdefault(self.classes.of(entity), []).append(entity)
            without: list[list[Entity | None]] = [[None]] if LEFT_OUT in slot.types else []
            classes_of_slots.append([*kinds.values(), *without])
        if prod(map(len, classes_of_slots)) > CHOICES:
            raise Undecided(f"not decided: `{rule.id}` has more than {CHOICES:,} choices of `with` objects")
        for combination in product(*classes_of_slots):
            pools = dict(zip((slot.name for slot in rule.withs), combination, strict=True))
            objects = {slot: pool[0] for slot, pool in pools.items() if pool[0] is not None}
            self.caller.about({RESOURCE: resource, **objects})
            if self.caller.holds(condition):
                yield pools

    def split(
        self, rule: Rule, condition: Formula, resource: Entity
    ) -> list[tuple[dict[str, str], Atoms, dict[str, Atoms]]]:
        """For each choice of types and each minimal set: the types, the resource's atoms, and each slot's atoms.

        Types without an entity in the universe are left out. Raises Undecided if there are too many choices.
        """
        self.caller.about({RESOURCE: resource})
        types = tuple(tuple(t for t in slot.types if t == LEFT_OUT or self.universe.by_type[t]) for slot in rule.withs)
        key = (rule.id, RESOURCE in self.caller.complete, types)
        if key not in self._split:
            if prod(map(len, types)) > CHOICES:
                raise Undecided(
                    f"not decided: `{rule.id}` has more than {CHOICES:,} choices of types for its `with` objects"
                )
            self._split[key] = list(_split(self.caller, rule, condition, types))
        return self._split[key]

    def candidates(self, slot: str, atoms: Atoms, type_: str) -> list[Entity | None]:
        """The entities of a type for which all atoms of a slot hold, by path; None for no object."""
        if type_ == LEFT_OUT:
            return [None]
        key = (slot, atoms, type_)
        if key not in self._candidates:
            if type_ not in self._classes_of_entities:
                pool = self.universe.by_type[type_]
                self._classes_of_entities[type_] = [(pool[path], self.classes.of(pool[path])) for path in sorted(pool)]
            found: list[Entity | None] = []
            known: dict[tuple[str, str], bool] = {}
            for entity, kind in self._classes_of_entities[type_]:
                if kind not in known:
                    self.caller.about({slot: entity})
                    known[kind] = all(self.caller.holds(atom) for atom in atoms)
                if known[kind] and self.exists(entity):
                    found.append(entity)
            self._candidates[key] = found
        return self._candidates[key]


def _split(
    caller: Caller, rule: Rule, condition: Formula, types_of_slots: Iterable[Collection[str]]
) -> Iterator[tuple[dict[str, str], Atoms, dict[str, Atoms]]]:
    for combination in product(*types_of_slots):
        types = {w.name: type_ for w, type_ in zip(rule.withs, combination, strict=True)}
        for atoms in canonical_form(caller.program).minimal_sets(condition, caller.flags, types):
            by_slot: dict[str, list[Leaf]] = {}
            for atom in atoms:
                by_slot.setdefault(_slot(atom), []).append(atom)
            resource_atoms = tuple(by_slot.pop(RESOURCE, ()))
            yield types, resource_atoms, {slot: tuple(leaves) for slot, leaves in by_slot.items()}


def _slot(atom: Leaf) -> str:
    assert not isinstance(atom, ByType | Compare), "types are given, and objects of policies with attributes are tried"
    return atom.target.slot if isinstance(atom, OnTarget) else RESOURCE
