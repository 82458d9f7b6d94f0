"""A shortcut answers as the engine does, or not at all."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import worlds

from privtab import pipeline
from privtab.engines.index import Index
from privtab.engines.python import LazyShortcuts, PythonEngine
from privtab.errors import InvalidRequest
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.request import Entity, Request
from privtab.state.index import index
from privtab.vocabulary import Vocabulary


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_quick_answers_are_the_references(seed: int, tmp_path: Path) -> None:
    answered = total = 0
    for number in range(seed * 1000, seed * 1000 + 20):
        policy = tmp_path / f"{number}.yaml"
        policy.write_text(worlds.policy(number), encoding="utf-8")
        program = pipeline.load_program(policy)
        document = policy_artifacts(program).program
        state = worlds.state(program, number)
        reference = Reference(program, state)
        ways = LazyShortcuts(PythonEngine(document, Index(index(program, state))))
        for request in worlds.requests(program, number, 12):
            if request.with_ or request.flags or request.groups:
                continue
            answer = ways[request.resource.type, request.action](request.user, request.resource.id)
            total += 1
            answered += answer is not None
            assert answer in (None, reference.decide(request).allowed), (policy.read_text(), request)
    assert answered > total / 10


def test_invalid_requests_have_no_quick_answer(tmp_path: Path) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "privtab: 1\nsystem: s\nversion: '1'\nentities: {a: {b: {c:}}}\nprivileges: [P]\n"
        "semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}\n"
        "tables: {c: {simple: P (c), other: P (c) or owner (a)}}\n"
    )
    program = pipeline.load_program(policy)
    document = policy_artifacts(program).program
    ways = LazyShortcuts(PythonEngine(document, Index(index(program, worlds.state(program, 1)))))
    vocabulary = Vocabulary.from_program(document)
    chance = random.Random(3)
    refused = 0
    for _ in range(5000):
        path = "".join(chance.choice("aaaa///%25é") for _ in range(chance.randint(0, 7)))
        for operation in ("simple", "other"):
            answer = ways["c", operation]("ann", path)
            try:
                vocabulary.check(Request(user="ann", action=operation, resource=Entity("c", path)))
            except InvalidRequest:
                refused += 1
                assert answer is None, path
    assert 1000 < refused < 9990
    for operation in ("simple", "other"):
        assert ways["c", operation]("nobody", "x/y/z") is False
        assert ways["c", operation]("", "x/y/z") is None
        assert ways["c", operation](None, "x/y/z") is None  # type: ignore[arg-type]
        assert ways["c", operation]("\ud800", "x/y/z") is None
    assert ways["c", "fly"]("ann", "x/y/z") is None
