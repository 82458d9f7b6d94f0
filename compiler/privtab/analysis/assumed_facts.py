"""What a caller could do if they held facts in addition to the state."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator

from privtab.analysis.caller import Caller
from privtab.analysis.effects import GainedFact, creates_resource
from privtab.analysis.goals import Goal
from privtab.analysis.what_can import Choices
from privtab.entitlements.universe import Universe
from privtab.ir.formula import asked_condition, item_condition
from privtab.ir.nodes import RESOURCE, Formula, Rule
from privtab.locations import GrowingLocations
from privtab.request import Entity


class AssumedFacts:
    """The facts that a caller is assumed to hold now, and what these allow. `existing`: the entities that exist from the start."""

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
        """Whether an entity is there no more, so that it can be created again."""
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
        """Whether an entity exists now; with `parent_only`, whether its parent existed from the start."""
        if not parent_only:
            return entity in self.existing or entity in self._created
        parent = self.parent_of(entity)
        return parent is None or parent in self.existing

    def parent_of(self, entity: Entity) -> Entity | None:
        """What an entity lies in; None for one without a parent."""
        keys = self._locations.keys(entity)
        return Entity.parse(keys[-2]) if len(keys) > 1 else None

    def holds(self, fact: GainedFact) -> bool:
        """Whether the caller holds a fact now."""
        return self.caller.about({RESOURCE: fact.entity}).why(fact.atom()) is not None

    def allowed_withs(
        self, rule: Rule, resource: Entity, *, listed_slots: Collection[str] = ()
    ) -> Iterator[dict[str, Entity]]:
        """Choices of `with` objects with which a rule allows a resource now."""
        asked, condition = self.request_form(rule, resource)
        if rule.withs:
            yield from self._choices.of(rule, condition, asked, listed_slots=listed_slots)
        elif self.caller.about({RESOURCE: asked}).holds(condition):
            yield {}

    def request_form(self, rule: Rule, resource: Entity) -> tuple[Entity, Formula]:
        """The resource of the request, and its condition: an entity to be that gets a flat id has none yet."""
        if not creates_resource(self.program, rule) or resource.type not in self.program.flat:
            return resource, item_condition(rule)
        return Entity(resource.type, f"{self.parent_of(resource)}/"), asked_condition(self.program, rule, named=False)

    def reaches(self, goal: Goal) -> bool:
        """Whether a goal is reached now."""
        if goal.fact is not None:
            return goal.fact in self._facts
        if not self.exists(goal.resource):
            return False
        if goal.rule is None:
            return all(self.caller.about({RESOURCE: goal.resource}).why(atom) is not None for atom in goal.atoms)
        if len(goal.with_) == len(goal.rule.withs):
            self.caller.about({RESOURCE: goal.resource, **goal.with_})
            return self.caller.holds(item_condition(goal.rule))
        return any(
            all(with_.get(slot) == entity for slot, entity in goal.with_.items())
            for with_ in self.allowed_withs(goal.rule, goal.resource, listed_slots=tuple(goal.with_))
        )


class _Lifted(Container[tuple[str, str, str]]):
    """Denials that do not count: all of a principal on an entity."""

    def __init__(self, places: Collection[tuple[str, str]]) -> None:
        self._places = places

    def __contains__(self, denial: object) -> bool:
        return isinstance(denial, tuple) and denial[1:] in self._places
