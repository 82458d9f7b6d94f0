"""The shortcuts of the Python engine answer as the reference, or leave the answer to the engine, in generated worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import worlds
from seeds import seeds

from privtab.base.attributes import GivenAttributes
from privtab.base.source import SourceFile
from privtab.engines.index import Index
from privtab.engines.python import LazyShortcuts, PythonEngine
from privtab.pipeline import policy_artifacts, program_of
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document

NOBODY = ("", "*", "?", "%", "group:hr", "user:ann", "ann\n", 5, None)
"""What is no name of a user."""


@pytest.mark.parametrize(
    "features", [(), ("hierarchy", "implies", "any"), ("attributes",), ("active", "below")], ids=str
)
@pytest.mark.parametrize("seed", seeds(range(400, 440), quick=8))
def test_a_shortcut_answers_as_the_reference(seed: int, features: tuple[str, ...]) -> None:
    program = program_of(SourceFile(path="world.yaml", text=worlds.policy(seed, f"world{seed}", features)))
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


def test_a_shortcut_of_each_kind_was_compared() -> None:
    """Worlds with and without a group of every user have conditions that shortcuts decide."""
    decided = set()
    for seed in range(400, 408):
        program = program_of(SourceFile(path="world.yaml", text=worlds.policy(seed, f"world{seed}")))
        state = worlds.state(program, seed)
        shortcuts = LazyShortcuts(
            PythonEngine(policy_artifacts(program).program, Index(index_document(program, state)))
        )
        for request in worlds.requests(program, seed, per_rule=6):
            answer = shortcuts[request.resource.type, request.action](request.user, request.resource.id)
            decided.add((program.semantics.everyone is not None, answer))
    assert decided == {(everyone, answer) for everyone in (False, True) for answer in (None, False, True)}
