"""How a user could gain rights that they do not hold, through operations that grant: a search over effects.

Effects only add allowing rows for the caller, and conditions have no negation, so no operation makes another one
impossible. Everything reachable is therefore found by performing whatever is allowed until nothing new results. Denials
in the state stay, and revocations are left out, since they never help the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from privtab.analysis.assumed_facts import AssumedFacts
from privtab.analysis.caller import Caller, EquivalenceClasses
from privtab.analysis.effects import (
    FreshNames,
    GainedFact,
    creates_resource,
    effect_slots,
    granting_rules,
    grants_on_existing_entities,
)
from privtab.analysis.goals import Goal, RelevantFacts
from privtab.analysis.held import listing
from privtab.analysis.universe import names, universe
from privtab.analysis.what_can import Choices
from privtab.ir.formula import item_condition, leaves
from privtab.ir.nodes import RESOURCE, Atom, Rule
from privtab.ir.support import Tool, check_support
from privtab.ir.unroll import located_sets
from privtab.locations import GrowingLocations
from privtab.names import path_of
from privtab.reference.evaluate import Reference
from privtab.reference.explain import Explanation
from privtab.request import Entity
from privtab.state.nodes import State

MAX_TRIALS = 50_000
"""How many actions are tried for one user's shortest paths; beyond that, paths may be longer than necessary."""

Facts: TypeAlias = frozenset[GainedFact]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An operation that gives something, with the objects that this depends on."""

    rule: Rule
    resource: Entity
    with_: tuple[tuple[str, Entity], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation of a path: its objects, why it is allowed there, and what it gives."""

    rule: Rule
    resource: Entity
    with_: Mapping[str, Entity]
    creates: bool
    because: tuple[Mapping[str, str], ...]
    gained: tuple[GainedFact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The steps to a goal, none if it is held already. `shortest`: no path has fewer steps."""

    goal: str
    steps: tuple[Step, ...]
    shortest: bool = True


class SearchSpace:
    """What is the same for every user of a state: the existing entities, and the names in use."""

    def __init__(self, reference: Reference, state: State) -> None:
        check_support(reference.program, Tool.PATHS)
        self.universe = universe(reference.program, state)
        self.names = names(reference.program, state)


class ReachableRights:
    """Everything that one user could do and gain. `extra_entities`: entities that exist besides those that the state names.

    `space`: a shared search space, for questions about many users.
    """

    def __init__(
        self,
        reference: Reference,
        state: State,
        user: str,
        *,
        space: SearchSpace | None = None,
        extra_entities: Collection[Entity] = (),
        groups: Collection[str] = (),
        flags: frozenset[str] = frozenset(),
        active_roles: Collection[str] | None = None,
        max_steps: int | None = None,
    ) -> None:
        self.program = reference.program
        self.caller = Caller(reference, user, groups=groups, flags=flags, active_roles=active_roles)
        self.caller.check_active_roles()
        locations = self.caller.hypothetical.locations = GrowingLocations(reference.holdings.locations)
        space_ = SearchSpace(reference, state) if space is None else space
        self.universe = space_.universe.copy(locations)
        for entity in extra_entities:
            self.universe.add(entity)
        self.fresh_names = FreshNames(
            self.program, space_.names | {name for entity in extra_entities for name in entity.names}, locations
        )
        self.max_steps = max_steps
        self._classes = EquivalenceClasses(self.caller, state, self.universe)
        choices = Choices(self.caller, self.universe, self._classes)
        self._assumed = AssumedFacts(self.caller, choices, frozenset(self.universe), locations)
        self._rules = granting_rules(self.program)
        self.fresh_names.check_levels(max_steps)
        self.actions: dict[Action, tuple[GainedFact, ...]] = {}
        """The possible actions, in the order in which they become possible, and what each gives."""
        self.facts: dict[GainedFact, None] = {}
        self._trials = 0
        self._saturate()

    def gains(self) -> tuple[GainedFact, ...]:
        """What the user could gain and does not hold now, on entities that exist already."""
        return tuple(self._newly_held(fact for fact in self.facts if fact.entity in self._assumed.existing))

    def creating_actions(self) -> tuple[Action, ...]:
        """What the user could create under entities that exist already."""
        return tuple(
            action
            for action, facts in self.actions.items()
            if any(fact.kind == "exists" and self._assumed.exists(fact.entity, parent_only=True) for fact in facts)
        )

    def reachable(self) -> frozenset[GainedFact]:
        """Every privilege, ownership and membership that the user could hold, on existing and created entities."""
        self._assumed.assume(self.facts)
        found: set[GainedFact] = set()
        for entity in self.universe:
            facts = [
                GainedFact(kind="grant", entity=entity, privilege=privilege) for privilege in self.program.privileges
            ]
            facts += [GainedFact(kind="owner", entity=entity), GainedFact(kind="member", entity=entity)]
            found |= {fact for fact in facts if self._assumed.holds(fact)}
        return frozenset(found)

    def path(self, goal: Goal) -> Path | None:
        """The shortest path to a goal; None if there is none, or none of at most `max_steps` steps."""
        self._assumed.assume(())
        if self._assumed.reaches(goal):
            return Path(goal=goal.text, steps=())
        self._assumed.assume(self.facts)
        if not self._assumed.reaches(goal):
            return None
        relevant = self._relevant_actions(goal)
        found = self._breadth_first(goal, relevant)
        actions, shortest = (found, True) if found is not None else (self._minimised(goal, relevant), False)
        if self.max_steps is not None and len(actions) > self.max_steps:
            return None
        return Path(goal=goal.text, steps=tuple(self._steps(actions)), shortest=shortest)

    # --- performing whatever is allowed -----------------------------------------------------------------------------

    def _saturate(self) -> None:
        """Perform, round by round, whatever the results of the previous rounds allow."""
        rounds = 0
        while self.max_steps is None or rounds < self.max_steps:
            rounds += 1
            self._assumed.assume(self.facts)
            new = dict(self._new_actions())
            if not new:
                return
            self.actions |= new
            for facts in new.values():
                for fact in facts:
                    self.facts[fact] = None
                    for key in self._classes.around(str(fact.entity)):
                        self._classes.name(path_of(key))
                    if fact.kind == "exists":
                        self.universe.add(fact.entity)

    def _new_actions(self) -> Iterator[tuple[Action, tuple[GainedFact, ...]]]:
        """The actions that are allowed now and give something that no action has given yet."""
        for rule in self._rules:
            slots = effect_slots(rule)
            allowed_by_class: dict[tuple[str, str], bool] = {}
            for resource in self.fresh_names.resources(rule, self.universe):
                if not slots:
                    class_ = self._classes.of(resource)
                    if class_ not in allowed_by_class:
                        allowed_by_class[class_] = next(self._assumed.allowed_withs(rule, resource), None) is not None
                    facts = (
                        self.fresh_names.gained_facts(self.caller, rule, resource, {})
                        if allowed_by_class[class_]
                        else ()
                    )
                    if not all(fact in self.facts for fact in facts):
                        yield Action(rule=rule, resource=resource), facts
                    continue
                for with_ in self._assumed.allowed_withs(rule, resource, listed_slots=slots):
                    objects = {slot: with_[slot] for slot in slots}
                    facts = self.fresh_names.gained_facts(self.caller, rule, resource, objects)
                    if not all(fact in self.facts for fact in facts):
                        yield Action(rule=rule, resource=resource, with_=tuple(objects.items())), facts

    def _newly_held(self, facts: Iterable[GainedFact]) -> Iterator[GainedFact]:
        """The facts that hold in the end and do not hold now, with denials and inheritance taken into account."""
        candidates = [fact for fact in facts if fact.kind != "exists"]
        self._assumed.assume(())
        already_held = {fact for fact in candidates if self._assumed.holds(fact)}
        self._assumed.assume(self.facts)
        yield from (fact for fact in candidates if fact not in already_held and self._assumed.holds(fact))

    # --- the shortest path to a goal --------------------------------------------------------------------------------

    def _relevant_actions(self, goal: Goal) -> list[Action]:
        """The actions that may help towards a goal, directly or by enabling others that do."""
        queue = [
            RelevantFacts(
                self.caller, goal.resource, goal.with_, goal.atoms if goal.rule is None else self._leaves(goal.rule)
            )
        ]
        remaining = dict(self.actions)
        found: set[Action] = set()
        while queue:
            relevance = queue.pop()
            helpful = [action for action, facts in remaining.items() if any(map(relevance.can_contribute, facts))]
            for action in helpful:
                del remaining[action]
                found.add(action)
                queue.append(RelevantFacts(self.caller, action.resource, dict(action.with_), self._leaves(action.rule)))
        return [action for action in self.actions if action in found]

    def _leaves(self, rule: Rule) -> tuple[Atom, ...]:
        return tuple(dict.fromkeys(leaves(self.program, item_condition(rule))))

    def _breadth_first(self, goal: Goal, relevant: list[Action]) -> list[Action] | None:
        """The fewest actions to a goal; None if finding them takes too long."""
        level: dict[Facts, tuple[Action, ...]] = {frozenset(): ()}
        visited: set[Facts] = set(level)
        while level:
            next_level: dict[Facts, tuple[Action, ...]] = {}
            for gained, performed in level.items():
                self._assumed.assume(gained)
                self._trials += len(relevant)
                if self._trials > MAX_TRIALS:
                    return None
                enabled = [
                    action
                    for action in relevant
                    if not gained.issuperset(self.actions[action]) and self._is_allowed(action)
                ]
                for action in enabled:
                    facts = gained | set(self.actions[action])
                    if facts not in visited:
                        visited.add(facts)
                        next_level[facts] = (*performed, action)
            for facts, performed in next_level.items():
                self._assumed.assume(facts)
                if self._assumed.reaches(goal):
                    return list(performed)
            level = next_level
        return None

    def _is_allowed(self, action: Action) -> bool:
        """Whether an action is allowed now and all its objects exist."""
        required: list[Entity | None] = [entity for _, entity in action.with_]
        required.append(
            self._assumed.parent_of(action.resource) if creates_resource(self.program, action.rule) else action.resource
        )
        if not all(entity is None or self._assumed.exists(entity) for entity in required):
            return False
        return self._with_objects(action) is not None

    def _with_objects(self, action: Action) -> dict[str, Entity] | None:
        """The `with` objects with which an action is allowed now; None if there are none."""
        fixed = dict(action.with_)
        for with_ in self._assumed.allowed_withs(action.rule, action.resource, listed_slots=tuple(fixed)):
            if all(with_[slot] == entity for slot, entity in fixed.items()):
                return with_
        return None

    def _minimised(self, goal: Goal, relevant: list[Action]) -> list[Action]:
        """Actions that lead to a goal, none of which can be left out; drops halves first, then smaller parts."""
        remaining = relevant
        size = max(1, len(remaining) // 2)
        while True:
            start = 0
            while start < len(remaining):
                rest = remaining[:start] + remaining[start + size :]
                if self._reaches(rest, goal):
                    remaining = rest
                else:
                    start += size
            if size == 1:
                return remaining
            size = max(1, size // 2)

    def _reaches(self, actions: Collection[Action], goal: Goal) -> bool:
        """Whether performing whatever is allowed of these actions reaches a goal."""
        self._assumed.assume(self._gained_by(self._in_order(actions)))
        return self._assumed.reaches(goal)

    def _in_order(self, actions: Collection[Action]) -> list[Action]:
        """Those of the actions that can be performed, each after the ones it needs."""
        performed: list[Action] = []
        remaining = list(actions)
        while True:
            self._assumed.assume(self._gained_by(performed))
            allowed = [action for action in remaining if self._is_allowed(action)]
            if not allowed:
                return performed
            performed += allowed
            remaining = [action for action in remaining if action not in allowed]

    def _gained_by(self, actions: Iterable[Action]) -> list[GainedFact]:
        return [fact for action in actions for fact in self.actions[action]]

    def _steps(self, actions: Collection[Action]) -> Iterator[Step]:
        gained: list[GainedFact] = []
        for action in self._in_order(actions):
            self._assumed.assume(gained)
            with_ = self._with_objects(action)
            assert with_ is not None
            yield Step(
                rule=action.rule,
                resource=action.resource,
                with_=with_,
                creates=creates_resource(self.program, action.rule),
                because=tuple(self._reasons(action.rule, action.resource, with_)),
                gained=self.actions[action],
            )
            gained += self.actions[action]

    def _reasons(self, rule: Rule, resource: Entity, with_: Mapping[str, Entity]) -> list[dict[str, str]]:
        asked, condition = self._assumed.request_form(rule, resource)
        self.caller.about({RESOURCE: asked, **with_})
        minimal_sets = listing(self.caller, rule, condition)
        if self.program.nests:
            sets = located_sets(self.program, minimal_sets.sets, self.caller.levels)
            minimal_sets = minimal_sets._replace(sets=sets)
        return Explanation(self.caller, rule, minimal_sets, allowed=True).reasons()


def escalations(
    reference: Reference, state: State, user: str, *, space: SearchSpace | None = None, max_steps: int | None = None
) -> Iterator[tuple[GainedFact, Path]]:
    """What a user could gain on existing entities and does not hold now, each with its path."""
    if not grants_on_existing_entities(reference.program):
        return
    reach = ReachableRights(reference, state, user, space=space, max_steps=max_steps)
    for fact in reach.gains():
        path = reach.path(Goal.of_fact(fact))
        if path is not None:
            yield fact, path
