"""How a user could gain rights that they do not hold, through operations that grant: a search over effects.

Effects only add allowing rows for the caller, and conditions have no negation, so no operation makes another one
impossible. Everything reachable is therefore found by performing whatever is allowed until nothing new results. Denials
in the state stay, and revocations are left out, since they never help the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

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
from privtab.analysis.universe import Universe, names, universe
from privtab.analysis.what_can import Choices
from privtab.ir.formula import item_condition, leaves
from privtab.ir.nodes import RESOURCE, Atom, Rule
from privtab.reference.evaluate import Reference
from privtab.reference.explain import Explanation
from privtab.request import Entity
from privtab.state.nodes import State

MOST_TRIALS = 50_000
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
    makes: bool
    because: tuple[Mapping[str, str], ...]
    brings: tuple[GainedFact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The steps to a goal, none if it is held already. `shortest`: no path has fewer steps."""

    goal: str
    steps: tuple[Step, ...]
    shortest: bool = True


class SearchSpace:
    """What is the same for every user of a state: the existing entities, and the names in use."""

    def __init__(self, reference: Reference, state: State) -> None:
        self.universe = universe(reference.program, state)
        self.names = names(reference.program, state)


class ReachableRights:
    """Everything that one user could do and gain. `more`: entities that exist besides those that the state names.

    `ground`: a shared search space, for questions about many users.
    """

    def __init__(
        self,
        reference: Reference,
        state: State,
        user: str,
        *,
        ground: SearchSpace | None = None,
        more: Collection[Entity] = (),
        groups: Collection[str] = (),
        flags: frozenset[str] = frozenset(),
        max_steps: int | None = None,
    ) -> None:
        self.program = reference.program
        self.caller = Caller(reference, user, groups=groups, flags=flags)
        on = SearchSpace(reference, state) if ground is None else ground
        self.universe = on.universe.copy()
        for entity in more:
            self.universe.add(entity)
        self.fresh = FreshNames(self.program, on.names | {name for entity in more for name in entity.names})
        self.max_steps = max_steps
        self._there = frozenset(self.universe)
        self._classes = EquivalenceClasses(self.caller, state, self.universe)
        self._choices = Choices(self.caller, self.universe, self._classes)
        self._exists: set[Entity] = set()
        self._rules = granting_rules(self.program)
        self.actions: dict[Action, tuple[GainedFact, ...]] = {}
        """The possible actions, in the order in which they become possible, and what each gives."""
        self.facts: dict[GainedFact, None] = {}
        self._trials = 0
        self._saturate()

    def gains(self) -> tuple[GainedFact, ...]:
        """What the user could gain and does not hold now, on entities that exist already."""
        return tuple(self._gained(fact for fact in self.facts if fact.entity in self._there))

    def makes(self) -> tuple[Action, ...]:
        """What the user could create under entities that exist already."""
        return tuple(
            action
            for action, facts in self.actions.items()
            if any(f.kind == "exists" and self._is_there(f.entity, above=True) for f in facts)
        )

    def reachable(self) -> frozenset[GainedFact]:
        """Every privilege, ownership and membership that the user could hold, on existing and created entities."""
        self._suppose(self.facts)
        found: set[GainedFact] = set()
        for entity in self.universe:
            facts = [GainedFact(kind="grant", entity=entity, privilege=p) for p in self.program.privileges]
            facts += [GainedFact(kind="owner", entity=entity), GainedFact(kind="member", entity=entity)]
            found |= {fact for fact in facts if self._holds(fact)}
        return frozenset(found)

    def path(self, goal: Goal) -> Path | None:
        """The shortest path to a goal; None if there is none, or none of at most `max_steps` steps."""
        self._suppose(())
        if self._reached(goal):
            return Path(goal=goal.text, steps=())
        self._suppose(self.facts)
        if not self._reached(goal):
            return None
        bearing = self._relevant_actions(goal)
        found = self._breadth_first(goal, bearing)
        actions, shortest = (found, True) if found is not None else (self._minimised(goal, bearing), False)
        if self.max_steps is not None and len(actions) > self.max_steps:
            return None
        return Path(goal=goal.text, steps=tuple(self._steps(actions)), shortest=shortest)

    # --- performing whatever is allowed -----------------------------------------------------------------------------

    def _saturate(self) -> None:
        """Perform, round by round, whatever the results of the previous rounds allow."""
        rounds = 0
        while self.max_steps is None or rounds < self.max_steps:
            rounds += 1
            self._suppose(self.facts)
            new = dict(self._possible())
            if not new:
                return
            self.actions |= new
            for facts in new.values():
                for fact in facts:
                    self.facts[fact] = None
                    self._classes.touched.add(fact.entity.id)
                    if fact.kind == "exists":
                        self.universe.add(fact.entity)

    def _possible(self) -> Iterator[tuple[Action, tuple[GainedFact, ...]]]:
        """The actions that are allowed now and give something that no action has given yet."""
        for rule in self._rules:
            slots = effect_slots(rule)
            known: dict[tuple[str, str], bool] = {}
            for resource in self.fresh.resources(rule, self.universe):
                if not slots:
                    kind = self._classes.of(resource)
                    if kind not in known:
                        known[kind] = next(self._ways(rule, resource), None) is not None
                    facts = self.fresh.gained_facts(self.caller, rule, resource, {}) if known[kind] else ()
                    if not all(fact in self.facts for fact in facts):
                        yield Action(rule=rule, resource=resource), facts
                    continue
                for with_ in self._ways(rule, resource, every=slots):
                    named = {slot: with_[slot] for slot in slots}
                    facts = self.fresh.gained_facts(self.caller, rule, resource, named)
                    if not all(fact in self.facts for fact in facts):
                        yield Action(rule=rule, resource=resource, with_=tuple(named.items())), facts

    def _ways(self, rule: Rule, resource: Entity, *, every: Collection[str] = ()) -> Iterator[dict[str, Entity]]:
        """Choices of `with` objects with which a rule allows a resource now."""
        condition = item_condition(rule)
        if rule.withs:
            yield from self._choices.of(rule, condition, resource, every=every)
        elif self.caller.about({RESOURCE: resource}).holds(condition):
            yield {}

    def _suppose(self, facts: Iterable[GainedFact]) -> None:
        """Let the caller hold these facts in addition to the state."""
        imagined = self.caller.imagined
        listed = list(facts)
        imagined.allowed = {(f.privilege, str(f.entity)) for f in listed if f.kind == "grant"}
        imagined.owned = {str(f.entity) for f in listed if f.kind == "owner"}
        imagined.member_of = {str(f.entity) for f in listed if f.kind == "member"}
        made = Universe(self.program, (f.entity for f in listed if f.kind == "exists"))
        self._exists = set(made) - self._there
        self._choices.forget()
        self._choices.exists = self._is_there

    def _is_there(self, entity: Entity, *, above: bool = False) -> bool:
        """Whether an entity exists now; with `above`, whether its parent existed from the start."""
        if not above:
            return entity in self._there or entity in self._exists
        parent = self._parent(entity)
        return parent is None or parent in self._there

    def _parent(self, entity: Entity) -> Entity | None:
        keys = self.caller.vocabulary.keys(entity)
        return Entity.parse(keys[-2]) if len(keys) > 1 else None

    def _holds(self, fact: GainedFact) -> bool:
        return self.caller.about({RESOURCE: fact.entity}).why(fact.atom()) is not None

    def _gained(self, facts: Iterable[GainedFact]) -> Iterator[GainedFact]:
        """The facts that hold in the end and do not hold now, with denials and inheritance taken into account."""
        asked = [fact for fact in facts if fact.kind != "exists"]
        self._suppose(())
        before = {fact for fact in asked if self._holds(fact)}
        self._suppose(self.facts)
        yield from (fact for fact in asked if fact not in before and self._holds(fact))

    # --- the shortest path to a goal --------------------------------------------------------------------------------

    def _reached(self, goal: Goal) -> bool:
        if not self._is_there(goal.resource):
            return False
        if goal.rule is None:
            return all(self.caller.about({RESOURCE: goal.resource}).why(atom) is not None for atom in goal.atoms)
        if len(goal.with_) == len(goal.rule.withs):
            self.caller.about({RESOURCE: goal.resource, **goal.with_})
            return self.caller.holds(item_condition(goal.rule))
        return any(
            all(with_[slot] == entity for slot, entity in goal.with_.items())
            for with_ in self._ways(goal.rule, goal.resource, every=tuple(goal.with_))
        )

    def _relevant_actions(self, goal: Goal) -> list[Action]:
        """The actions that may help towards a goal, directly or by enabling others that do."""
        needs = [
            RelevantFacts(
                self.caller, goal.resource, goal.with_, goal.atoms if goal.rule is None else self._leaves(goal.rule)
            )
        ]
        left = dict(self.actions)
        found: set[Action] = set()
        while needs:
            need = needs.pop()
            some = [action for action, facts in left.items() if any(map(need.may_help, facts))]
            for action in some:
                del left[action]
                found.add(action)
                needs.append(RelevantFacts(self.caller, action.resource, dict(action.with_), self._leaves(action.rule)))
        return [action for action in self.actions if action in found]

    def _leaves(self, rule: Rule) -> tuple[Atom, ...]:
        return tuple(dict.fromkeys(leaves(self.program, item_condition(rule))))

    def _breadth_first(self, goal: Goal, bearing: list[Action]) -> list[Action] | None:
        """The fewest actions to a goal; None if finding them takes too long."""
        level: dict[Facts, tuple[Action, ...]] = {frozenset(): ()}
        seen: set[Facts] = set(level)
        while level:
            below: dict[Facts, tuple[Action, ...]] = {}
            for held, done in level.items():
                self._suppose(held)
                self._trials += len(bearing)
                if self._trials > MOST_TRIALS:
                    return None
                enabled = [
                    action
                    for action in bearing
                    if not held.issuperset(self.actions[action]) and self._is_allowed(action)
                ]
                for action in enabled:
                    facts = held | set(self.actions[action])
                    if facts not in seen:
                        seen.add(facts)
                        below[facts] = (*done, action)
            for facts, done in below.items():
                self._suppose(facts)
                if self._reached(goal):
                    return list(done)
            level = below
        return None

    def _is_allowed(self, action: Action) -> bool:
        """Whether an action is allowed now and all its objects exist."""
        needed: list[Entity | None] = [entity for _, entity in action.with_]
        needed.append(self._parent(action.resource) if creates_resource(self.program, action.rule) else action.resource)
        if not all(entity is None or self._is_there(entity) for entity in needed):
            return False
        return self._with_objects(action) is not None

    def _with_objects(self, action: Action) -> dict[str, Entity] | None:
        """The `with` objects with which an action is allowed now; None if there are none."""
        fixed = dict(action.with_)
        for with_ in self._ways(action.rule, action.resource, every=tuple(fixed)):
            if all(with_[slot] == entity for slot, entity in fixed.items()):
                return with_
        return None

    def _minimised(self, goal: Goal, bearing: list[Action]) -> list[Action]:
        """Actions that lead to a goal, none of which can be left out; drops halves first, then smaller parts."""
        kept = bearing
        size = max(1, len(kept) // 2)
        while True:
            at = 0
            while at < len(kept):
                rest = kept[:at] + kept[at + size :]
                if self._leads(rest, goal):
                    kept = rest
                else:
                    at += size
            if size == 1:
                return kept
            size = max(1, size // 2)

    def _leads(self, actions: Collection[Action], goal: Goal) -> bool:
        """Whether performing whatever is allowed of these actions reaches a goal."""
        self._suppose(self._brought(self._in_order(actions)))
        return self._reached(goal)

    def _in_order(self, actions: Collection[Action]) -> list[Action]:
        """Those of the actions that can be performed, each after the ones it needs."""
        done: list[Action] = []
        left = list(actions)
        while True:
            self._suppose(self._brought(done))
            now = [action for action in left if self._is_allowed(action)]
            if not now:
                return done
            done += now
            left = [action for action in left if action not in now]

    def _brought(self, actions: Iterable[Action]) -> list[GainedFact]:
        return [fact for action in actions for fact in self.actions[action]]

    def _steps(self, actions: Collection[Action]) -> Iterator[Step]:
        held: list[GainedFact] = []
        for action in self._in_order(actions):
            self._suppose(held)
            with_ = self._with_objects(action)
            assert with_ is not None
            yield Step(
                rule=action.rule,
                resource=action.resource,
                with_=with_,
                makes=creates_resource(self.program, action.rule),
                because=tuple(self._reasons(action.rule, action.resource, with_)),
                brings=self.actions[action],
            )
            held += self.actions[action]

    def _reasons(self, rule: Rule, resource: Entity, with_: Mapping[str, Entity]) -> list[dict[str, str]]:
        self.caller.about({RESOURCE: resource, **with_})
        listed = listing(self.caller, rule, item_condition(rule))
        return Explanation(self.caller, rule, listed, allowed=True).reasons()


def escalations(
    reference: Reference, state: State, user: str, *, ground: SearchSpace | None = None, max_steps: int | None = None
) -> Iterator[tuple[GainedFact, Path]]:
    """What a user could gain on existing entities and does not hold now, each with its path."""
    if not grants_on_existing_entities(reference.program):
        return
    reach = ReachableRights(reference, state, user, ground=ground, max_steps=max_steps)
    for fact in reach.gains():
        path = reach.path(Goal.of_fact(fact))
        if path is not None:
            yield fact, path
