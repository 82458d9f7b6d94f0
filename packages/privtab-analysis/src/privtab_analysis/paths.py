"""Paths to rights that a user does not hold: a search over effects, and over changes of rows that a store lets the user make.

Effects only add allowing rows for the caller, and conditions have no negation, so no operation makes another one
impossible. Everything reachable is therefore found by performing whatever is allowed until nothing new results.

Changes of rows that operations authorise (`authorised`) may also take denials and entities away, and bring roles with denials. For
reachable rights, denials to roles and groups that are gained do not count, and every removal helps where it can. So
nothing is missed. A path is certain if it leads to the goal with these denials, and takes nothing away but denials by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from privtab.base import Entity
from privtab.ir import RESOURCE, Atom, Rule, Tool, reached_atoms
from privtab.reference import Reference
from privtab.state import State
from privtab_analysis import effects
from privtab_analysis.authorised import AuthorisedChanges, Authority
from privtab_analysis.caller import Caller, EquivalenceClasses, listing
from privtab_analysis.entitlements.universe import names, universe
from privtab_analysis.goals import AssumedFacts, Goal, RelevantFacts
from privtab_analysis.locations import GrowingLocations
from privtab_analysis.permissions import Choices

MAX_TRIALS = 50_000
"""The most actions that are tried for one user's shortest paths; beyond that, paths may be longer than necessary."""

Facts: TypeAlias = frozenset[effects.GainedFact]


class SearchSpace:
    """The search space that all users of a state share: the existing entities, and the names in use."""

    def __init__(self, reference: Reference, state: State) -> None:
        Tool.PATHS.check(reference.program)
        self.universe = universe(reference.program, state)
        self.names = names(reference.program, state)


class ReachableRights:
    """Everything that one user could do and gain. `extra_entities`: existing entities besides the entities that the state names.

    `space`: a shared search space, for questions about many users. `authority`: the changes of its rows that a store lets the user
    make; without it, only effects count. `administrators`: service administrators besides the state's own. `recreates`: whether the
    user may delete entities and create them again.
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
        authority: Authority | None = None,
        administrators: Collection[str] = (),
        recreates: bool = True,
    ) -> None:
        self.program = reference.program
        self.caller = Caller(reference, user, groups=groups, flags=flags, active_roles=active_roles)
        self.caller.check_active_roles()
        self.caller.hypothetical.service_admins = reference.holdings.service_admins.union(administrators)
        locations = self.caller.hypothetical.locations = GrowingLocations(reference.holdings.locations)
        space_ = SearchSpace(reference, state) if space is None else space
        self.universe = space_.universe.copy(locations)
        self._unnamed = {new for entity in extra_entities for new in self.universe.add(entity)}
        """Entities that no row names: a store lets them be created."""
        self.fresh_names = effects.FreshNames(
            self.program, space_.names | {name for entity in extra_entities for name in entity.names}, locations
        )
        self.max_steps = max_steps
        self._classes = EquivalenceClasses(self.caller, state, self.universe)
        choices = Choices(self.caller, self.universe, self._classes)
        self._assumed = AssumedFacts(self.caller, choices, frozenset(self.universe), locations)
        self._changes = (
            None
            if authority is None
            else AuthorisedChanges(self.caller, state, authority, self.universe, recreates=recreates)
        )
        rules = self.program.rules.values() if authority is not None else effects.granting_rules(self.program)
        named = bool(self.caller.active_roles)
        self._rules = tuple(rule for rule in rules if named or not rule.needs_active_role)
        self.fresh_names.check_levels(max_steps)
        self.actions: dict[effects.Action, tuple[effects.GainedFact, ...]] = {}
        """The possible actions, in the order in which they become possible, with their gains."""
        self.facts: dict[effects.GainedFact, None] = {}
        self._trials = 0
        self._at_once: frozenset[effects.Action] = frozenset()
        """The actions that are possible in the state as it is."""
        self._known: dict[effects.Action, tuple[effects.Action, ...]] = {}
        """The actions that lead to the first action that gives a fact, by that action."""
        self._last: tuple[effects.Action, ...] = ()
        self._saturate()

    def gains(self) -> tuple[effects.GainedFact, ...]:
        """The rights that the user could gain and does not hold now, on entities that exist already; also roles and groups.

        Rights that they could grant themselves on a larger entity are not listed on smaller entities.
        """
        new = [
            fact for fact in self.facts if self._changes is None or not self._changes.is_given_above(fact, self.facts)
        ]
        held = (fact for fact in new if fact.kind in effects.HELD and fact.entity in self._assumed.existing)
        others = (fact for fact in new if fact.kind in ("role", "group") and not self._has(fact))
        return (*self._newly_held(held), *others)

    def undecided(self) -> tuple[str, ...]:
        """The changes of rows that the user could make and whose effect is not known."""
        self._assumed.assume(self.facts)
        allowed: dict[str, None] = {}
        for table, rule, resource in () if self._changes is None else self._changes.unfollowed():
            text = f"`{rule.operation}` on `{rule.entity}` lets them change {table}"
            if text not in allowed and next(self._assumed.allowed_withs(rule, resource), None) is not None:
                allowed[text] = None
        return tuple(allowed)

    def _has(self, fact: effects.GainedFact) -> bool:
        """Return whether the user has a role or is in a group already, there or everywhere."""
        self._assumed.assume(())
        caller = self.caller
        if fact.kind == "group":
            return fact.privilege in caller.groups
        role = f"role:{fact.privilege}"
        return role in caller.principals or (role, str(fact.entity)) in caller.scoped

    def creating_actions(self) -> tuple[effects.Action, ...]:
        """The actions by which the user could create entities under existing entities."""
        return tuple(
            action
            for action, facts in self.actions.items()
            if any(fact.kind == "exists" and self._assumed.exists(fact.entity, parent_only=True) for fact in facts)
        )

    def reachable(self) -> frozenset[effects.GainedFact]:
        """Every privilege, ownership and membership that the user could hold, on existing and created entities."""
        self._assumed.assume(self.facts)
        found: set[effects.GainedFact] = set()
        for entity in self.universe:
            facts = [
                effects.GainedFact(kind="grant", entity=entity, privilege=privilege)
                for privilege in self.program.privileges
            ]
            facts += [effects.GainedFact(kind="owner", entity=entity), effects.GainedFact(kind="member", entity=entity)]
            found |= {fact for fact in facts if self._assumed.holds(fact)}
        return frozenset(found)

    def path(self, goal: Goal) -> effects.Path | None:
        """The shortest path to a goal; None if there is none, or none of at most `max_steps` steps."""
        self._assumed.assume(())
        if self._assumed.reaches(goal):
            return effects.Path(goal=goal.text, steps=())
        self._assumed.assume(self.facts)
        if not self._assumed.reaches(goal):
            return effects.Path(goal=goal.text, steps=(), shortest=False, certain=False) if self.undecided() else None
        relevant = self._relevant_actions(goal)
        found = self._breadth_first(goal, relevant)
        actions, shortest = (found, True) if found is not None else (self._minimised(goal, relevant), False)
        certain = self._changes is None or self._is_certain(actions, goal)
        if self.max_steps is not None and len(actions) > self.max_steps:
            if shortest or self._changes is None:
                return None
            certain = False
        return self._as_path(actions, goal, shortest=shortest, certain=certain)

    def path_to(self, fact: effects.GainedFact) -> effects.Path | None:
        """As `path`, for one of many facts; by the actions that lead to another one where these do, though fewer might."""
        goal = Goal.of_fact(fact)
        giving = next((action for action, facts in self.actions.items() if fact in facts), None)
        known = self._known.get(giving) if giving is not None else None
        if known is None and giving in self._at_once:
            known = (giving,)
        if known is not None and self._is_certain(known, goal):
            return self._as_path(known, goal, shortest=len(known) == 1, certain=True)
        path = self.path(goal)
        if path is not None and giving is not None:
            self._known[giving] = self._last
        return path

    def _as_path(self, actions: Sequence[effects.Action], goal: Goal, *, shortest: bool, certain: bool) -> effects.Path:
        self._last = tuple(actions)
        return effects.Path(goal=goal.text, steps=tuple(self._steps(actions, goal)), shortest=shortest, certain=certain)

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
            self._at_once = self._at_once or frozenset(new)
            for facts in new.values():
                for fact in facts:
                    self.facts[fact] = None
                    if fact.kind in ("role", "group") and self._changes is not None:
                        self._classes.include(self._changes.principals_of(fact))
                    for key in self._classes.around(str(fact.entity)) if fact.entity.type else ():
                        self._classes.name(key.partition(":")[2])
                    if fact.kind == "exists":
                        self.universe.add(fact.entity)

    def _new_actions(self) -> Iterator[tuple[effects.Action, tuple[effects.GainedFact, ...]]]:
        """The actions that are allowed now and give something that no action has given yet."""
        yield from self._new_changes()
        for rule in self._rules:
            slots = effects.effect_slots(rule)
            allowed_by_class: dict[tuple[str, str, bool], bool] = {}
            for resource, creates in (*self.fresh_names.resources(rule, self.universe), *self._free(rule)):
                choices: Iterable[Mapping[str, Entity]]
                if slots:
                    choices = self._assumed.allowed_withs(rule, resource, creates=creates, listed_slots=slots)
                else:
                    choices = [{}] if self._is_possible(rule, resource, allowed_by_class, creates=creates) else []
                for with_ in choices:
                    objects = {slot: with_[slot] for slot in slots if slot in with_}
                    facts = self.fresh_names.gained_facts(self.caller, rule, resource, objects, creates=creates)
                    facts = (*facts, *self._revoked(rule, resource))
                    if not all(fact in self.facts for fact in facts):
                        given = tuple(objects.items())
                        yield effects.Action(rule=rule, resource=resource, with_=given, creates=creates), facts

    def _revoked(self, rule: Rule, resource: Entity) -> tuple[effects.GainedFact, ...]:
        return () if self._changes is None else self._changes.revoked(rule, resource)

    def _is_possible(
        self,
        rule: Rule,
        resource: Entity,
        allowed_by_class: dict[tuple[str, str, bool], bool],
        *,
        creates: bool = False,
    ) -> bool:
        """Return whether an operation is allowed now, with some objects; decided once for each class of resources."""
        class_ = (*self._classes.of(resource), creates)
        if class_ not in allowed_by_class:
            ways = self._assumed.allowed_withs(rule, resource, creates=creates)
            allowed_by_class[class_] = next(ways, None) is not None
        return allowed_by_class[class_]

    def _free(self, rule: Rule) -> Iterator[tuple[Entity, bool]]:
        """The entities whose names are known and that an operation may create: no row names them, or they were deleted."""
        if self._changes is None or not effects.creates_resource(self.program, rule):
            return
        for _, entity in sorted(self.universe.by_type[rule.entity].items()):
            if entity in self._unnamed or self._assumed.vacant(entity):
                yield entity, True

    def _new_changes(self) -> Iterator[tuple[effects.Action, tuple[effects.GainedFact, ...]]]:
        """The changes of a store's rows that are authorised now and give something that nothing has given yet."""
        allowed_by_class: dict[str, dict[tuple[str, str, bool], bool]] = {}
        if self._changes is None:
            return
        for change in self._changes.all():
            if all(fact in self.facts or self._changes.is_given_above(fact, self.facts) for fact in change.facts):
                continue
            if self._is_possible(change.rule, change.resource, allowed_by_class.setdefault(change.rule.id, {})):
                yield effects.Action(rule=change.rule, resource=change.resource, authorises=True), change.facts

    def _newly_held(self, facts: Iterable[effects.GainedFact]) -> Iterator[effects.GainedFact]:
        """The facts that hold in the end and do not hold now, with denials and inheritance taken into account."""
        candidates = [fact for fact in facts if fact.kind != "exists"]
        self._assumed.assume(())
        already_held = {fact for fact in candidates if self._assumed.holds(fact)}
        self._assumed.assume(self.facts)
        yield from (fact for fact in candidates if fact not in already_held and self._assumed.holds(fact))

    # --- the shortest path to a goal --------------------------------------------------------------------------------

    def _relevant_actions(self, goal: Goal) -> list[effects.Action]:
        """The actions that may help towards a goal, directly or by enabling others that do."""
        remaining = dict(self.actions)
        found: set[effects.Action] = set()
        if goal.fact is None:
            atoms = goal.atoms if goal.rule is None else self._leaves(goal.rule)
            queue = [RelevantFacts(self.caller, goal.resource, goal.with_, atoms)]
        else:
            found = {action for action, facts in self.actions.items() if goal.fact in facts}
            queue = [
                RelevantFacts(self.caller, action.resource, dict(action.with_), self._leaves(action.rule))
                for action in found
            ]
            remaining = {action: facts for action, facts in remaining.items() if action not in found}
        while queue:
            relevance = queue.pop()
            helpful = [action for action, facts in remaining.items() if any(map(relevance.can_contribute, facts))]
            for action in helpful:
                del remaining[action]
                found.add(action)
                queue.append(RelevantFacts(self.caller, action.resource, dict(action.with_), self._leaves(action.rule)))
        return [action for action in self.actions if action in found]

    def _leaves(self, rule: Rule) -> tuple[Atom, ...]:
        return tuple(dict.fromkeys(reached_atoms(self.program, rule.item_condition)))

    def _breadth_first(self, goal: Goal, relevant: list[effects.Action]) -> list[effects.Action] | None:
        """The fewest actions to a goal; None if finding them takes too long."""
        level: dict[Facts, tuple[effects.Action, ...]] = {frozenset(): ()}
        visited: set[Facts] = set(level)
        while level:
            next_level: dict[Facts, tuple[effects.Action, ...]] = {}
            for gained, performed in level.items():
                self._assumed.assume(gained, exact=True)
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
                self._assumed.assume(facts, exact=True)
                if self._assumed.reaches(goal):
                    return list(performed)
            level = next_level
        return None

    def _is_allowed(self, action: effects.Action) -> bool:
        """Return whether an action is allowed now and all its objects exist."""
        required: list[Entity | None] = [entity for _, entity in action.with_]
        named = action.resource in self._assumed.existing and action.resource not in self._unnamed
        if action.creates and named and not self._assumed.vacant(action.resource):
            return False
        # The entity of a principal need not exist for rows to be about it.
        unplaced = action.authorises and self.program.entities[action.resource.type].principal is not None
        required.append(self._assumed.parent_of(action.resource) if action.creates or unplaced else action.resource)
        if not all(entity is None or self._assumed.exists(entity) for entity in required):
            return False
        return self._with_objects(action) is not None

    def _with_objects(self, action: effects.Action) -> dict[str, Entity] | None:
        return self._assumed.with_objects(action.rule, action.resource, dict(action.with_), creates=action.creates)

    def _is_certain(self, actions: Collection[effects.Action], goal: Goal) -> bool:
        """Return whether actions lead to a goal with the denials to roles and groups that they give, and if nothing else is lost."""
        if any(action.authorises and self.program.recipients(action.rule) for action in actions):
            return False  # which principals these objects may be, and what the caller has by them, is not followed
        self._assumed.assume(self._gained_by(self._in_order(actions, exact=True), exact=True), exact=True)
        return self._assumed.reaches(goal)

    def _minimised(self, goal: Goal, relevant: list[effects.Action]) -> list[effects.Action]:
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

    def _reaches(self, actions: Collection[effects.Action], goal: Goal) -> bool:
        """Return whether performing all allowed actions among these reaches a goal."""
        self._assumed.assume(self._gained_by(self._in_order(actions)))
        return self._assumed.reaches(goal)

    def _in_order(self, actions: Collection[effects.Action], *, exact: bool = False) -> list[effects.Action]:
        """The actions that can be performed, each after the actions that it needs."""
        performed: list[effects.Action] = []
        remaining = list(actions)
        while True:
            self._assumed.assume(self._gained_by(performed, exact=exact), exact=exact)
            allowed = [action for action in remaining if self._is_allowed(action)]
            if not allowed:
                return performed
            performed += allowed
            remaining = [action for action in remaining if action not in allowed]

    def _gained_by(self, actions: Iterable[effects.Action], *, exact: bool = False) -> list[effects.GainedFact]:
        facts = (fact for action in actions for fact in self.actions[action])
        return [fact for fact in facts if not exact or fact.kind not in effects.UNSURE]

    def _steps(self, actions: Collection[effects.Action], goal: Goal) -> Iterator[effects.Step]:
        gained: list[effects.GainedFact] = []
        ordered = self._in_order(actions)
        needed = self._needed(ordered, goal)
        for action in ordered:
            self._assumed.assume(gained)
            with_ = self._with_objects(action)
            assert with_ is not None
            yield effects.Step(
                rule=action.rule,
                resource=action.resource,
                with_=with_,
                creates=action.creates,
                because=tuple(self._reasons(action, with_)),
                gained=tuple(fact for fact in self.actions[action] if not action.authorises or fact in needed),
                authorises=action.authorises,
            )
            gained += self.actions[action]

    def _needed(self, actions: Sequence[effects.Action], goal: Goal) -> set[effects.GainedFact]:
        """The facts of some actions without which the actions do not lead to a goal; of facts from changes of rows, no more than needed."""
        needed = set(self._gained_by(actions))
        for few in ([goal.fact] if goal.fact else [], [fact for fact in needed if goal.is_about(fact)]):
            if few and self._leads(actions, few, goal):
                needed = set(few)
        for fact in [
            fact for action in actions if action.authorises for fact in self.actions[action] if fact in needed
        ]:
            needed.discard(fact)
            if not self._leads(actions, needed, goal):
                needed.add(fact)
        return needed

    def _leads(self, actions: Sequence[effects.Action], facts: Collection[effects.GainedFact], goal: Goal) -> bool:
        """Return whether actions lead to a goal, one after another, if they give these facts alone."""
        gained: list[effects.GainedFact] = []
        for action in actions:
            self._assumed.assume(gained)
            if not self._is_allowed(action):
                return False
            gained += [fact for fact in self.actions[action] if fact in facts]
        self._assumed.assume(gained)
        return self._assumed.reaches(goal)

    def _reasons(self, action: effects.Action, with_: Mapping[str, Entity]) -> list[dict[str, str]]:
        asked, condition = self._assumed.request_form(action.rule, action.resource, creates=action.creates)
        self.caller.about({RESOURCE: asked, **with_})
        return self.caller.reasons(listing(self.caller, action.rule, condition).sets)


def escalations(
    reference: Reference,
    state: State,
    user: str,
    *,
    space: SearchSpace | None = None,
    max_steps: int | None = None,
    authority: Authority | None = None,
    administrators: Collection[str] = (),
) -> Iterator[tuple[effects.GainedFact, effects.Path]]:
    """The rights that a user could gain on existing entities and does not hold now, each with its path.

    Excludes entities that they would have to delete and create again, which are other entities then.
    """
    if authority is None and not effects.grants_on_existing_entities(reference.program):
        return
    reach = ReachableRights(
        reference,
        state,
        user,
        space=space,
        max_steps=max_steps,
        authority=authority,
        administrators=administrators,
        recreates=False,
    )
    for fact in reach.gains():
        path = reach.path_to(fact)
        if path is not None:
            yield fact, path
