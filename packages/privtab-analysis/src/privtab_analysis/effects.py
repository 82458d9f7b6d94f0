"""Effects of operations for their caller: facts that success adds, on existing entities and on created ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias, assert_never

from privtab.base import Entity, UsageError, dataclass, encode_name, quoted_privilege
from privtab.ir import RESOURCE, Has, Member, Owner, Program, Rule, Target, privilege_names, vocabulary
from privtab_analysis.caller import Caller, asked_forms
from privtab_analysis.entitlements.universe import Universe
from privtab_analysis.locations import GrowingLocations

MAX_CREATED = 5_000
"""Limit on the entities of a type that nests that could be created within each other, in each existing entity."""
FactKind: TypeAlias = Literal["grant", "owner", "member", "exists", "role", "group", "lift", "leave", "vacant"]
HELD: tuple[FactKind, ...] = ("grant", "owner", "member")
"""The facts that conditions ask for. The others lead to these: a created entity, a role within an entity, a group, a denial
to a principal that is gone, and the facts of `UNSURE`."""
_CHANGES: Mapping[FactKind, str] = {
    "grant": "add grants",
    "owner": "add owners",
    "member": "add members",
    "role": "add assignments",
    "group": "add memberships",
    "lift": "remove grants",
    "leave": "remove rows",
    "vacant": "remove all rows",
}
UNSURE: tuple[FactKind, ...] = ("leave", "vacant")
"""Facts that come with losses: a denial that is gone with other rows, and an entity that no row names any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GainedFact:
    """Something that the caller may gain: a granted privilege, ownership, membership, or a created entity."""

    kind: FactKind
    entity: Entity
    privilege: str = ""
    """A privilege; of a role or a group its name, and the principal of a denial."""

    def __str__(self) -> str:
        if self.kind in ("role", "group"):
            return f"{self.kind}:{self.privilege}" + (f" ({self.entity})" if self.entity.type else "")
        if self.kind in ("lift", "leave"):
            return f"no denial to {self.privilege} ({self.entity})"
        return f"{quoted_privilege(self.privilege) or self.kind} ({self.entity})"

    def atom(self) -> Has | Owner | Member:
        """The atom that requires this fact, for a request about the entity."""
        target = Target(slot=RESOURCE, type=self.entity.type)
        match self.kind:
            case "grant":
                return Has(privilege=self.privilege, target=target)
            case "owner":
                return Owner(target=target)
            case "member":
                return Member(target=target)
            case "exists" | "role" | "group" | "lift" | "leave" | "vacant":
                raise ValueError(f"no condition depends on `{self}` itself")
            case _:
                assert_never(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An operation that gives something, with the objects that this depends on."""

    rule: Rule
    resource: Entity
    with_: tuple[tuple[str, Entity], ...] = ()
    authorises: bool = False
    """True if changes of a store's rows that the operation authorises give something, and not its effects."""
    creates: bool = False
    """True if the operation creates its resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation of a path: its objects, the reason why it is allowed there, and its gains."""

    rule: Rule
    resource: Entity
    with_: Mapping[str, Entity]
    creates: bool
    because: tuple[Mapping[str, str], ...]
    gained: tuple[GainedFact, ...]
    authorises: bool = False

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes of a store's rows that give it."""
        return tuple(dict.fromkeys(_CHANGES[fact.kind] for fact in self.gained if self.authorises))


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The steps to a goal, none if it is held already. `shortest`: no path has fewer steps.

    Not `certain`: these steps are not ruled out, but may not lead to the goal, as where a role that is taken brings a denial. No
    steps then: nothing is known of changes that are not followed.
    """

    goal: str
    steps: tuple[Step, ...]
    shortest: bool = True
    certain: bool = True


def granting_rules(program: Program) -> tuple[Rule, ...]:
    """The rules that give their caller something or create an entity."""
    return tuple(
        rule
        for rule in program.rules.values()
        if rule.creates or any(effect.kind != "revoke" for effect in rule.effects)
    )


def effect_slots(rule: Rule) -> tuple[str, ...]:
    """The `with` slots that a rule's effects refer to."""
    slots = {effect.target.slot for effect in rule.effects if effect.kind != "revoke"}
    return tuple(slot.name for slot in rule.withs if slot.name in slots)


def creates_resource(program: Program, rule: Rule) -> bool:
    """Return whether a rule creates its entity. A `single` entity exists with its parent, so it is never created."""
    return rule.creates is not None and not program.entities[rule.entity].single


def grants_on_existing_entities(program: Program) -> bool:
    """Return whether some rule gives something on an existing entity, and not only on entities that it creates."""
    return any(
        effect.kind != "revoke"
        and effect.target.type not in _children(program, rule, effect.target)
        and (True in asked_forms(program, rule) or effect.target != Target(slot=RESOURCE, type=rule.entity))
        for rule in granting_rules(program)
        for effect in rule.effects
    )


def _children(program: Program, rule: Rule, target: Target) -> tuple[str, ...]:
    """The type of a target directly inside the rule's entity, which the operation therefore creates; else empty."""
    type_ = program.entities[target.type]
    inside = target.slot == RESOURCE and type_.parent == rule.entity and not type_.single
    return (target.type,) if inside else ()


class FreshNames:
    """Names for created entities: one entity for each parent and each rule that creates such entities.

    `taken`: names in use. One entity is enough. Created entities differ only by their path, so in any sequence of
    operations each may be replaced by the first that the same rule created under the same parent. What was allowed
    stays allowed: that entity gathers every right that the others had, and no condition requires the absence of a
    right.
    """

    def __init__(self, program: Program, used: Iterable[str], where: GrowingLocations) -> None:
        """`where`: the places of entities with flat ids, to which created entities are added."""
        self.program = program
        self._where = where
        self._vocabulary = vocabulary(program)
        self._privilege_names = privilege_names(program)
        base = "new"
        existing = set(used)
        while any(name.startswith(base) for name in existing):
            base += "_"
        creating_rules: dict[str, list[str]] = {}
        for rule in granting_rules(program):
            created = {rule.entity} if creates_resource(program, rule) else set()
            created |= {
                child_type
                for effect in rule.effects
                if effect.kind != "revoke"
                for child_type in _children(program, rule, effect.target)
            }
            for type_ in sorted(created):
                creating_rules.setdefault(type_, []).append(rule.id)
        self._names = {
            (type_, rule): base if len(rules) == 1 else f"{base}{number}"
            for type_, rules in creating_rules.items()
            for number, rule in enumerate(rules, start=1)
        }

    def check_levels(self, max_steps: int | None) -> None:
        """Raise UsageError if so many steps could create too many entities in each other; None: any number of steps."""
        for type_ in self.program.entities.values():
            count = sum(name == type_.name for name, _ in self._names)
            levels = type_.nested if max_steps is None else min(type_.nested, max_steps)
            if count**levels > MAX_CREATED:
                raise UsageError(
                    f"{count} operations create a `{type_.name}`, in each other to {levels} levels: too many to search; "
                    "ask for paths of fewer steps"
                )

    def created_in(self, parent: Entity | None, type_: str, rule: Rule) -> Entity:
        """The entity that a rule creates in a parent, or at the root."""
        name = self._names[type_, rule.id]
        if type_ in self.program.flat:
            assert parent is not None, "a root has no flat id"
            entity = Entity(type_, encode_name(f"{name} in {parent}"))
            self._where.place(entity, parent)
            return entity
        return Entity(type_, f"{parent.id}/{name}" if parent is not None and parent.id else name)

    def resources(self, rule: Rule, universe: Universe) -> Iterator[tuple[Entity, bool]]:
        """The possible resources of a rule, and whether it creates them: existing entities, and the one to be in each parent."""
        if True in asked_forms(self.program, rule):
            yield from ((entity, False) for _, entity in sorted(universe.by_type[rule.entity].items()))
        if not creates_resource(self.program, rule):
            return
        containers = self._vocabulary.containers(rule.entity)
        if not containers:
            yield self.created_in(None, rule.entity, rule), True
        for type_ in containers:
            for _, parent in sorted(universe.by_type[type_].items()):
                if self._has_room(rule.entity, parent):
                    yield self.created_in(parent, rule.entity, rule), True

    def _has_room(self, type_: str, parent: Entity) -> bool:
        """Return whether an entity of a type may lie in another one: no path has more levels than its type nests."""
        shape = self._vocabulary.shapes[type_]
        if shape.nested is None:
            return True
        return shape.levels_of(len(self._where.keys(parent)) + 1) <= shape.bound

    def gained_facts(
        self, caller: Caller, rule: Rule, resource: Entity, with_: Mapping[str, Entity], *, creates: bool
    ) -> tuple[GainedFact, ...]:
        """The facts that success adds for the caller, also by implication. Revocations are left out: they never help the caller."""
        caller.about({RESOURCE: resource, **with_})
        found: dict[GainedFact, None] = {}
        if creates:
            found[GainedFact(kind="exists", entity=resource)] = None
        for effect in rule.effects:
            if effect.kind == "revoke":
                continue
            if _children(self.program, rule, effect.target):
                entity = self.created_in(resource, effect.target.type, rule)
                found[GainedFact(kind="exists", entity=entity)] = None
            else:
                entity = Entity.parse(caller.path(effect.target)[-1])
            if effect.kind == "grant":
                found |= {
                    GainedFact(kind="grant", entity=entity, privilege=privilege): None
                    for name in effect.privileges
                    for privilege in self._privilege_names.privileges_of(name, entity.type, "allow")
                }
            else:
                found[GainedFact(kind="owner" if effect.what == "owner" else "member", entity=entity)] = None
        return tuple(found)
