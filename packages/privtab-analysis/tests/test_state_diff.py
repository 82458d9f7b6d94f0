"""The exact difference between two states, against the reference asked about everything in both."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import chain, combinations, product
from math import prod
from typing import Any, TypeAlias

import generated_programs
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import seeds

from privtab.base import Entity, GivenAttributes, Request, Window
from privtab.ir import RESOURCE, Compare, Program, Rule, reached_atoms, rule_flags, vocabulary
from privtab.ir.formula import compares_given
from privtab.reference import EvaluationContext, Reference
from privtab.state import Assignment, AttributeRow, Grant, Placement, State
from privtab.state.nodes import ALL_TABLES, TABLES
from privtab_analysis.caller import asked_forms
from privtab_analysis.entitlements.universe import Universe, named_principals
from privtab_analysis.entitlements.universe import universe as universe_of
from privtab_analysis.state_diff import ChangedAccess, ChangedRow, StateDiff, changed_rows, state_diff
from privtab_analysis.state_diff.placed import placed
from privtab_analysis.state_diff.subjects import ANY_OTHER
from privtab_analysis.state_diff.summary import groups as by_rows

WINDOWS = """\
privtab: 1
system: world
version: "1"
entities: {top:}
privileges: [READ]
tables: {top: {read: READ (top)}}
"""
FEATURES = (
    (),
    worlds.FEATURES,
    (*worlds.IN_SPARK, "nested"),
    ("flat", "nested", "below"),
    ("flat", "hierarchy"),
    ("nested", "below"),
)
Key: TypeAlias = tuple[bool, str, str, str, tuple[tuple[str, str], ...], tuple[str, ...]]


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 400), st.integers(0, 10_000), st.integers(0, 5))
def test_changed_decisions_are_those_the_reference_answers_differently(policy: int, seed: int, changes: int) -> None:
    check(policy, seed, changes)


@pytest.mark.long
@settings(max_examples=50, deadline=None)
@given(st.integers(), st.integers(), st.integers(0, 12))
def test_changed_decisions_in_generated_worlds(policy: int, seed: int, changes: int) -> None:
    check(policy, seed, changes)


def check(policy: int, seed: int, changes: int) -> None:
    compare(generated_programs.program(policy, *FEATURES[policy % len(FEATURES)]), seed, changes)


@pytest.mark.parametrize("seed", seeds(range(40), quick=2))
def test_rows_of_few_entities_are_enough(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Of subjects who are not few, rows are looked at only on the entities that a change can concern."""
    monkeypatch.setattr("privtab_analysis.state_diff.FEW", 0)
    compare(generated_programs.program(seed, *FEATURES[seed % 3]), seed, 1 + seed % 6)


@pytest.mark.parametrize("policy", seeds((33, 19, 384, 11), quick=0, full=1))
def test_a_group_of_everyone_concerns_those_whom_no_row_names(policy: int) -> None:
    program = generated_programs.program(policy, *FEATURES[policy % len(FEATURES)])
    assert program.semantics.everyones
    compare(program, policy, 0)


@pytest.mark.parametrize("seed", seeds(range(30), quick=0, full=1))
def test_attributes_of_the_state(seed: int) -> None:
    program = with_attributes_of_the_state(seed)
    for changes in (1, 4):
        compare(program, 100 * seed + changes, changes)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_attributes_of_many_states(subtests: pytest.Subtests, search_seed: int, first: int) -> None:
    for seed in range(search_seed + first, search_seed + first + 10):
        with subtests.test(seed=seed):
            compare(with_attributes_of_the_state(seed), seed, seed % 8)


@pytest.mark.parametrize("seed", seeds(range(20), quick=1))
def test_flat_ids(seed: int) -> None:
    program = generated_programs.program(seed, "flat", *(("nested", "below") if seed % 2 else ("hierarchy",)))
    for changes in (0, 4):
        compare(program, seed, changes)


@pytest.mark.parametrize("seed", seeds(range(20), quick=1, full=2))
def test_attributes_that_requests_give(seed: int) -> None:
    program = generated_programs.program(seed, "attributes", *(("flat",) if seed % 3 == 2 else ()))
    compare(program, seed, 3)


def with_attributes_of_the_state(seed: int) -> Program:
    """A generated policy that takes all attributes that it compares from the state."""
    more = ((), worlds.FEATURES, ("flat", "nested"))[seed % 3]
    text = worlds.policy(seed, features=("attributes", *more))
    text = re.sub(r", from: (request|state|\[[a-z, ]+\])", "", text)
    for of_request, of_user in (("mfa", "trained"), ("hour", "rank")):
        text = text.replace(f"request.{of_request}", f"user.{of_user}")
    program, found = generated_programs.read(text.replace("user.team = request.team", "user.team = one"))
    assert program is not None, found
    assert not compares_given(program)
    return program


def compare(program: Program, seed: int, changes: int) -> None:
    before = placed(program, worlds.state(program, seed))
    after = changed(program, before, seed, changes) if changes else placed(program, worlds.state(program, seed + 1))
    found = state_diff(program, before, after)
    if any("kinds of" in text for text in found.undecided):
        return
    counts = Counter(chain.from_iterable(keys(found_change) for found_change in found.access))
    assert not [key for key, times in counts.items() if times > 1]
    undecided = {text.split("`")[1] for text in found.undecided}
    few = {rule.id for rule in program.rules.values() if number_of_choices(program, rule) <= 64} - undecided
    assert {key for key in counts if key[2] in few} == set(one_by_one(program, before, after, few))
    for change in found.access:
        assert change.count == len(list(keys(change)))
        rows_make_the_difference(program, before, change)


def changed(program: Program, state: State, seed: int, changes: int) -> State:
    """The state with some rows dropped, and some of another state added."""
    rnd = random.Random(seed)
    other = worlds.state(program, seed + 1)
    names = ALL_TABLES if program.flat else TABLES
    tables: dict[str, Any] = {table: list(getattr(state, table)) for table in names}
    for _ in range(changes):
        table = rnd.choice(names)
        if rnd.random() < 0.5 and tables[table]:
            tables[table].pop(rnd.randrange(len(tables[table])))
        elif getattr(other, table):
            row = rnd.choice(getattr(other, table))
            if table == "entities":
                tables[table] = [place for place in tables[table] if place.entity != row.entity]
            tables[table].append(row)
    return placed(program, State(**tables))


def keys(access: ChangedAccess) -> Iterator[Key]:
    for subject in access.subjects:
        for entities in access.requested_objects():
            objects = tuple(sorted((slot, str(entity)) for slot, entity in entities.items() if slot != RESOURCE))
            rule = access.rule.id, str(entities[RESOURCE])
            yield access.gained, subject, *rule, objects, access.flags


def one_by_one(program: Program, before: State, after: State, rules: Collection[str]) -> Iterator[Key]:
    """Every difference, from a decision of the reference about everything in each state."""
    universe = Universe(program)
    for state in (before, after):
        for entity in universe_of(program, state):
            universe.by_type[entity.type][entity.id] = entity
    old_reference, new_reference = Reference(program, before), Reference(program, after)
    subjects: list[tuple[str, str, tuple[str, ...]]] = [
        (f"user:{user}", user, ()) for user in worlds.names(program).users
    ]
    subjects.append((ANY_OTHER, "nobody", ()))
    if "request" in program.semantics.groups:
        known = {group for state in (before, after) for group in groups_of(state)}
        everyone = [*worlds.names(program).groups, "everyone"]
        subjects += [
            (f"group:{group}", "someone else", (group,))
            for group in everyone
            if group in known or not (program.attributes or program.flat or program.semantics.everyones)
        ]
    for rule in program.rules.values():
        if rule.id not in rules:
            continue
        flags = sorted({flag for one in tried(program, rule) for flag in rule_flags(program, one)})
        sets = [frozenset(some) for size in range(len(flags) + 1) for some in combinations(flags, size)]
        for resource, with_ in objects(program, universe, rule):
            choices = values_given(program, rule, resource, with_)
            for name, user, groups in subjects:
                seen: list[tuple[frozenset[str], bool]] = []
                for some in sets:
                    request = Request(
                        user=user,
                        action=rule.operation,
                        resource=resource,
                        with_=with_,
                        groups=groups,
                        flags=worlds.stated_flags(rule, some),
                    )
                    was_allowed, is_allowed = (
                        decider(old_reference, rule, request),
                        decider(new_reference, rule, request),
                    )
                    changed_to = set()
                    for given_values in choices:
                        was, is_ = was_allowed(given_values), is_allowed(given_values)
                        changed_to |= {is_} - {was}
                    for is_ in changed_to:
                        if not any(known < some and gained == is_ for known, gained in seen):
                            listed = tuple(sorted((slot, str(entity)) for slot, entity in with_.items()))
                            yield is_, name, rule.id, str(resource), listed, tuple(sorted(some))
                        seen.append((some, is_))


DOMAINS: dict[str, list[Any]] = {
    "text": ["one", "two words", "3", "other", "another"],
    "bool": [True, False],
    "integer": [0, 1, 2, 3],
    "set": [["red"], ["blue"], ["red", "blue"]],
    "enum": ["red", "blue", "gray"],
}


def tried(program: Program, rule: Rule) -> tuple[Rule, ...]:
    """A rule, and of a filter those before it, none of which may hold."""
    return rule, *program.earlier(rule.entity, rule.operation)


def comparisons(program: Program, rule: Rule) -> set[Compare]:
    parts = (part for one in tried(program, rule) for part in reached_atoms(program, one.item_condition))
    return {part for part in parts if isinstance(part, Compare)}


def number_of_choices(program: Program, rule: Rule) -> int:
    """An upper bound on the number of choices of values that a request can give."""
    compares = comparisons(program, rule)
    types = [program.attribute(term) for term in {term for atom in compares for term in atom.terms}]
    return prod(1 + len(DOMAINS[type_.type]) for type_ in types if type_ and "request" in type_.origins)


def values_given(program: Program, rule: Rule, resource: Entity, with_: dict[str, Entity]) -> list[GivenAttributes]:
    """Every choice of values that a request can give, of the attributes that the condition compares."""
    compared = {(term.kind, term.attribute) for atom in comparisons(program, rule) for term in atom.terms}
    declared = program.attributes.from_origin("request")
    variables: dict[tuple[str, str], list[Any]] = {}
    for kind, of_kind in (("user", declared.user), ("request", declared.request)):
        variables |= {(kind, n): DOMAINS[a.type] for n, a in of_kind.items() if (kind, n) in compared}
    for entity in {resource, *with_.values()}:
        found = declared.declared_on(entity.type)
        variables |= {(str(entity), n): DOMAINS[a.type] for n, a in found.items() if ("entity", n) in compared}
    choices = []
    for values in product(*([None, *domain] for domain in variables.values())):
        chosen = {variable: value for variable, value in zip(variables, values, strict=True) if value is not None}
        by_owner = {owner: {n: v for (o, n), v in chosen.items() if o == owner} for owner, _ in variables}
        choices.append(
            GivenAttributes(
                user=by_owner.get("user", {}),
                request=by_owner.get("request", {}),
                entity=by_owner.get(str(resource), {}),
                with_={slot: by_owner.get(str(entity), {}) for slot, entity in with_.items()},
            )
        )
    return choices


def groups_of(state: State) -> set[str]:
    """The groups that a state names; what is true of others is true of `user:*`."""
    return state.distinct(("memberships", "group")) | {
        principal.removeprefix("group:") for principal in named_principals(state) if principal.startswith("group:")
    }


def allowed(reference: Reference, rule: Rule, request: Request) -> bool:
    return decider(reference, rule, request)(request.attributes)


def decider(reference: Reference, rule: Rule, request: Request) -> Callable[[GivenAttributes], bool]:
    """Decides a request with any attributes: what else it says is looked up once."""
    evaluation = EvaluationContext(reference, request)
    entities = {RESOURCE: request.resource, **request.with_}
    condition, *before = map(evaluation.condition, tried(reference.program, rule))

    def decides(attributes: GivenAttributes) -> bool:
        evaluation.attributes = attributes
        evaluation.given = evaluation.given_of(entities)
        return evaluation.holds(condition) and not any(map(evaluation.holds, before))

    return decides


def objects(program: Program, universe: Universe, rule: Rule) -> Iterator[tuple[Entity, dict[str, Entity]]]:
    type_ = program.entities[rule.entity]
    resources = [*universe.by_type[rule.entity].values()] if True in asked_forms(program, rule) else []
    if rule.unnamed and not type_.single:
        shape = vocabulary(program).shapes[rule.entity]
        above = [Entity(rule.entity, "")] if type_.parent is None else [*universe.by_type[type_.parent].values()]
        above += universe.by_type[rule.entity].values() if type_.nested else ()
        if rule.entity in program.flat:
            resources += [Entity(rule.entity, f"{parent}/") for parent in above]
        else:
            nests = shape.nested is not None and shape.flat is None
            resources += [
                Entity(rule.entity, parent.id and f"{parent.id}/")
                for parent in above
                if not nests or len(parent.names) < shape.most
            ]
    pools = [worlds.choices(slot, universe) for slot in rule.withs]
    for resource in resources:
        for chosen in product(*pools):
            yield resource, {slot.name: e for slot, e in zip(rule.withs, chosen, strict=True) if e is not None}


def rows_make_the_difference(program: Program, before: State, access: ChangedAccess) -> None:
    """The rows alone make the difference, and none of them can be left out."""
    entities = next(access.requested_objects(1))
    for rows, makes_it in [(access.rows, True), *((without(access.rows, row), False) for row in access.rows)]:
        reference = Reference(program, placed(program, applied(before, rows)))
        for subject in access.subjects:
            kind, _, name = subject.partition(":")
            request = Request(
                user=name if kind == "user" else "someone else",
                action=access.rule.operation,
                resource=entities[RESOURCE],
                with_={slot: entity for slot, entity in entities.items() if slot != RESOURCE},
                groups=(name,) if kind == "group" else (),
                flags=worlds.stated_flags(access.rule, frozenset(access.flags)),
                attributes=access.given,
            )
            assert (allowed(reference, access.rule, request) is access.gained) is makes_it


def without(rows: tuple[ChangedRow, ...], row: ChangedRow) -> tuple[ChangedRow, ...]:
    """The rows without one of them; the two rows of an entity that has moved are one change."""
    if row.table == "entities":
        return tuple(
            other for other in rows if other.table != row.table or other.cells["entity"] != row.cells["entity"]
        )
    return tuple(other for other in rows if other != row)


def applied(state: State, rows: tuple[ChangedRow, ...]) -> State:
    for row in rows:
        own = [value for value in getattr(state, row.table) if value != row.value]
        left: Any = {row.table: (*own, row.value) if row.added else tuple(own)}
        state = replace(state, **left)
    return state


def test_rows_differ_by_their_windows_and_decisions_at_a_moment() -> None:
    program = generated_programs.lowered(WINDOWS)[0]
    grant = Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("top", "x"))
    before = State(grants=(grant,), windows={"grants": (Window(0, 100),)})
    after = State(grants=(grant, grant), windows={"grants": (Window(0, 100), Window(50, 200))})
    for moment, gained in ((20, 0), (60, 0), (100, 1), (199, 1), (200, 0)):
        found = state_diff(program, before, after, moment=moment)
        assert [(row.added, row.cells["until"]) for row in found.rows] == [(True, "1970-01-01T00:00:00.0000002Z")]
        assert found.count(gained=True) == gained
        assert all(change.rows == found.rows for change in found.access)
        assert state_diff(program, after, before, moment=moment).count(gained=False) == gained


SCOPED = """\
privtab: 1
system: world
version: "1"
entities: {top:}
privileges: [READ, WRITE]
roles: {keeper: {scope: top}}
tables: {top: {read: READ (top), write: WRITE (top)}}
"""


def test_a_role_counts_within_its_scope_where_others_grant_it_the_same() -> None:
    program = generated_programs.lowered(SCOPED)[0]
    x, y = Entity("top", "x"), Entity("top", "y")
    grants = [Grant(grantee="role:keeper", effect="allow", privilege="READ", entity=entity) for entity in (x, y)]
    write = Grant(grantee="user:ann", effect="allow", privilege="WRITE", entity=y)
    keeper = Assignment(principal="user:ann", role="keeper", scope=x)
    found = state_diff(program, State(grants=tuple(grants)), State(grants=(*grants, write), assignments=(keeper,)))
    assert {(change.rule.operation, str(change.entities.first)) for change in found.access} == {
        ("read", "top:x"),
        ("write", "top:y"),
    }


def test_a_cause_counts_what_is_held_only_between_the_states() -> None:
    program = generated_programs.lowered(WINDOWS)[0]
    x = Entity("top", "x")
    before = State(
        grants=(Grant(grantee="role:reader", effect="allow", privilege="READ", entity=x),),
        assignments=(Assignment(principal="group:staff", role="reader"),),
    )
    direct = Grant(grantee="group:staff", effect="allow", privilege="READ", entity=x)
    after = State(grants=(*before.grants, direct), memberships=(("ann", "staff"),))
    (found,) = state_diff(program, before, after).access
    assert [row.value for row in found.rows] == [("ann", "staff")]


def test_a_limit_on_questions_is_reported() -> None:
    program = generated_programs.lowered(WINDOWS)[0]
    grants = [
        Grant(grantee=f"user:u{n}", effect="allow", privilege="READ", entity=Entity("top", f"x{n}")) for n in range(20)
    ]
    found = state_diff(program, State(), State(grants=tuple(grants)), most=5)
    assert found.undecided == (
        "more than 5 questions to decide: 15 of 20 affected subjects were not compared completely",
    )
    assert 5 <= found.count(gained=True) < 20


def test_large_states_are_compared_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    program = generated_programs.program(3)
    before, after = worlds.state(program, 1), changed(program, worlds.state(program, 1), 1, 4)
    expected = [(row.table, row.cells, row.added) for row in changed_rows(before, after)]
    monkeypatch.setattr("privtab_analysis.state_diff.rows.LARGE", 0)
    assert [(row.table, row.cells, row.added) for row in changed_rows(before, after)] == expected
    assert expected


def test_equal_states_need_no_decision() -> None:
    program = generated_programs.program(1)
    state = worlds.state(program, 1)
    assert state_diff(program, state, worlds.state(program, 1)) == StateDiff(rows=(), notes=())


TREE = """\
privtab: 1
system: world
version: "1"
entities: {top: {mid: {low:}}}
TYPES
privileges: [READ]
semantics: {inheritance: down}
tables:
  top: {see: READ (SEEN)}
  mid: {see: READ (MID), create: {requires: READ (PARENT), creates: true}}
  low: {see: READ (low)}
"""


def granted(*entities: Entity) -> State:
    return State(grants=tuple(Grant(grantee="user:ann", effect="allow", privilege="READ", entity=e) for e in entities))


def changes(text: str, before: State, after: State) -> set[tuple[str, str]]:
    program, found = generated_programs.read(text)
    assert program is not None, found
    access = state_diff(program, before, after).access
    assert all(change.rows for change in access)
    return {
        (change.rule.id.partition("/")[2], objects[RESOURCE].id)
        for change in access
        for objects in change.requested_objects()
    }


def test_each_level_of_a_type_that_nests_changes_on_its_own() -> None:
    text = TREE.replace("TYPES", "types: {mid: {nested: 3}}").replace("SEEN", "top")
    text = text.replace("MID", "parent").replace("PARENT", "parent")
    before = granted(Entity("low", "t/a/b/x"))
    found = changes(text, before, granted(Entity("low", "t/a/b/x"), Entity("mid", "t/a")))
    # `parent` of the outermost is not changed, and `x` was granted before.
    assert found == {("mid/see", "t/a/b"), ("mid/create", "t/a/"), ("mid/create", "t/a/b/")}
    deepest = granted(Entity("mid", "t/a/b/c"))
    assert ("mid/create", "t/a/b/c/") not in changes(text, State(), deepest)


def test_a_row_changes_what_is_seen_of_all_that_contain_its_entity() -> None:
    text = (
        TREE.replace("TYPES", "")
        .replace("SEEN", "top or below")
        .replace("MID", "mid or below")
        .replace("PARENT", "top")
    )
    found = changes(text, granted(Entity("low", "t/b/y")), granted(Entity("low", "t/b/y"), Entity("low", "t/a/x")))
    assert found == {("low/see", "t/a/x"), ("mid/see", "t/a")}
    assert ("top/see", "t") in changes(text, State(), granted(Entity("low", "t/a/x")))


BY_CLASS = """\
privtab: 1
system: world
version: "1"
entities: {top: {low: }}
privileges: [READ]
attributes: {user: {team: text}, entity: {team: text, class: {enum: [public, secret]}}}
tables:
  low:
    read: READ (low) and user.team = entity.team
    browse: top.class = public
"""


def test_an_attribute_of_an_entity_changes_what_everyone_may() -> None:
    program = generated_programs.lowered(BY_CLASS)[0]
    top, low = Entity("top", "x"), Entity("low", "x/y")
    grant = Grant(grantee="user:ann", effect="allow", privilege="READ", entity=low)
    team = AttributeRow(user="ann", attribute="team", value="hr")
    before = State(grants=(grant,), attributes=(team, AttributeRow(entity=top, attribute="class", value="secret")))
    public = AttributeRow(entity=top, attribute="class", value="public")
    own = AttributeRow(entity=low, attribute="team", value="hr")
    after = State(grants=(grant,), attributes=(team, public, own))
    found = {
        (change.rule.operation, change.subjects, tuple(row.text for row in change.rows))
        for change in state_diff(program, before, after).access
    }
    assert found == {
        ("browse", ("user:*", "user:ann"), ("class of top:x is secret", "class of top:x is public")),
        ("read", ("user:ann",), ("team of low:x/y is hr",)),
    }
    [line, *_] = [line for group in by_rows(state_diff(program, before, after)) for line in group.lines]
    assert "everyone else" in line.subjects


DRIVES = """\
privtab: 1
system: world
version: "1"
entities: {drive: {folder: {document:}}}
types: {folder: {nested: true, flat: true}, document: {flat: true}}
privileges: [READ]
semantics: {inheritance: down, deny: overrides}
tables:
  folder: {create: {requires: READ (parent), creates: true}}
  document: {read: READ (document), ping: anyone}
"""


def lying(**parents: str) -> tuple[Placement, ...]:
    types = {"f": "folder", "d": "document"}
    return tuple(Placement(entity=Entity(types[id_[0]], id_), parent=Entity.parse(p)) for id_, p in parents.items())


def test_a_moved_entity_is_affected_with_its_descendants() -> None:
    program = generated_programs.lowered(DRIVES)[0]
    grants = (
        Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("folder", "f1")),
        Grant(grantee="user:ben", effect="allow", privilege="READ", entity=Entity("drive", "b")),
    )
    before = State(grants=grants, entities=lying(f1="drive:a", f2="folder:f1", d1="folder:f2", d2="folder:f1"))
    after = State(grants=grants, entities=lying(f1="drive:a", f2="drive:b", d1="folder:f2", d2="folder:f1"))
    moved = ("folder:f2 lies in folder:f1", "folder:f2 lies in drive:b")
    found = state_diff(program, before, after)
    assert {
        (change.gained, change.subjects, str(objects[RESOURCE]), tuple(row.text for row in change.rows))
        for change in found.access
        for objects in change.requested_objects()
    } == {
        (False, ("user:ann",), "folder:folder:f2/", moved),
        (False, ("user:ann",), "document:d1", moved),
        (True, ("user:ben",), "folder:folder:f2/", moved),
        (True, ("user:ben",), "document:d1", moved),
    }
    lines = [line for group in by_rows(found) for line in group.lines]
    assert ("[folder/create] (sensitive)", "folder:f2/") in {(line.operations, line.entities) for line in lines}


def test_an_unplaced_entity_is_denied_to_everyone() -> None:
    program = generated_programs.lowered(DRIVES)[0]
    before = State(entities=lying(d1="folder:f1", f1="drive:a"))
    [found] = state_diff(program, before, State(entities=lying(f1="drive:a"))).access
    assert (found.gained, found.rule.operation, found.subjects) == (False, "ping", (ANY_OTHER,))


def test_a_new_name_changes_no_decision() -> None:
    program = generated_programs.lowered(DRIVES)[0]
    [place] = lying(f1="drive:a")
    found = state_diff(program, State(entities=(place,)), State(entities=(replace(place, name="Plans"),)))
    assert [row.text for row in found.rows] == ["folder:f1 lies in drive:a", "folder:f1 lies in drive:a as Plans"]
    assert not found.access


def test_values_that_requests_give_are_shown_where_they_matter() -> None:
    text = BY_CLASS.replace("user: {team: text}", "user: {team: {text: true, from: [state, request]}}")
    program = generated_programs.lowered(text)[0]
    low = Entity("low", "x/y")
    before = State(attributes=(AttributeRow(entity=low, attribute="team", value="hr"),))
    after = State(attributes=before.attributes, grants=granted(low).grants)
    [found] = state_diff(program, before, after).access
    assert (found.subjects, found.given) == (("user:ann",), GivenAttributes(user={"team": "hr"}))
    [[line]] = [group.lines for group in by_rows(state_diff(program, before, after))]
    assert line.operations == "read if user.team = hr (sensitive)"


def test_too_many_values_are_said_not_to_be_compared() -> None:
    words = ", ".join(f"w{number}" for number in range(12))
    text = BY_CLASS.replace("user: {team: text}", f"user: {{team: {{set: [{words}], from: request}}}}")
    program = generated_programs.lowered(text.replace("user.team = entity.team", "entity.team in user.team"))[0]
    found = state_diff(program, State(), granted(Entity("low", "x/y")))
    assert (
        "`world/low/read` compares attributes: requests can give more than 1,000 combinations of values"
        in found.undecided
    )


def test_a_note_says_where_no_row_names_what_a_changed_row_is_about() -> None:
    program, found = generated_programs.read(
        "privtab: 1\nsystem: lake\nversion: '1'\nentities: {catalog: {schema: {table: }}}\nprivileges: [READ]\n"
        "semantics: {inheritance: down}\ntables:\n  schema: {list: READ (schema)}\n  table: {read: READ (table)}\n"
    )
    assert program is not None, found

    def notes(*entities: str) -> tuple[str, ...]:
        granted = [
            Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity.parse(key)) for key in entities
        ]
        named = State(owners=tuple((Entity.parse(key), "user:bob") for key in entities[1:]))
        return state_diff(program, named, replace(named, grants=tuple(granted[:1]))).notes

    assert notes("catalog:c") == (
        "no row names a schema or table in `catalog:c`: what changes for such is not compared",
    )
    assert notes("catalog:c", "schema:c/s") == (
        "no row names a table in `catalog:c`: what changes for such is not compared",
    )
    assert notes("catalog:c", "table:d/s/t") == (
        "no row names a schema or table in `catalog:c`: what changes for such is not compared",
    )
    assert notes("catalog:c", "schema:c/r", "table:c/s/t") == ()
    assert notes("table:c/s/t") == ()
