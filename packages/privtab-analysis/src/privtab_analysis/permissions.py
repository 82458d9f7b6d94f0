"""Permissions of one user: every operation on every entity that the state names.

Conditions are worked out on all entities of a type at once (`entitlements.everywhere`). Where paths and rows do not tell everything, and for
groups and roles alone, the reference decides for each equivalence class: most entities of a large state are equivalent for one user,
who holds something only near the root, and below that point all entities of a type get the same answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from itertools import groupby, product
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
from privtab_analysis.entitlements.columns import Columns
from privtab_analysis.entitlements.everywhere import Everywhere
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
class AllowedGroup:
    """Entities of a type on which the same operations are allowed. `paths`: sorted; `operations`: on the first entity."""

    type: str
    paths: Sequence[str]
    operations: Sequence[AllowedOperation]

    def on(self, path: str) -> Iterator[AllowedOperation]:
        """The operations on one of the entities."""
        first, own = Entity(self.type, self.paths[0]), Entity(self.type, path)
        for may in self.operations:
            # A call at an entity with a flat id names its type, too.
            flat = may.unnamed and may.resource.id == f"{first}/"
            end = may.resource.id[len(str(first)) if flat else len(first.id) :]
            # `replace` takes three times as long.
            yield AllowedOperation(
                operation=may.operation,
                resource=Entity(may.resource.type, (str(own) if flat else path) + end),
                unnamed=may.unnamed,
                with_=may.with_,
                choices=may.choices,
            )

    @property
    def words(self) -> tuple[str, ...]:
        """The operations as words. `[list table]`: a call that names no item. `run*`: with some further object."""
        shown = [(may, may.operation + ("*" if may.with_ else "")) for may in self.operations]
        named = (word for may, word in shown if not may.unnamed)
        return (*named, *(f"[{word} {may.resource.type}]" for may, word in shown if may.unnamed))


@dataclass(frozen=True, kw_only=True)
class WhatCan:
    """The permissions of a principal, and the entities that were looked at."""

    principal: str
    """`user:alice`, `group:hr` or `role:analyst`."""
    entities: Universe | tuple[Entity, ...]
    groups: tuple[AllowedGroup, ...]
    """The entities on which anything is allowed, in the order of the policy's types."""
    question_count: int
    """The number of questions answered: pairs of operation and entity."""
    undecided: tuple[Rule, ...] = ()
    """The rows with too many choices of `with` objects to try."""

    @property
    def count(self) -> int:
        """How much is allowed."""
        return sum(len(group.paths) * len(group.operations) for group in self.groups)

    @cached_property
    def allowed(self) -> tuple[AllowedOperation, ...]:
        """Each of them, in the order of the policy's types, then by path."""
        found: list[AllowedOperation] = []
        for _, groups in groupby(self.groups, key=lambda group: group.type):
            of_type = sorted((path, group) for group in groups for path in group.paths)
            found += (may for path, group in of_type for may in group.on(path))
        return tuple(found)


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
    types = ["", *reference.program.entities] if entity is None else [entity.type]
    plain = not (is_principal_alone or groups or active_roles is not None)
    allowed = _in_columns(caller, state, found, types, entity) if plain else None
    decisions = None
    if allowed is None:
        decisions = _Decisions(caller, state, found)
        allowed = decisions.groups(types, entity)
    sizes = {type_: len(found.by_type.get(type_, [""])) if entity is None else 1 for type_ in types}
    return WhatCan(
        principal=user if is_principal_alone else f"user:{name}",
        entities=found if entity is None else (entity,),
        groups=tuple(allowed),
        question_count=sum(size * len(questions(reference.program, type_)) for type_, size in sizes.items()),
        undecided=() if decisions is None else tuple(decisions.undecided.values()),
    )


def lines(program: Program, found: WhatCan) -> list[tuple[str, str, list[str]]]:
    """(type, paths, operations) for entities with allowed operations; neighbours with the same operations share a line."""
    order = list(program.entities)
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for group in found.groups:
        type_, words = group.type, group.words
        for path in group.paths:
            alike[type_, path.rpartition("/")[0], words].append(path)
    listed = []
    for (type_, parent, words), paths in alike.items():
        names = paths[0] if len(paths) == 1 else _joined(parent, sorted(paths))
        listed.append((type_ or "anywhere", names, list(words)))
    return sorted(listed, key=lambda line: (order.index(line[0]) if line[0] in order else -1, line[1]))


def _in_columns(
    caller: Caller, state: State, universe: Universe, types: Iterable[str], entity: Entity | None
) -> list[AllowedGroup] | None:
    """The permissions by columns of entities; None where these do not tell everything, or there is too much to combine."""
    if not Columns.fit(caller.program):
        return None
    everywhere = Everywhere(caller.program, state, caller.holdings, caller.user, caller.flags, universe)
    found: list[AllowedGroup] = []
    for type_ in types:
        of_type = everywhere.allowed(type_, questions(caller.program, type_), entity)
        if of_type is None:
            return None
        for paths, answers in of_type:
            operations = tuple(
                AllowedOperation(
                    operation=rule.operation,
                    resource=Entity(rule.entity, paths[0] and f"{paths[0]}/" if unnamed else paths[0]),
                    unnamed=unnamed,
                    with_=with_,
                    choices=choices,
                )
                for rule, unnamed, with_, choices in answers
            )
            found.append(AllowedGroup(type=type_, paths=paths, operations=operations))
    return found


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
        self._conditions: dict[tuple[str, bool], tuple[int, Formula]] = {}
        self._numbers: dict[Formula, int] = {}
        self._held: dict[tuple[int, Entity], bool] = {}
        """For the entity that is decided: by number of the condition and resource, since many operations have equal conditions."""

    def groups(self, types: Iterable[str], only: Entity | None) -> list[AllowedGroup]:
        """The entities of some types, or one alone, with the operations that are allowed, one group for each class."""
        found: dict[tuple[str, str], list[Entity]] = defaultdict(list)
        for type_ in types:
            known = [""] if not type_ else self.universe.paths(type_)
            for entity in map(partial(Entity, type_), known) if only is None else [only]:
                found[self._classes.of(entity)].append(entity)
        decided = ((entities, self._decided(entities[0])) for entities in found.values())
        return [
            AllowedGroup(type=entities[0].type, paths=[entity.id for entity in entities], operations=operations)
            for entities, operations in decided
            if operations
        ]

    def _decided(self, entity: Entity) -> list[AllowedOperation]:
        """The operations that are allowed on an entity."""
        self._held.clear()
        questioned = (
            (rule, self._resource(rule, entity, unnamed=u), u) for rule, u in questions(self.program, entity.type)
        )
        answers = (self._decide(rule, resource, unnamed=u) for rule, resource, u in questioned if resource is not None)
        return [may for may in answers if may is not None]

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
