"""The matrix is what the reference answers to every request, and says why in the reference's words."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import generated_programs
import pytest
import worlds
from pyspark.sql import SparkSession
from worlds.attributes import request_attributes

from privtab.base import Entity, FileError, InvalidRequest, Request, StateInvalid, UsageError
from privtab.ir import Program, vocabulary
from privtab.reference import Reference
from privtab.state import Assignment, Grant, State
from privtab_analysis.entitlements import evaluator
from privtab_spark import entitlements, matrix
from privtab_spark.matrix.opening import open_matrix, open_state
from privtab_spark.matrix.question import Question
from privtab_spark.packed_values import packed, unpacked
from privtab_spark.policies import open_policy
from privtab_spark.state import state_tables

USERS = (*worlds.USERS, "nobody")
BY_INDEX = (
    ("nested",),
    ("below", "hierarchy"),
    ("attributes",),
    ("flat",),
    ("nested", "hierarchy", "implies"),
    ("flat", "nested"),
    ("attributes", "below", "implies"),
    ("flat", "below", "hierarchy", "implies"),
)
"""Features of policies that the arrays of other plans do not support, one or several at once."""
SHOP = """
privtab: 1
system: shop
version: '1'
entities: {mall: {shop: {shelf: , user: , group: , role: }}}
privileges: {READ: {on: [mall, shop, shelf]}, WRITE: {on: [shop, shelf]}, HIRE: {on: [shop]}}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}, gate: member (mall)}
tables:
  shop:
    hire: {with: {person: user}, requires: HIRE (shop)}
    open: {requires: anyone, gate: none}
  shelf:
    look: READ (shelf)
    fill: WRITE (shelf) and READ (shelf) or owner (shop)
    make: {requires: WRITE (shop), grants: READ (shelf)}
  user:
    rename: self
"""
MEMBERS = tuple((user, Entity("mall", "m")) for user in ("ann", "bob", "cid"))
STATE = State(
    members=MEMBERS,
    memberships=(("bob", "clerks"),),
    assignments=(
        Assignment(principal="user:ann", role="reader"),
        Assignment(principal="group:clerks", role="reader"),
        Assignment(principal="group:clerks", role="filler"),
    ),
    grants=(
        Grant(grantee="role:reader", effect="allow", privilege="READ", entity=Entity("mall", "m")),
        Grant(grantee="role:filler", effect="allow", privilege="WRITE", entity=Entity("shop", "m/s")),
        Grant(grantee="role:reader", effect="deny", privilege="READ", entity=Entity("shelf", "m/s/2")),
    ),
    owners=((Entity("shop", "m/s"), "user:cid"),),
)
SHELVES = ("shelf:m/s/1", "shelf:m/s/2")


@pytest.fixture(scope="module")
def program() -> Program:
    program, _ = generated_programs.read(SHOP)
    assert program is not None
    return program


def rows(
    program: Program,
    state: State,
    entities: Iterable[str],
    *,
    users: Collection[str] | None = None,
    principals: Collection[str] | None = None,
    question: Question | None = None,
) -> list[dict[str, Any]]:
    """The matrix without Spark."""
    policy = open_policy(program)
    source = open_state(policy, state)
    # As executors get it.
    opened = unpacked(packed(open_matrix(policy, source, question or Question(), users=users, principals=principals)))
    return [row for batch in opened.of(entities) for row in batch.to_pylist()]


def reasons_of(row: dict[str, Any]) -> list[dict[str, str]]:
    """What a row says it rests on, as the reference's reasons say it."""
    reasons = []
    for link in row["via"]:
        owned = link["kind"] == "owner" and not link["atom"].startswith("owner")
        if link["kind"] == "attribute":
            reasons.append({"atom": link["atom"], "through": "attribute"})
            continue
        on = {} if link["entity"] is None else {"on": link["entity"]}
        reasons.append({"atom": link["atom"], **on, "through": ("owner " if owned else "") + link["principal"]})
    return reasons


def unset_flags(program: Program) -> frozenset[str]:
    """Every flag of a policy, said not to be set."""
    return frozenset().union(*(worlds.stated_flags(rule, frozenset()) for rule in program.rules.values()))


def asked_of(program: Program, rnd: random.Random) -> list[str]:
    """Entities of every type, some named in full and some not, some of them nonsense."""
    found = {"nonsense", "top", "mid:", ":x", "low:x//x"}
    for type_ in program.entities:
        for _ in range(6):
            entity = worlds.entity(program, type_, rnd)
            above = entity.id.rpartition("/")[0]
            found |= {str(entity), f"{type_}:{above}", f"{type_}:{above}/"}
        if type_ in program.flat:
            container = worlds.entity(program, vocabulary(program).containers(type_)[0], rnd)
            found.add(f"{type_}:{container}/")
    return sorted(found)


def compare(seed: int, features: Sequence[str] | None = None) -> int:
    """Hold one world against the reference; how many requests there were."""
    features = features or (worlds.IN_SPARK if seed % 2 else ())
    program, rnd = generated_programs.program(seed, *features), random.Random(seed)
    state = worlds.state(program, seed)
    slots = {w.name: w.named for rule in program.rules.values() for w in rule.withs}
    withs = {n: worlds.entity(program, rnd.choice(types), rnd) for n, types in slots.items() if rnd.random() < 0.7}
    known = {f for s in open_policy(program).vocabulary.operations.values() for o in s.values() for f in o.flags}
    attributes = request_attributes(program, rnd, Entity("top", "-"), withs)
    question = Question(
        withs=withs,
        flags=frozenset(f if rnd.random() < 0.5 else f"{f}=false" for f in known),
        attributes=replace(attributes, user={}, entity={}),
    )
    entities = asked_of(program, rnd)
    reference = Reference(program, state)
    policy = open_policy(program)
    # What the matrix says that it leaves out: what lacks an object, or has more minimal sets than are listed.
    left_out = open_matrix(policy, open_state(policy, state), question, users=USERS).left_out()
    expected: dict[tuple[str, ...], Any] = {}
    count = 0
    for key in entities:
        type_, _, path = key.partition(":")
        for (of_type, operation), rule in program.rules.items():
            if of_type != type_ or f"{type_}/{operation}" in left_out:
                continue
            for user in USERS:
                objects = {w.name: withs[w.name] for w in rule.withs if w.name in withs}
                resource = Entity(type_, path)
                of_objects = {slot: values for slot, values in attributes.with_.items() if slot in objects}
                request = Request(
                    user=user,
                    action=operation,
                    resource=resource,
                    with_=objects,
                    flags=question.flags,
                    attributes=replace(question.attributes, with_=of_objects),
                )
                try:
                    decision = reference.decide(request)
                except InvalidRequest:
                    continue
                count += 1
                if decision.allowed:
                    expected[user, operation, type_, path] = decision.context["reasons"]
    found = {}
    for row in rows(program, state, entities, users=USERS, question=question):
        at = row["user"], row["operation"], row["type"], row["path"]
        assert at not in found, at
        found[at] = reasons_of(row)
        main = [link for link in row["via"] if link["principal"] == row["via_principal"]]
        assert main or row["via_kind"] == "anyone"
    assert found == expected, seed
    return count


@pytest.mark.slow
@pytest.mark.parametrize("worlds_", [range(16), pytest.param(range(16, 40), marks=pytest.mark.long)], ids=str)
def test_the_matrix_of_generated_worlds_is_the_references(worlds_: range) -> None:
    assert sum(compare(seed) for seed in worlds_) > 300 * len(worlds_)


@pytest.mark.slow
@pytest.mark.parametrize("worlds_", [range(16), pytest.param(range(16, 32), marks=pytest.mark.long)], ids=str)
def test_the_matrix_by_the_index_is_the_references(worlds_: range) -> None:
    assert sum(compare(seed, BY_INDEX[seed % len(BY_INDEX)]) for seed in worlds_) > 300 * len(worlds_)


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(4), marks=pytest.mark.slow), pytest.param(range(4, 16), marks=pytest.mark.long)],
    ids=str,
)
def test_what_is_worked_out_once_makes_the_same_matrix(monkeypatch: pytest.MonkeyPatch, seeds: range) -> None:
    for seed in seeds:
        features = BY_INDEX[seed % len(BY_INDEX)] if seed % 3 else worlds.IN_SPARK
        program, rnd = generated_programs.program(seed, *features), random.Random(seed)
        state, entities = worlds.state(program, seed), asked_of(program, rnd)
        for scope in ({"users": USERS}, {"principals": ["role:reader", "role:writer", "group:hr"]}):
            for ways in ("first", "all"):
                question = Question(flags=unset_flags(program), ways=ways)
                found = []
                for most in (evaluator.MOST_REMEMBERED, 0):
                    monkeypatch.setattr(evaluator, "MOST_REMEMBERED", most)
                    monkeypatch.setattr(matrix, "MOST_RUNS", most)
                    # Each entity by itself, or all of them, some of which have equal answers.
                    asked = [entities] if most else [[key] for key in entities]
                    parts = (rows(program, state, keys, question=question, **scope) for keys in asked)
                    found.append(sorted(repr(row) for part in parts for row in part))
                assert found[0] == found[1], seed


@pytest.mark.long
def test_the_matrix_of_many_worlds_is_the_references(search_seed: int) -> None:
    assert sum(compare(seed) for seed in range(search_seed, search_seed + 300)) > 50_000


@pytest.mark.long
def test_small_portions_make_the_same_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "BATCH", 3)
    monkeypatch.setattr(evaluator, "FEW", 0)
    assert sum(compare(seed) for seed in range(60, 80)) > 2_000


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(s, marks=pytest.mark.slow) for s in range(8, 25))])
def test_a_group_or_a_role_has_the_rights_of_a_user_with_nothing_else(seed: int) -> None:
    program, rnd = generated_programs.program(seed, *(worlds.IN_SPARK if seed % 2 else ())), random.Random(seed)
    state = worlds.state(program, seed)
    entities = [key for key in asked_of(program, rnd) if ":" in key]
    tops = tuple(worlds.entity(program, type_, rnd) for type_ in program.entities for _ in range(8))
    kinds = {name for name, kind in program.entities.items() if kind.principal == "group"}
    # Of what a probe belongs to, groups are those alone that it stands for.
    every = {e for e in tops if e.type not in kinds} | {
        Entity(t, k.partition(":")[2]) for k in entities for t in program.entities if t not in kinds
    }
    # What every user has is not the principal's.
    alone = replace(program, semantics=replace(program.semantics, everyone=None))
    for principal in ("role:reader", "role:writer", "group:hr"):
        kind, _, name = principal.partition(":")
        probe = replace(state, members=(*state.members, *(("probe", e) for e in every)))
        asking: tuple[str, ...] = ()
        if kind == "role":
            probe = replace(probe, assignments=(*state.assignments, Assignment(principal="user:probe", role=name)))
        elif "request" in program.semantics.groups:
            asking = (name,)
        else:
            probe = replace(probe, memberships=(*state.memberships, ("probe", name)))
        reference = Reference(alone, probe)
        expected = set()
        for key in entities:
            type_, _, path = key.partition(":")
            for (of_type, operation), rule in program.rules.items():
                if of_type == type_ and all("" in slot.types for slot in rule.withs):
                    resource = Entity(type_, path)
                    try:
                        stated = worlds.stated_flags(rule, frozenset())
                        request = Request(
                            user="probe", action=operation, resource=resource, groups=asking, flags=stated
                        )
                        if reference.decide(request).allowed:
                            expected.add((operation, key))
                    except InvalidRequest:
                        continue
        question = Question(flags=unset_flags(program))
        found = rows(program, state, entities, principals=[principal], question=question)
        assert {row["principal"] for row in found} <= {principal}
        assert {(row["operation"], f"{row['type']}:{row['path']}") for row in found} == expected


def test_the_most_important_way_is_listed_with_its_group(program: Program) -> None:
    found = {(r["user"], r["operation"], r["path"]): r for r in rows(program, STATE, SHELVES)}
    assert set(found) == {
        ("ann", "look", "m/s/1"),
        ("bob", "look", "m/s/1"),
        ("bob", "fill", "m/s/1"),
        ("cid", "fill", "m/s/1"),
        ("cid", "fill", "m/s/2"),
        ("bob", "make", "m/s/1"),
        ("bob", "make", "m/s/2"),
    }
    look = found["bob", "look", "m/s/1"]
    assert (look["via_kind"], look["via_principal"], look["via_entity"]) == ("grant", "role:reader", "mall:m")
    assert [link["group"] for link in look["via"] if link["kind"] == "grant"] == ["group:clerks"]
    assert found["ann", "look", "m/s/1"]["via"][-1]["group"] is None
    assert found["cid", "fill", "m/s/2"]["via_kind"] == "owner"


def test_the_listed_group_is_one_by_which_the_role_counts_there(program: Program) -> None:
    # Ann holds the role in person in one shop, by one group in another, and by a third everywhere.
    shops = ("m/s", "m/t", "m/u")
    state = replace(
        STATE,
        memberships=(("ann", "away"), ("ann", "night"), ("ann", "clerks")),
        assignments=(
            Assignment(principal="user:ann", role="filler", scope=Entity("shop", "m/s")),
            Assignment(principal="group:away", role="filler", scope=Entity("shop", "m/t")),
            Assignment(principal="group:night", role="filler"),
        ),
        grants=tuple(
            Grant(grantee="role:filler", effect="allow", privilege=privilege, entity=Entity("shop", path))
            for path in shops
            for privilege in ("READ", "WRITE")
        ),
    )
    found = rows(program, state, [f"shelf:{path}/1" for path in shops], users=["ann"])
    told_of = {row["path"]: row["via"][-1]["group"] for row in found if row["operation"] == "look"}
    assert told_of == {"m/s/1": None, "m/t/1": "group:away", "m/u/1": "group:night"}


def test_all_ways_are_a_row_each(program: Program) -> None:
    state = replace(STATE, owners=(*STATE.owners, (Entity("shop", "m/s"), "user:bob")))
    found = rows(program, state, SHELVES[:1], users=["bob"], question=Question(ways="all"))
    fill = [row["via_kind"] for row in found if row["operation"] == "fill"]
    assert sorted(fill) == ["grant", "owner"]
    assert [row["operation"] for row in found].count("look") == 1


def test_operations_for_anyone_are_entitlements_of_everyone(program: Program) -> None:
    found = rows(program, STATE, ["shop:m/new"])
    assert {(row["user"], row["operation"], row["via_kind"]) for row in found} == {
        (user, "open", "anyone") for user in ("ann", "bob", "cid")
    }
    assert all(row["via"] == [] and row["via_principal"] is None for row in found)


def test_a_role_needs_memberships_that_it_cannot_bring(program: Program) -> None:
    found = rows(program, STATE, SHELVES[:1], principals=["role:reader"])
    assert [(row["principal"], row["user"], row["operation"]) for row in found] == [("role:reader", None, "look")]
    assert [link["kind"] for link in found[0]["via"]] == ["needed", "grant"]


def test_operations_with_objects_take_the_one_that_is_given(program: Program) -> None:
    state = replace(
        STATE,
        grants=(
            *STATE.grants,
            Grant(grantee="user:ann", effect="allow", privilege="HIRE", entity=Entity("shop", "m/s")),
        ),
    )
    policy = open_policy(program)
    opened = open_matrix(policy, open_state(policy, state), Question())
    assert opened.left_out() == {"shop/hire": "needs an object `person` of type user"}
    question = Question(withs={"person": Entity("user", "m/s/ann")}, operations=frozenset({"shop/hire"}))
    assert [(r["user"], r["operation"]) for r in rows(program, state, ["shop:m/s"], question=question)] == [
        ("ann", "hire")
    ]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (Question(operations=frozenset({"lock"})), "unknown operation `lock`; did you mean `look`?"),
        (Question(flags=frozenset({"force"})), "no operation uses the flag `force`"),
        (Question(withs={"persona": Entity("user", "m/s/ann")}), "did you mean `person`?"),
        (Question(withs={"person": Entity("user", "m")}), "wrong depth"),
        (Question(ways="some"), "unknown ways `some`"),  # type: ignore[arg-type]
    ],
)
def test_a_question_of_unknown_names_is_refused(program: Program, question: Question, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        rows(program, STATE, (), question=question)


def test_principals_are_checked(program: Program, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a principal"):
        rows(program, STATE, (), principals=["rolle:x"])
    with pytest.raises(UsageError, match="give a list"):
        rows(program, STATE, (), users="ann")
    with pytest.raises(FileError, match="no such state"):
        open_state(open_policy(program), tmp_path / "none")


def test_a_wrong_row_that_may_deny_stops(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "state.yaml"
    file.write_text("grants:\n- {grantee: 'user:x', effect: deny, privilege: NONE, entity: 'mall:m'}\n")
    with pytest.raises(StateInvalid):
        open_state(open_policy(program), file)
    file.write_text("grants:\n- {grantee: 'user:x', effect: allow, privilege: NONE, entity: 'mall:m'}\n")
    assert open_state(open_policy(program), file).rows == State()


def test_a_state_bundle_has_the_same_matrix(program: Program, tmp_path: Path) -> None:
    from privtab.bundle import state_bundle

    file = tmp_path / "state.tar.gz"
    file.write_bytes(state_bundle(program, STATE))
    policy = open_policy(program)
    opened = open_matrix(policy, open_state(policy, file), Question(), users=("ann", "bob", "cid"))
    found = [row for batch in opened.of(SHELVES) for row in batch.to_pylist()]
    # By which group a role is held is nothing that a bundle says.
    expected = rows(program, STATE, SHELVES)
    for row in expected:
        row["via"] = [link | {"group": None} for link in row["via"]]
    assert found == expected
    with pytest.raises(UsageError, match="does not contain what `group:clerks` holds"):
        open_matrix(policy, open_state(policy, file), Question(), principals=["group:clerks"])


@pytest.mark.slow
def test_a_frame_has_the_same_rows(program: Program, spark: SparkSession) -> None:
    # Large enough for a file of the session: more shelves, each with a grant.
    many = tuple(
        Grant(grantee=f"user:u{n}", effect="allow", privilege="READ", entity=Entity("shelf", f"m/s/{n}"))
        for n in range(6000)
    )
    members = (*MEMBERS, *((f"u{n}", Entity("mall", "m")) for n in range(6000)))
    state = replace(STATE, grants=(*STATE.grants, *many), members=members)
    keys = [*(f"shelf:m/s/{n}" for n in range(6000)), None, "nonsense", "shelf:m/s/1"]
    entities = spark.createDataFrame([(key,) for key in keys], "entity string")
    frame = entitlements(program, state, entities, operations=["look"])
    found = {(row.user, row.path): row.via_kind for row in frame.select("user", "path", "via_kind").collect()}
    expected = {(f"u{n}", f"m/s/{n}"): "grant" for n in range(6000)}
    # All but the one shelf on which readers are denied.
    expected |= {(user, f"m/s/{n}"): "grant" for user in ("ann", "bob") for n in range(6000) if n != 2}
    assert found == expected
    assert frame.count() == len(expected)


@pytest.mark.slow
def test_entities_come_as_they_please(program: Program, spark: SparkSession) -> None:
    frame = spark.createDataFrame([("shelf", "m/s/1"), ("shelf", None), (None, "m/s/1")], "type string, path string")
    users = spark.createDataFrame([("ann",), (None,), ("ann",)], "name string")
    for entities in (frame, ["shelf:m/s/1"], [Entity("shelf", "m/s/1")]):
        found = entitlements(program, STATE, entities, users=users, spark=spark).collect()
        assert [(row.user, row.operation) for row in found] == [("ann", "look")]
    tables = state_tables(spark, program, STATE)
    assert len(entitlements(program, tables, ["shelf:m/s/1"], users=["bob"], spark=spark).collect()) == 3
    everything = entitlements(program, STATE, spark=spark, operations=["look", "open"])
    assert {(row.type, row.path) for row in everything.collect()} == {("shop", "m/s")}
    with pytest.raises(UsageError, match="no column `entity`"):
        entitlements(program, STATE, users)
