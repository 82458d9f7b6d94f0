"""Ask engines and tools about a policy with the toy atom: a process of `test_toy_atom.py`, in a copy of the tree with `toy_atom.patch`."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privtab.base.errors import UnsupportedError
from privtab.base.request import Entity, Request
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.serialise import vocabulary
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Grant, State
from privtab_analysis.explanation import explain
from privtab_analysis.principals import who_can
from privtab_testing.scenarios.callers import CallerSemantics

POLICY = """privtab: 1
system: toy
version: "1"
semantics: {inheritance: down, deny: none, owner: none, groups: state}
entities: {lake: {table: }}
privileges: {READ: {on: [lake, table]}}
tables:
  table:
    both: READ (table) and in group finance
    either: READ (lake) or in group sales
    alone: in group finance
"""
USERS, GROUPS, TABLES = ("ann", "ben", "cleo"), ("finance", "sales"), ("table:l/a", "table:l/b")


def refused(ask: Callable[[], Any]) -> Any:
    """The answer, or None for a refusal that names the atom."""
    try:
        return ask()
    except UnsupportedError as error:
        if "in group" not in str(error):
            raise
        return None


def main(seed: int) -> None:
    rnd = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "toy.yaml"
        path.write_text(POLICY, encoding="utf-8")
        program = load_program(path)
    document = policy_artifacts(program).program
    entities = [Entity.parse(key) for key in (*TABLES, "lake:l")]
    for _ in range(30):
        grants = [
            Grant(grantee=f"user:{user}", effect="allow", privilege="READ", entity=rnd.choice(entities))
            for user in USERS
            if rnd.random() < 0.5
        ]
        members = [(user, group) for user in USERS for group in GROUPS if rnd.random() < 0.4]
        state = State(grants=tuple(grants), memberships=tuple(members))
        reference, engine = Reference(program, state), PythonEngine(document, Index(index_document(program, state)))
        asked = [
            Request(user=user, action=operation, resource=Entity.parse(key))
            for user in USERS
            for _, operation in program.rules
            for key in TABLES
        ]
        decisions = [reference.decide(request) for request in asked]
        assert [engine.allow(request) for request in asked] == [one.allowed for one in decisions]
        assert engine.batches().allow_requests(asked) == [one.allowed for one in decisions]
        for request, decision in zip(asked, decisions, strict=True):
            assert dict(engine.decide(request).context, revision="") == dict(decision.context, revision="")
            found = refused(lambda: who_can(reference, state, request))  # noqa: B023  called at once
            if found is not None:
                assert (request.user in found.users) is decision.allowed
                named = {one.principal for one in found.principals()}
                expected = {"alone": {"group:finance"}, "either": {"group:sales"}, "both": set()}[request.action]
                held = {group for _, group in members}
                assert {name for name in named if name.startswith("group:")} == {g for g in expected if g[6:] in held}
            found = refused(lambda: explain(reference, request, state))  # noqa: B023  called at once
            assert found is None or found.turns or decision.allowed, "nothing would allow it"
    semantics = CallerSemantics(program, vocabulary(program).keys)
    listed = refused(lambda: list(semantics.everything(TABLES, entities[0])))
    assert listed is None or {"InGroup"} <= {type(right).__name__ for right in listed}


if __name__ == "__main__":
    main(int(sys.argv[1]))
