"""The shortcuts of the Python engine answer as the reference, or leave the answer to the engine, in generated worlds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import worlds
from seeds import seeds

from privtab import Embedded, InvalidRequest
from privtab.base.attributes import GivenAttributes
from privtab.base.source import SourceFile
from privtab.bundle.pack import state_bundle
from privtab.engines.index import Index
from privtab.engines.python import LazyShortcuts, PythonEngine
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document

NOBODY = ("", "*", "?", "%", "group:hr", "user:ann", "ann\n", 5, None)
"""What is no name of a user."""


@pytest.mark.parametrize(
    "features", [(), ("hierarchy", "implies", "any", "nobody"), ("attributes",), ("active", "below")], ids=str
)
@pytest.mark.parametrize("seed", seeds(range(400, 440), quick=3))
def test_a_shortcut_answers_as_the_reference(seed: int, features: tuple[str, ...]) -> None:
    program = load_program(SourceFile(path="world.yaml", text=worlds.policy(seed, f"world{seed}", features)))
    state = worlds.state(program, seed)
    engine = PythonEngine(policy_artifacts(program).program, Index(index_document(program, state)))
    reference, shortcuts = Reference(program, state), LazyShortcuts(engine)
    for request in worlds.requests(program, seed, per_rule=6):
        answer = shortcuts[request.resource.type, request.action](request.user, request.resource.id)
        if answer is not None:
            plain = replace(
                request, groups=(), flags=frozenset(), with_={}, active_roles=None, attributes=GivenAttributes.NONE
            )
            assert answer == reference.decide(plain).allowed, plain
        for name in NOBODY:
            assert not shortcuts[request.resource.type, request.action](name, request.resource.id), (name, request)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", seeds(range(440, 460), quick=4))
def test_requests_and_small_batches_take_shortcuts_and_answer_as_the_reference(seed: int, tmp_path: Path) -> None:
    program = load_program(SourceFile(path="world.yaml", text=worlds.policy(seed, f"world{seed}")))
    state = worlds.state(program, seed)
    for name, bundle in (("policy", policy_artifacts(program).bundle()), ("state", state_bundle(program, state))):
        (tmp_path / f"{name}.tar.gz").write_bytes(bundle)
    client = Embedded(tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz")
    asked = worlds.requests(program, seed, per_rule=6)
    expected = [decision.allowed for decision in map(Reference(program, state).decide, asked)]
    assert list(map(client.check, asked)) == expected
    plain = [number for number, request in enumerate(asked) if request.plain]
    assert client.check_many([asked[number] for number in plain]) == [expected[number] for number in plain]
    lookalike = SimpleNamespace(user="ann", action=asked[0].action, resource=asked[0].resource, plain=True)
    with pytest.raises(InvalidRequest, match="is not a Request"):
        client.check_many([lookalike])  # type: ignore[list-item]
    for start in range(0, len(asked), 7):  # plain ones beside others
        assert client.check_many(asked[start : start + 7]) == expected[start : start + 7]


def test_a_shortcut_of_each_kind_was_compared() -> None:
    """Worlds with and without a group of every user have conditions that shortcuts decide."""
    decided = set()
    for seed in range(400, 408):
        program = load_program(SourceFile(path="world.yaml", text=worlds.policy(seed, f"world{seed}")))
        state = worlds.state(program, seed)
        shortcuts = LazyShortcuts(
            PythonEngine(policy_artifacts(program).program, Index(index_document(program, state)))
        )
        for request in worlds.requests(program, seed, per_rule=6):
            answer = shortcuts[request.resource.type, request.action](request.user, request.resource.id)
            decided.add((program.semantics.everyone is not None, answer))
    assert decided == {(everyone, answer) for everyone in (False, True) for answer in (None, False, True)}
