"""Columns against asking one by one, on random worlds and on rows that are no requests."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import worlds

from privtab import pipeline
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.base.vocabulary import Vocabulary
from privtab.engines import arrays, kernel, lookups
from privtab.engines.batches import Batches
from privtab.engines.index import Index
from privtab.engines.python import MANY, PythonEngine
from privtab.pipeline import policy_artifacts
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate

SHOP = """
privtab: 1
system: shop
version: '1'
entities:
  shop:
    shelf: {box:}
privileges: [LOOK, TAKE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  box:
    look: LOOK (box)
    list: {each: LOOK (box)}
    move: {with: {target: [shelf, shop]}, requires: TAKE (box) and LOOK (target)}
    take: {requires: "TAKE (box) and (owner (shelf) when careful)"}
"""
ROWS = {
    "grants": [
        {"grantee": "user:ann", "effect": "allow", "privilege": "LOOK", "entity": "shop:s"},
        {"grantee": "user:ann", "effect": "deny", "privilege": "LOOK", "entity": "box:s/a/2"},
        {"grantee": "user:bob", "effect": "allow", "privilege": "TAKE", "entity": "shelf:s/a"},
        {"grantee": "user:bob", "effect": "allow", "privilege": "LOOK", "entity": "shelf:s/b"},
        {"grantee": "user:cy", "effect": "allow", "privilege": "LOOK", "entity": "box:s/100%25/a%2Fb"},
    ],
    "owners": [{"entity": "shelf:s/b", "owner": "user:bob"}],
}


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    """A small policy with its state."""
    policy = tmp_path / "shop.yaml"
    policy.write_text(SHOP, encoding="utf-8")
    program = pipeline.load_program(policy)
    state, findings = validate(program, from_tables(ROWS, "rows"))
    assert not findings
    return Batches(PythonEngine(policy_artifacts(program).program, Index(index_document(program, state))))


def differences(
    seed: int,
    folder: Path,
    *,
    policies: int,
    states: int,
    per_rule: int,
    batches: Callable[[PythonEngine], Batches] = Batches,
    features: tuple[str, ...] = worlds.FEATURES,
) -> tuple[int, int, list[str]]:
    """How many requests, how many allowed, and every difference between columns and asking one by one."""
    total = allowed = 0
    found: list[str] = []
    for number in range(seed * 1000, seed * 1000 + policies):
        policy = folder / f"{number}.yaml"
        policy.write_text(worlds.policy(number, features=features if number % 2 else ()), encoding="utf-8")
        program = pipeline.load_program(policy)
        document = policy_artifacts(program).program
        for turn in range(number * 100, number * 100 + states):
            state = worlds.state(program, turn)
            engine = PythonEngine(document, Index(index_document(program, state)))
            requests = worlds.requests(program, turn, per_rule)
            expected = [engine.allow(request) for request in requests]
            decided = batches(engine).allow_requests(requests)
            total += len(requests)
            allowed += sum(expected)
            for at, request in enumerate(requests):
                if decided is None or decided[at] != expected[at]:
                    message = "nothing" if decided is None else decided[at]
                    found.append(f"{json.dumps(request.to_json())}: {message}\n{policy.read_text()}\n{state}")
    return total, allowed, found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_columns_answer_as_one_by_one(seed: int, tmp_path: Path) -> None:
    total, allowed, found = differences(seed, tmp_path, policies=10, states=4, per_rule=8)
    assert not found, found[0]
    assert total > 4000
    assert allowed > total / 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_long_columns_answer_as_one_by_one(seed: int, search_seed: int, tmp_path: Path) -> None:
    _, _, found = differences(search_seed + seed, tmp_path, policies=25, states=8, per_rule=12)
    assert not found, found[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_requests_that_columns_cannot_express_are_decided_one_by_one(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only conditions that are not for columns ask for more privileges than fit a word: here more than none."""
    monkeypatch.setattr(kernel, "MOST_PRIVILEGES", 0)
    _, _, found = differences(seed, tmp_path, policies=6, states=3, per_rule=6)
    assert not found, found[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_users_with_many_principals_are_answered_from_the_other_side(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here everybody has many, and rows are spread in small parts."""
    monkeypatch.setattr(arrays, "HEAVY", 0)
    monkeypatch.setattr(kernel, "HEAVY", 0)
    monkeypatch.setattr(kernel, "MOST_SPREAD", 3)
    _, _, found = differences(seed, tmp_path, policies=8, states=4, per_rule=8)
    assert not found, found[0]


@pytest.mark.slow
def test_rows_of_which_hardly_any_repeat_are_not_made_distinct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here more than four rows are taken for such, whatever repeats in them."""
    monkeypatch.setattr(lookups, "SAMPLE", 1)
    total, allowed, found = differences(2, tmp_path, policies=4, states=4, per_rule=8)
    assert not found, found[0]
    assert total > allowed > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_arrays_or_the_index_are_all_that_an_executor_needs(seed: int, tmp_path: Path) -> None:
    """Packed, sent, and asked in columns and one by one: the index is made again from arrays, unless it has what they lack."""

    def sent(engine: PythonEngine) -> Batches:
        copy = pickle.loads(pickle.dumps(Batches(engine)))  # noqa: S301  (our own)
        assert isinstance(copy, Batches)
        return copy

    total, allowed, found = differences(seed, tmp_path, policies=8, states=4, per_rule=8, batches=sent)
    assert not found, found[0]
    assert total > allowed > 0


def test_a_condition_for_columns_may_require_31_privileges(tmp_path: Path) -> None:
    for count, fits in ((31, True), (32, False)):
        names = [f"P{number}" for number in range(count)]
        policy = tmp_path / f"{count}.yaml"
        requires = " or ".join(f"{name} (thing)" for name in names)
        policy.write_text(
            f"privtab: 1\nsystem: many\nversion: '1'\nentities: {{thing:}}\nprivileges: [{', '.join(names)}]\n"
            f"tables: {{thing: {{use: '{requires}'}}}}\n"
        )
        program = pipeline.load_program(policy)
        rows = [{"grantee": "user:ann", "effect": "allow", "privilege": names[-1], "entity": "thing:t"}]
        state, _ = validate(program, from_tables({"grants": rows}, "rows"))
        engine = PythonEngine(policy_artifacts(program).program, Index(index_document(program, state)))
        assert kernel.in_columns(engine.plan_of("thing", "use", frozenset(), {}, named=True)) is fits
        answers = Batches(engine).decide_columns(["ann", "bob"], ["t", "t"], action="use", type="thing")
        assert answers.allowed.tolist() == [True, False]


def test_flags_and_groups_may_be_columns(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "privtab: 1\nsystem: g\nversion: '1'\nentities: {thing:}\nprivileges: [USE, PUSH]\n"
        "semantics: {groups: [state, request], deny: overrides}\n"
        "tables: {thing: {use: USE (thing) and (PUSH (thing) when force)}}\n"
    )
    program = pipeline.load_program(policy)
    rows = [
        {"grantee": "group:hr", "effect": "allow", "privilege": "USE", "entity": "thing:t"},
        {"grantee": "group:hr", "effect": "allow", "privilege": "PUSH", "entity": "thing:t"},
        {"grantee": "user:ann", "effect": "allow", "privilege": "USE", "entity": "thing:t"},
        {"grantee": "group:it", "effect": "deny", "privilege": "USE", "entity": "thing:t"},
    ]
    state, _ = validate(program, from_tables({"grants": rows}, "rows"))
    engine = PythonEngine(policy_artifacts(program).program, Index(index_document(program, state)))
    groups = pa.array([[], ["hr"], ["hr", "it"], None, ["hr", None], [], ["hr"], ["other"]])
    force = [False, True, False, False, False, True, None, None]
    for asking in (Batches(engine), pickle.loads(pickle.dumps(Batches(engine)))):  # noqa: S301  (our own)
        answers = asking.decide_columns(
            ["ann"] * 8, ["t"] * 8, action="use", type="thing", flags={"force": force}, groups=groups
        )
        assert answers.allowed.tolist() == [True, True, False, False, False, False, True, False]
        assert [answers.reason(row) for row in (3, 4)] == ["null", "null"]


def test_requests_with_groups_are_decided_one_by_one(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "privtab: 1\nsystem: g\nversion: '1'\nentities: {thing:}\nprivileges: [USE]\n"
        "semantics: {groups: [state, request]}\ntables: {thing: {use: USE (thing)}}\n"
    )
    program = pipeline.load_program(policy)
    rows = [{"grantee": "group:hr", "effect": "allow", "privilege": "USE", "entity": "thing:t"}]
    state, _ = validate(program, from_tables({"grants": rows}, "rows"))
    batches = Batches(PythonEngine(policy_artifacts(program).program, Index(index_document(program, state))))
    plain = Request(user="ann", action="use", resource=Entity("thing", "t"))
    assert batches.allow_requests([plain, replace(plain, groups=("hr",)), replace(plain, groups=("it",))]) == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": b"ann"},
        {"resource": Entity("box", b"s/a/1")},  # type: ignore[arg-type]
        {"flags": "careful"},
        {"flags": ["careful"]},
        {"groups": "hr"},
        {"groups": (None,)},
        {"with_": [("target", Entity("shelf", "s/b"))]},
        {"with_": {"target": None}},
        {"with_": {1: Entity("shelf", "s/b")}},
    ],
    ids=repr,
)
def test_invalid_requests_are_never_answered_in_columns(wrong: dict[str, Any], batches: Batches) -> None:
    """Asked one by one it is refused, and so it is among many."""
    good = Request(user="ann", action="look", resource=Entity("box", "s/a/1"))
    assert batches.allow_requests([good] * 3) == [True] * 3
    assert batches.allow_requests([good, replace(good, **wrong), good]) is None
    assert batches.allow_requests([replace(good, **wrong)]) is None


def test_rows_that_are_no_requests_are_denied_with_the_reason(batches: Batches) -> None:
    users = pa.array(["ann", None, "ann", "", "ann", "ann", "ann", "ann", "cy", "cy", "cy"])
    boxes = ["s/a/1", "s/a/1", None, "s/a/1", "s//1", "s/a", "s/a/1/x", "s/a/2", "s/100%25/a%2Fb", "s/100%/a"]
    boxes.append("s/100%25/%%2F25")
    answers = batches.decide_columns(users, boxes, action="look", type="box")
    assert answers.allowed.tolist() == [True, *[False] * 7, True, False, False]
    assert [answers.reason(row) for row in range(len(boxes))] == [
        None,
        "null",
        "null",
        "null",
        "malformed path",
        "wrong depth",
        "wrong depth",
        None,
        None,
        "malformed path",
        "malformed path",
    ]


def test_action_and_type_may_be_columns(batches: Batches) -> None:
    answers = batches.decide_columns(
        np.array(["ann"] * 5, dtype=object),
        ["s/a/1"] * 5,
        action=["look", "fly", None, "look", "list"],
        type=pa.array(["box", "box", "box", "cup", "box"]).dictionary_encode(),
    )
    assert answers.allowed.tolist() == [True, False, False, False, True]
    assert [answers.reason(row) for row in range(5)] == [None, "unknown operation", "null", "unknown operation", None]


def test_with_objects_are_columns_too(batches: Batches) -> None:
    answers = batches.decide_columns(
        ["bob"] * 4,
        ["s/a/1"] * 4,
        action="move",
        type="box",
        with_={"target": (["shelf", "shelf", "shop", "box"], ["s/b", "s/a", "s", "s/b/1"])},
    )
    assert answers.allowed.tolist() == [True, False, False, False]
    assert answers.reason(3) == "not of a type that the operation takes"
    assert batches.decide_columns(["bob"], ["s/a/1"], action="move", type="box").reasons.tolist() == [5]


def test_flags_hold_for_all_rows(batches: Batches) -> None:
    def ask(*flags: str) -> list[bool]:
        answers = batches.decide_columns(["bob", "bob"], ["s/a/1", "s/b/1"], action="take", type="box", flags=flags)
        return list(answers.allowed.tolist())

    assert ask() == [True, False]
    assert ask("careful") == [False, False]


def test_a_listing_is_decided_without_the_last_name(batches: Batches) -> None:
    answers = batches.decide_columns(["ann", "bob", "bob"], ["s/a", "s/a", "s/a/1"], action="list", type="box")
    assert answers.allowed.tolist() == [True, True, False]
    assert not answers.reasons.any()


def test_no_rows_no_answers(batches: Batches) -> None:
    assert batches.decide_columns([], [], action="look", type="box").allowed.tolist() == []
    assert batches.allow_requests([]) == []


def test_columns_must_be_equally_long(batches: Batches) -> None:
    with pytest.raises(ValueError, match="equally long"):
        batches.decide_columns(["ann"], ["s/a/1", "s/a/2"], action="look", type="box")
    with pytest.raises(ValueError, match="equally long"):
        batches.decide_columns(["ann"], ["s/a/1"], action=["look", "look"], type="box")


def test_columns_come_in_chunks_as_well(batches: Batches) -> None:
    users = pa.chunked_array([["ann"], ["bob", "ann"]])
    answers = batches.decide_columns(users, ["s/a/1", "s/a/1", "s/a/2"], action="look", type="box")
    assert answers.allowed.tolist() == [True, False, False]


def test_an_executor_gets_the_state_along(batches: Batches) -> None:
    copy = pickle.loads(pickle.dumps(batches))  # noqa: S301  (our own)
    assert copy.decide_columns(["ann"], ["s/a/1"], action="look", type="box").allowed.tolist() == [True]


WRONG: list[Callable[[Request], object]] = [
    lambda request: replace(request, action="fly"),
    lambda request: replace(request, resource=Entity("cup", "s")),
    lambda request: replace(request, resource=Entity("box", "s/a")),
    lambda request: replace(request, resource=Entity("box", "s//1")),
    lambda request: replace(request, resource=Entity("box", "s/a/100%")),
    lambda request: replace(request, user=""),
    lambda request: replace(request, user=None),  # type: ignore[arg-type]
    lambda request: replace(request, user="\ud800"),
    lambda request: replace(request, action="move"),
    lambda request: request.to_json(),
]


@pytest.mark.parametrize("spoil", WRONG)
def test_one_wrong_request_sends_all_of_them_the_long_way(batches: Batches, spoil: Callable[[Request], object]) -> None:
    requests: list[Request] = [Request(user="ann", action="look", resource=Entity("box", "s/a/1"))] * MANY
    assert batches.allow_requests(requests) == [True] * MANY
    requests[random.Random(1).randrange(MANY)] = spoil(requests[0])  # type: ignore[call-overload]
    assert batches.allow_requests(requests) is None


def test_columns_refuse_what_the_vocabulary_refuses(batches: Batches) -> None:
    """Every path that is well formed here is so for a request alone, and the other way round."""
    vocabulary = Vocabulary.from_program(batches.engine.program)
    chance = random.Random(7)
    paths = [
        "".join(
            chance.choice(["a", "/", "%", "2", "5", "F", "é", "*", "?", "%2A", "%3F"])
            for _ in range(chance.randint(0, 9))
        )
        for _ in range(3000)
    ]
    answers = batches.decide_columns(["ann"] * len(paths), paths, action="list", type="box")

    def refused(path: str) -> bool:
        try:
            vocabulary.check(Request(user="ann", action="list", resource=Entity("box", path)))
        except InvalidRequest:
            return True
        return False

    expected = [refused(path) for path in paths]
    assert (answers.reasons != 0).tolist() == expected
    assert 0 < sum(expected) < len(paths)
