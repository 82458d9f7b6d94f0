"""The goal of a path: a right held on an entity, or an allowed operation; and the facts that a search takes for granted."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import field, replace

from privtab.base import Entity, InvalidRequest, Request, dataclass, quoted_privilege
from privtab.ir import RESOURCE, Atom, Formula, Rule, asked_condition, on_entity
from privtab.reference import Reference
from privtab.state import StateNames
from privtab_analysis.caller import Caller
from privtab_analysis.effects import HELD, FactKind, GainedFact
from privtab_analysis.entitlements.universe import Universe
from privtab_analysis.locations import GrowingLocations
from privtab_analysis.permissions import Choices
from privtab_analysis.rights import by_ownership

_FACTS: Mapping[str, FactKind] = {"grants": "grant", "owners": "owner", "members": "member"}
"""The facts that rows of tables are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The goal of a path: all of some atoms on an entity, or an allowed operation."""

    text: str
    resource: Entity
    atoms: tuple[Atom, ...] = ()
    rule: Rule | None = None
    with_: Mapping[str, Entity] = field(default_factory=dict)
    fact: GainedFact | None = None
    """A fact that is to be gained itself: a role, a group, or that a denial is gone."""

    def is_about(self, fact: GainedFact) -> bool:
        """Return whether the goal asks for a fact, on its own entity."""
        return fact.entity == self.resource and fact.kind in HELD and fact.atom() in self.atoms

    @classmethod
    def of_fact(cls, fact: GainedFact) -> Goal:
        """The goal of holding a fact in effect, with denials and inheritance taken into account."""
        if fact.kind not in HELD:
            return cls(text=str(fact), resource=fact.entity, fact=fact)
        return cls(text=str(fact), resource=fact.entity, atoms=(fact.atom(),))


def goal(reference: Reference, name: str, entity: Entity) -> Goal:
    """The goal of holding `owner`, `member`, a privilege, or all of a set on an entity.

    Raises InvalidRequest if the policy knows no such entity, or if nothing of that name can be held on it.
    """
    reference.vocabulary.check_path(entity)
    text = f"{quoted_privilege(name)} ({entity})"
    if name in {"owner", "member"}:
        fact = GainedFact(kind="owner" if name == "owner" else "member", entity=entity)
        return Goal(text=text, resource=entity, atoms=(fact.atom(),))
    names = StateNames(reference.program)
    problem = names.grantable(name, entity.type)
    if problem is not None and (entity.type, name) in reference.program.rules:
        raise InvalidRequest(f"`{name}` is an operation: ask for it by `{entity} --operation {name}`")
    if problem is not None:
        raise InvalidRequest(f"{problem.message}; {problem.help}" if problem.help else problem.message)
    facts = (
        GainedFact(kind="grant", entity=entity, privilege=privilege)
        for privilege in names.privileges_of(name, entity.type, "deny")
    )
    return Goal(text=text, resource=entity, atoms=tuple(fact.atom() for fact in facts))


def operation_goal(
    reference: Reference,
    operation: str,
    entity: Entity,
    with_: Mapping[str, Entity] | None = None,
    flags: frozenset[str] = frozenset(),
) -> Goal:
    """The goal of being allowed an operation. `with` objects that are not given are chosen among the existing entities.

    Raises InvalidRequest if the policy knows no such operation, entity or object, or if a required flag is missing.
    """
    shape = reference.vocabulary.check_operation(entity.type, operation)
    reference.vocabulary.check_path(entity)
    with_objects = {name: entity for name, entity in (with_ or {}).items() if name in shape.withs}
    reference.vocabulary.check_context(
        Request(user="", action=operation, resource=entity, with_=with_objects, flags=flags),
        replace(shape, withs={name: types for name, types in shape.withs.items() if name in with_objects}),
    )
    rule = reference.program.rules[entity.type, operation]
    return Goal(text=f"{operation} {entity}", resource=entity, rule=rule, with_=with_objects)


class RelevantFacts:
    """The facts that may help a condition: the facts that its atoms require, on the paths of its objects."""

    def __init__(self, caller: Caller, resource: Entity, with_: Mapping[str, Entity], atoms: Collection[Atom]) -> None:
        find = caller.holdings.locations.find
        self._paths = {
            slot: {ancestor.id for ancestor in map(Entity.parse, find(entity) or ())}
            for slot, entity in {RESOURCE: resource, **with_}.items()
        }
        self._required: set[tuple[str, str, str]] = set()
        self._below: set[tuple[str, str, str]] = set()
        """The facts that help on any entity, which may lie below an object of the condition."""
        for atom in atoms:
            held = on_entity(atom)
            found = self._required if held is atom else self._below
            for right in (held, *by_ownership(caller.program, held)):
                for target in right.targets if right.kind.table in _FACTS else ():
                    found.add((target.slot, _FACTS[right.kind.table], getattr(right, "privilege", "")))
        self._slots = {RESOURCE, *with_, *(slot for slot, _, _ in (*self._required, *self._below))}

    def can_contribute(self, fact: GainedFact) -> bool:
        """Return whether a fact may help. May be true for facts that do not."""
        if fact.kind not in ("exists", *HELD):
            return True
        for slot in self._slots:
            path = self._paths.get(slot)
            is_on_path = path is None or fact.entity.id in path
            if (slot, fact.kind, fact.privilege) in self._below:
                return True
            if is_on_path and (fact.kind == "exists" or (slot, fact.kind, fact.privilege) in self._required):
                return True
        return False


class AssumedFacts:
    """The facts that a caller is assumed to hold now, and the operations that they allow. `existing`: the entities that exist from the start."""

    def __init__(
        self, caller: Caller, choices: Choices, existing: frozenset[Entity], locations: GrowingLocations
    ) -> None:
        self.program = caller.program
        self.caller = caller
        self.existing = existing
        self._choices = choices
        self._locations = locations
        self._created: set[Entity] = set()
        self._vacant: set[Entity] = set()
        self._facts: frozenset[GainedFact] = frozenset()
        self._gained = False

    def vacant(self, entity: Entity) -> bool:
        """Return whether an entity is there no more, so that it can be created again."""
        keys = self._locations.find(entity) or () if self._vacant else ()
        return any(Entity.parse(key) in self._vacant for key in keys)

    def assume(self, facts: Iterable[GainedFact], *, exact: bool = False) -> None:
        """Let the caller hold these facts in addition to the state.

        Not `exact`: denials to roles and groups that they gain do not count, so that more facts never allow less.
        """
        hypothetical = self.caller.hypothetical
        assumed = list(facts)
        self._facts = frozenset(assumed)
        hypothetical.allowed = {(fact.privilege, str(fact.entity)) for fact in assumed if fact.kind == "grant"}
        hypothetical.owned = {str(fact.entity) for fact in assumed if fact.kind == "owner"}
        hypothetical.member_of = {str(fact.entity) for fact in assumed if fact.kind == "member"}
        kinds = ("role", "group", "lift", "leave", "vacant")
        by_kind = {kind: [fact for fact in assumed if fact.kind == kind] for kind in kinds}
        roles = [(fact.privilege, str(fact.entity) if fact.entity.type else None) for fact in by_kind["role"]]
        if roles or by_kind["group"] or self._gained:
            self.caller.gain(roles, [fact.privilege for fact in by_kind["group"]], denials=exact)
        self._gained = bool(roles or by_kind["group"])
        lifted = {(str(fact.entity), fact.privilege) for fact in (*by_kind["lift"], *by_kind["leave"])}
        hypothetical.removed_denials = _Lifted(lifted) if lifted else ()
        self._vacant = {fact.entity for fact in by_kind["vacant"]}
        created = Universe(self.program, (fact.entity for fact in assumed if fact.kind == "exists"), self._locations)
        self._created = set(created) - self.existing
        self._choices.forget()
        self._choices.exists = self.exists

    def exists(self, entity: Entity, *, parent_only: bool = False) -> bool:
        """Return whether an entity exists now; with `parent_only`, whether its parent existed from the start."""
        if not parent_only:
            return entity in self.existing or entity in self._created
        parent = self.parent_of(entity)
        return parent is None or parent in self.existing

    def parent_of(self, entity: Entity) -> Entity | None:
        """The parent of an entity; None for an entity without a parent."""
        keys = self._locations.keys(entity)
        return Entity.parse(keys[-2]) if len(keys) > 1 else None

    def holds(self, fact: GainedFact) -> bool:
        """Return whether the caller holds a fact now."""
        return self.caller.about({RESOURCE: fact.entity}).why(fact.atom()) is not None

    def allowed_withs(
        self, rule: Rule, resource: Entity, *, creates: bool = False, listed_slots: Collection[str] = ()
    ) -> Iterator[dict[str, Entity]]:
        """Choices of `with` objects with which a rule allows a resource now; `creates`: which does not exist yet."""
        asked, condition = self.request_form(rule, resource, creates=creates)
        if rule.withs:
            yield from self._choices.of(rule, condition, asked, listed_slots=listed_slots)
        elif self.caller.about({RESOURCE: asked}).holds(condition):
            yield {}

    def request_form(self, rule: Rule, resource: Entity, *, creates: bool) -> tuple[Entity, Formula]:
        """The resource of the request, and its condition: an entity to be that gets a flat id has none yet."""
        if not creates or resource.type not in self.program.flat:
            return resource, rule.item_condition
        return Entity(resource.type, f"{self.parent_of(resource)}/"), asked_condition(self.program, rule, named=False)

    def reaches(self, goal: Goal) -> bool:
        """Return whether a goal is reached now."""
        if goal.fact is not None:
            return goal.fact in self._facts
        if not self.exists(goal.resource):
            return False
        if goal.rule is None:
            return all(self.caller.about({RESOURCE: goal.resource}).why(atom) is not None for atom in goal.atoms)
        if len(goal.with_) == len(goal.rule.withs):
            self.caller.about({RESOURCE: goal.resource, **goal.with_})
            return self.caller.holds(goal.rule.item_condition)
        return self.with_objects(goal.rule, goal.resource, goal.with_) is not None

    def with_objects(
        self, rule: Rule, resource: Entity, fixed: Mapping[str, Entity], *, creates: bool = False
    ) -> dict[str, Entity] | None:
        """The `with` objects, some of them fixed, with which a rule allows a resource now; None if there are none."""
        for with_ in self.allowed_withs(rule, resource, creates=creates, listed_slots=tuple(fixed)):
            if all(with_.get(slot) == entity for slot, entity in fixed.items()):
                return with_
        return None


class _Lifted(Container[tuple[str, str, str]]):
    """Denials that do not count: all of a principal on an entity."""

    def __init__(self, places: Collection[tuple[str, str]]) -> None:
        self._places = places

    def __contains__(self, denial: object) -> bool:
        return isinstance(denial, tuple) and denial[1:] in self._places
