from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import generated_programs
import pytest
import worlds
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privtab import InvalidRequest
from privtab.base import Entity, Request, UsageError, quoted_privilege
from privtab.ir import RESOURCE, Has, Program, Rule, Target, vocabulary
from privtab.reference import Reference
from privtab.state import AttributeRow, Grant, Placement, State, locations
from privtab_analysis.caller import Caller
from privtab_analysis.effects import FreshNames, GainedFact
from privtab_analysis.entitlements.universe import Universe, names
from privtab_analysis.entitlements.universe import universe as universe_of
from privtab_analysis.goals import Goal, goal, operation_goal
from privtab_analysis.locations import GrowingLocations
from privtab_analysis.paths import ReachableRights, escalations
from privtab_analysis.state_diff.placed import placed

FEATURES = ((), ("below",), worlds.IN_SPARK, ("attributes",), ("flat",), ("nested",), ("flat", "below", "nested"))
MOST_STATES = 60
MOST_CHOICES = 60
"""Worlds with more whole states, or more choices of further objects for a rule, are passed over."""


@lru_cache(maxsize=64)
def generated_program(seed: int) -> Program | None:
    """A random policy whose rows bring things: to the caller, on the entity, what contains it, and what lies in it."""
    rnd = random.Random(seed)
    text = worlds.policy(seed, features=FEATURES[seed % len(FEATURES)])
    text = re.sub(r"nested: (true|\d)", "nested: 2", text)  # else there are too many states
    types = [
        t
        for t in ("top", "mid", "low", "leaf", "side", "config", "item")
        if re.search(rf"^ +{t}:$", text, re.MULTILINE)
    ]

    def brings(found: re.Match[str]) -> str:
        row = found[0]
        if rnd.random() < 0.5:
            return row
        what = rnd.choice(
            [
                "grants: '{p} ({t})'",
                "grants: '{p} (entity)'",
                "becomes: owner",
                "becomes: 'owner ({t})'",
                "becomes: member",
            ]
        )
        what = what.format(p=quoted_privilege(rnd.choice(worlds.PRIVILEGES)), t=rnd.choice(types))
        edited = row if "becomes" in row and "becomes" in what else f"{row[:-1]}, {what}}}"
        tried, _ = generated_programs.read(text.replace(row, edited, 1))
        return row if tried is None else edited

    for row in re.findall(r"^    op\d: \{.*\}$", text, re.MULTILINE):
        found = re.search(re.escape(row), text)
        assert found is not None
        text = text.replace(row, brings(found), 1)
    program, _ = generated_programs.read(text)
    return program


@dataclass(frozen=True)
class ReachedState:
    """A whole state, and what has been made in it."""

    state: State
    created: frozenset[Entity]


@pytest.mark.slow
@settings(max_examples=9, deadline=None)
@given(st.integers(0, 250), st.integers(0, 10_000))
def test_paths_reach_the_same_goals_as_a_search_over_whole_states(policy: int, seed: int) -> None:
    check(policy, seed)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(st.integers(), st.integers())
def test_paths_in_many_worlds(policy: int, seed: int) -> None:
    check(policy, seed)


def check(policy: int, seed: int) -> None:
    program = generated_program(policy)
    assume(program is not None)
    assert program is not None
    state = small(program, worlds.state(program, seed), seed)
    steps = by_breadth(program, state, "ann")
    assume(steps is not None)
    assert steps is not None
    reach = ReachableRights(Reference(program, state), state, "ann")
    assert reach.reachable() == set(steps)
    for fact, fewest in steps.items():
        path = reach.path(Goal.of_fact(fact))
        assert path is not None
        if path.shortest:
            assert len(path.steps) == fewest
        assert runs(program, state, reach, fact), fact


def small(program: Program, state: State, seed: int) -> State:
    """Fewer rows, so that all courses of action can be tried, and none about entities that lie too deep."""
    rnd = random.Random(seed)
    shapes = vocabulary(program).shapes

    def fits(entity: Entity | None) -> bool:
        return entity is None or len(entity.names) <= shapes[entity.type].written.most

    few = replace(
        state,
        grants=tuple(g for g in state.grants if rnd.random() < 0.5 and fits(g.entity)),
        members=tuple(m for m in state.members if m[0] == "ann" and fits(m[1])),
        owners=tuple(row for row in state.owners if fits(row[0]))[:2],
        assignments=tuple(row for row in state.assignments if fits(row.scope))[:3],
        attributes=tuple(row for row in state.attributes if fits(row.entity)),
        entities=tuple(row for row in state.entities if fits(row.parent)),
    )
    return placed(program, few)


def by_breadth(program: Program, state: State, user: str) -> dict[GainedFact, int] | None:
    """Every fact that holds in some state that can be reached, and after how many operations; None where it is too much."""
    fresh = fresh_names(program, state)
    start = frozenset(universe_of(program, state))
    level = [ReachedState(state, frozenset())]
    seen = {key(level[0])}
    found: dict[GainedFact, int] = {}
    for steps in range(20):
        below: list[ReachedState] = []
        for reached in level:
            reference = Reference(program, reached.state)
            universe = Universe(program, (*start, *reached.created), locations(program, reached.state))
            for fact in facts_of(program, reference, universe, user):
                found.setdefault(fact, steps)
            for rule in program.rules.values():
                for resource, creates in fresh.resources(rule, universe) if brings(rule) else ():
                    if creates and (resource in start or resource in reached.created):
                        continue
                    pools = [worlds.choices(slot, universe) for slot in rule.withs]
                    if len(list(product(*pools))) > MOST_CHOICES:
                        return None
                    doing = rule, resource, creates
                    for after in results(program, reference, reached, fresh, user, *doing, pools):
                        if key(after) not in seen:
                            seen.add(key(after))
                            below.append(after)
            if len(seen) > MOST_STATES:
                return None
        if not below:
            return found
        level = below
    return None


def brings(rule: Rule) -> bool:
    return rule.creates is not None or any(e.kind != "revoke" for e in rule.effects)


def key(reached: ReachedState) -> object:
    return (
        reached.created,
        frozenset(reached.state.grants),
        frozenset(reached.state.owners),
        frozenset(reached.state.members),
    )


def results(
    program: Program,
    reference: Reference,
    reached: ReachedState,
    fresh: Created,
    user: str,
    rule: Rule,
    resource: Entity,
    creates: bool,
    pools: list[list[Entity | None]],
) -> Iterator[ReachedState]:
    """The states after an operation, done with each choice of further objects that it is allowed with."""
    for chosen in product(*pools):
        with_ = {slot.name: e for slot, e in zip(rule.withs, chosen, strict=True) if e is not None}
        flags = worlds.stated_flags(rule, frozenset())
        asked = resource
        if creates and resource.type in program.flat:
            asked = Entity(resource.type, f"{fresh.parents[resource]}/")
        request = Request(user=user, action=rule.operation, resource=asked, with_=with_, flags=flags)
        if not reference.decide(request).allowed:
            continue
        state, entities = reached.state, set(reached.created)
        if creates:
            entities.add(resource)
            state = with_place(state, resource, fresh)
        for effect in rule.effects:
            path = Caller(Reference(program, state), user).about({"": resource, **with_}).path(effect.target)
            if path:
                on = Entity.parse(path[-1])
            else:
                on = fresh.created_in(resource, effect.target.type, rule)
                entities.add(on)
                state = with_place(state, on, fresh)
            if effect.kind == "grant":
                rows = tuple(
                    Grant(grantee=f"user:{user}", effect="allow", privilege=p, entity=on) for p in effect.privileges
                )
                state = replace(state, grants=(*state.grants, *rows))
            elif effect.kind == "become" and effect.what == "owner":
                state = replace(state, owners=(*state.owners, (on, f"user:{user}")))
            elif effect.kind == "become":
                state = replace(state, members=(*state.members, (user, on)))
        yield ReachedState(state, frozenset(entities))


class Created(FreshNames):
    """Fresh names that remember where the entities of types with flat ids lie."""

    parents: dict[Entity, Entity]

    def created_in(self, parent: Entity | None, type_: str, rule: Rule) -> Entity:
        entity = super().created_in(parent, type_, rule)
        if parent is not None and type_ in self.program.flat:
            self.parents[entity] = parent
        return entity


def fresh_names(program: Program, state: State) -> Created:
    fresh = Created(program, names(program, state), GrowingLocations(locations(program, state)))
    fresh.parents = {}
    return fresh


def with_place(state: State, entity: Entity, fresh: Created) -> State:
    if entity not in fresh.parents or any(row.entity == entity for row in state.entities):
        return state
    return replace(state, entities=(*state.entities, Placement(entity=entity, parent=fresh.parents[entity])))


def facts_of(program: Program, reference: Reference, universe: Universe, user: str) -> Iterator[GainedFact]:
    """What a user holds in a state, read off rules that ask for just that."""
    for entity in universe:
        for fact in [
            *(GainedFact(kind="grant", entity=entity, privilege=p) for p in program.privileges),
            GainedFact(kind="owner", entity=entity),
            GainedFact(kind="member", entity=entity),
        ]:
            if plain(reference, entity, user, fact):
                yield fact


def plain(reference: Reference, entity: Entity, user: str, fact: GainedFact) -> bool:
    """Whether the reference says that a user holds something in a state."""
    return Caller(reference, user).about({RESOURCE: entity}).why(fact.atom()) is not None


def runs(program: Program, state: State, reach: ReachableRights, fact: GainedFact) -> bool:
    """Whether the steps of a path, done one after the other on whole states, end with the fact."""
    path = reach.path(Goal.of_fact(fact))
    assert path is not None
    fresh = fresh_names(program, state)
    reached = ReachedState(state, frozenset())
    for step in path.steps:
        pools = [[step.with_.get(slot.name)] for slot in step.rule.withs]
        there = Universe(program, (*universe_of(program, state), *reached.created), locations(program, reached.state))
        doing = step.rule, step.resource, step.creates
        assert doing[1:] in set(fresh.resources(step.rule, there))
        after = list(results(program, Reference(program, reached.state), reached, fresh, "ann", *doing, pools))
        assert len(after) == 1, f"{step.rule.id} on {step.resource} is not allowed"
        reached = after[0]
    return plain(Reference(program, reached.state), fact.entity, "ann", fact)


POLICY = """\
privtab: 1
system: studio
version: "1"
entities: {workspace: {project: {dataset: , report: }, team: , user: }}
privileges: [READ, WRITE, SHARE, ADMIN]
sets: {ALL: [READ, WRITE]}
semantics: {inheritance: down, deny: overrides, owner: {holds: [READ]}}
tables:
  workspace: {join: {requires: anyone, becomes: member, creates: false}}
  team: {enter: {requires: member (workspace), grants: SHARE (workspace)}}
  project:
    create: {requires: SHARE (workspace), becomes: owner}
    take: {with: {by: report}, requires: SHARE (project) and owner (by), grants: ADMIN (project)}
  dataset: {drop: ADMIN (project) and WRITE (dataset)}
  report: {create: {requires: SHARE (project), becomes: owner}}
"""
WEB = Entity("project", "a/web")


def reference_of(*grants: Grant) -> tuple[Reference, State]:
    program, found = generated_programs.read(POLICY)
    assert program is not None, found
    state = State(
        owners=((WEB, "user:zoe"), (Entity("team", "a/core"), "user:zoe")),
        grants=grants,
    )
    return Reference(program, state), state


def grant(privilege: str, entity: str, effect: str = "allow", grantee: str = "user:ann") -> Grant:
    return Grant(
        grantee=grantee,
        effect="deny" if effect == "deny" else "allow",
        privilege=privilege,
        entity=Entity.parse(entity),
    )


def test_a_path_tells_each_step_with_what_it_needs_and_brings() -> None:
    reference, state = reference_of()
    path = ReachableRights(reference, state, "ann").path(goal(reference, "ADMIN", WEB))
    assert path is not None
    assert path.shortest
    assert [f"{s.rule.operation} {s.resource}" for s in path.steps] == [
        "join workspace:a",
        "enter team:a/core",
        "create report:a/web/new",
        "take project:a/web",
    ]
    assert path.steps[3].with_ == {"by": Entity("report", "a/web/new")}
    assert [reason["atom"] for reason in path.steps[1].because] == ["member (workspace:a)"]
    assert [str(fact) for fact in path.steps[1].gained] == ["SHARE (workspace:a)"]


def test_a_denial_of_the_state_stays() -> None:
    reference, state = reference_of(grant("SHARE", "project:a/web", "deny"))
    reach = ReachableRights(reference, state, "ann")
    assert reach.path(goal(reference, "ADMIN", WEB)) is None
    assert reach.path(goal(reference, "SHARE", Entity("workspace", "a"))) is not None


def test_a_held_goal_needs_no_step_and_too_many_steps_are_no_path() -> None:
    reference, state = reference_of(grant("SHARE", "workspace:a"))
    path = ReachableRights(reference, state, "ann").path(goal(reference, "SHARE", WEB))
    assert path is not None
    assert path.steps == ()
    assert ReachableRights(reference, state, "ann", max_steps=2).path(goal(reference, "ADMIN", WEB)) is not None
    assert ReachableRights(reference, state, "ann", max_steps=1).path(goal(reference, "ADMIN", WEB)) is None


def test_the_goal_may_be_an_operation_or_a_set_on_an_unnamed_entity() -> None:
    reference, state = reference_of(grant("WRITE", "project:a/web"))
    dataset = Entity("dataset", "a/web/clicks")
    reach = ReachableRights(reference, state, "ann", extra_entities=[dataset])
    path = reach.path(operation_goal(reference, "drop", dataset))
    assert path is not None
    assert path.steps[-1].rule.operation == "take"
    take = ReachableRights(reference, state, "ann").path(operation_goal(reference, "take", WEB))
    assert take is not None
    assert [s.rule.operation for s in take.steps] == ["join", "enter", "create"]
    assert reach.path(goal(reference, "ALL", dataset)) is None
    project = Entity("project", "a/new")
    assert reach.path(goal(reference, "READ", project)) is not None, "they make it and own it"
    for wrong in ("NOTHING", "REED"):
        with pytest.raises(InvalidRequest, match="unknown privilege"):
            goal(reference, wrong, WEB)
    with pytest.raises(InvalidRequest, match="unknown operation"):
        operation_goal(reference, "burn", WEB)
    with pytest.raises(InvalidRequest, match="must be of type report"):
        operation_goal(reference, "take", WEB, {"by": WEB})


def test_escalations_are_about_what_is_there_and_not_held() -> None:
    reference, state = reference_of()
    found = {str(fact): len(path.steps) for fact, path in escalations(reference, state, "ann")}
    assert found == {"member (workspace:a)": 1, "SHARE (workspace:a)": 2, "ADMIN (project:a/web)": 4}
    reach = ReachableRights(reference, state, "ann")
    assert {str(action.resource) for action in reach.creating_actions()} == {"project:a/new", "report:a/web/new"}


def test_a_minimal_path_is_found_where_the_shortest_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("privtab_analysis.paths.MAX_TRIALS", 0)
    reference, state = reference_of()
    path = ReachableRights(reference, state, "ann").path(goal(reference, "ADMIN", WEB))
    assert path is not None
    assert not path.shortest
    assert [step.rule.operation for step in path.steps] == ["join", "enter", "create", "take"]


IMPLIED = """\
privtab: 1
system: studio
version: "1"
entities: {project: {report: }}
privileges:
  READ: {on: [project, report]}
  ADMIN: {on: [project], implies: [READ]}
semantics: {inheritance: down}
tables:
  project: {take: {requires: anyone, grants: ADMIN (project), creates: false}}
  report: {open: READ (report)}
"""


def test_a_privilege_granted_by_an_operation_gives_those_it_implies() -> None:
    program, _ = generated_programs.read(IMPLIED)
    assert program is not None
    report = Entity("report", "web/may")
    reference = Reference(program, State())
    reach = ReachableRights(reference, State(), "ann", extra_entities=[report])
    path = reach.path(operation_goal(reference, "open", report))
    assert path is not None
    assert [str(fact) for fact in path.steps[-1].gained] == ["ADMIN (project:web)", "READ (project:web)"]


WITHIN = """\
privtab: 1
system: studio
version: "1"
entities: {drive: {folder: {document: }}}
types: {folder: {nested: 3, flat: true}, document: {flat: true}}
privileges: [READ, WRITE]
semantics: {inheritance: down, owner: {creator: true}}
attributes: {user: {team: text}, entity: {team: {text: true, on: [document]}}}
tables:
  folder:
    create: {requires: WRITE (parent), creates: true, grants: READ (folder)}
  document:
    create: {requires: READ (folder) and user.team = hr, creates: true, becomes: owner}
    take: {requires: user.team = entity.team, grants: WRITE (drive), creates: false}
"""


def test_paths_lead_through_what_is_created_in_places_of_the_state() -> None:
    program = generated_programs.lowered(WITHIN)[0]
    drive, report = Entity("drive", "main"), Entity("document", "d7")
    state = State(
        entities=(
            Placement(entity=Entity("folder", "f1"), parent=drive),
            Placement(entity=report, parent=Entity("folder", "f1")),
        ),
        attributes=(
            AttributeRow(user="ann", attribute="team", value="hr"),
            AttributeRow(entity=report, attribute="team", value="hr"),
        ),
    )
    reference = Reference(program, state)
    reach = ReachableRights(reference, state, "ann")
    created = [str(fact.entity) for fact in reach.facts if fact.kind == "exists"]
    assert "document:new in folder:new in drive:main" in created
    assert sum(entity.startswith("folder:") for entity in created) == 3 + 2  # three levels in the drive, two in `f1`
    path = reach.path(Goal(text="", resource=Entity("folder", "new in folder:f1"), atoms=(READ_FOLDER,)))
    assert path is not None
    assert [(step.rule.operation, str(step.resource)) for step in path.steps] == [
        ("take", "document:d7"),
        ("create", "folder:new in folder:f1"),
    ]
    other = ReachableRights(reference, state, "ben")
    assert not other.facts


def test_too_many_entities_in_each_other_are_refused() -> None:
    program = generated_programs.lowered(TREE_OF_FOLDERS)[0]
    with pytest.raises(UsageError, match=r"2 operations create a `folder`, in each other to 30 levels"):
        ReachableRights(Reference(program, State()), State(), "ann")
    assert ReachableRights(Reference(program, State()), State(), "ann", max_steps=3).facts == {}


READ_FOLDER = Has(privilege="READ", target=Target(slot=RESOURCE, type="folder"))
TREE_OF_FOLDERS = """\
privtab: 1
system: studio
version: "1"
entities: {drive: {folder: }}
types:
  folder: {nested: 30}
privileges: [READ]
tables:
  folder:
    make, copy: {requires: READ (parent), creates: true}
"""


def test_a_step_may_leave_out_an_object() -> None:
    program, _ = generated_programs.read(
        "privtab: 1\nsystem: lake\nversion: '1'\nentities: {cat: {tab: }}\nprivileges: [READ]\n"
        "semantics: {inheritance: down, owner: {}}\n"
        "tables: {tab: {claim: {with: {by: [cat, none]}, requires: READ (tab) and (owner (by) when by), becomes: owner}}}\n"
    )
    assert program is not None
    state = State(grants=(grant("READ", "tab:a/b"),))
    reference = Reference(program, state)
    path = ReachableRights(reference, state, "ann").path(goal(reference, "owner", Entity("tab", "a/b")))
    assert path is not None
    assert [(step.rule.operation, step.with_) for step in path.steps] == [("claim", {})]
