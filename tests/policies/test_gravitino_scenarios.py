"""The scenarios of the Gravitino policy, step by step, against the reference meaning; and its sample state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from privtab.ir.evaluate import evaluate
from privtab.ir.nodes import Program
from privtab.pipeline import load_program
from privtab.request import Entity, Request
from privtab.state.load import load
from privtab.state.nodes import State
from privtab.state.validate import validate

FOLDER = Path(__file__).parents[2] / "policy_src" / "gravitino"
SCENARIOS: Mapping[str, Any] = yaml.safe_load((FOLDER / "1.1.0.scenarios.yaml").read_text(encoding="utf-8"))
Tables = dict[str, list[dict[str, str]]]


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(FOLDER / "1.1.0.yaml")


@pytest.fixture(scope="module")
def sample(program: Program) -> State:
    state, findings = validate(program, load(FOLDER / SCENARIOS["state"]))
    assert [f for f in findings if f.severity == "error"] == []
    return state


def request(case: Mapping[str, Any]) -> Request:
    """The request of a case or a step."""
    return Request(
        user=case["user"],
        action=case["action"],
        resource=Entity.parse(case["resource"]),
        with_={name: Entity.parse(text) for name, text in case.get("with", {}).items()},
        flags=frozenset(case.get("flags", ())),
    )


@pytest.mark.parametrize("case", SCENARIOS["cases"], ids=lambda c: c["name"])
def test_case(program: Program, sample: State, case: Mapping[str, Any]) -> None:
    decision = evaluate(program, sample, request(case))
    assert decision.allowed is (case["decision"] == "allow"), (case["why"], decision.context)


@pytest.mark.parametrize("walkthrough", SCENARIOS["walkthroughs"], ids=lambda w: w["name"])
def test_walkthrough(program: Program, tmp_path: Path, walkthrough: Mapping[str, Any]) -> None:
    tables: Tables = yaml.safe_load((FOLDER / SCENARIOS["state"]).read_text(encoding="utf-8"))
    for number, step in enumerate(walkthrough["steps"]):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(tables), encoding="utf-8")
        state, findings = validate(program, load(path))
        assert [f for f in findings if f.severity == "error"] == []
        decision = evaluate(program, state, request(step))
        assert decision.allowed is (step["decision"] == "allow"), (step["say"], decision.context)
        for table, rows in step.get("gone", {}).items():
            for row in rows:
                tables[table].remove(row)
        for table, rows in step.get("then", {}).items():
            tables[table] += rows


def test_what_success_brings_is_what_the_policy_says(program: Program) -> None:
    """Ownership and membership in `then` of a creation are the effects of its rule."""
    for walkthrough in SCENARIOS["walkthroughs"]:
        for step in walkthrough["steps"]:
            entity = Entity.parse(step["resource"])
            rule = program.rules[entity.type, step["action"]]
            then = step.get("then", {})
            if step["decision"] == "allow" and rule.effects:
                owned = (
                    {"owner"} if {"entity": str(entity), "owner": f"user:{step['user']}"} in then["owners"] else set()
                )
                joined = {"member"} if {"user": step["user"], "of": str(entity)} in then.get("members", []) else set()
                assert owned | joined == {e.what for e in rule.effects}, step["say"]


def test_names_are_unique() -> None:
    names = [case["name"] for case in SCENARIOS["cases"]]
    assert len(names) == len(set(names))


def test_every_row_is_allowed_and_refused(program: Program) -> None:
    """Each row of its own both ways for its type; each row under `any` both ways for some type."""
    asked: dict[tuple[str, str], set[str]] = {}
    anywhere: dict[str, set[str]] = {}
    steps = [step for walkthrough in SCENARIOS["walkthroughs"] for step in walkthrough["steps"]]
    for case in [*SCENARIOS["cases"], *steps]:
        asked.setdefault((Entity.parse(case["resource"]).type, case["action"]), set()).add(case["decision"])
        anywhere.setdefault(case["action"], set()).add(case["decision"])
    both = {"allow", "deny"}
    own = {key for key, rule in program.rules.items() if rule.origin == "row"}
    shared = {operation for (_, operation), rule in program.rules.items() if rule.origin == "any"}
    assert {key for key in own if asked.get(key) != both} == set()
    assert {operation for operation in shared if anywhere.get(operation) != both} == set()


def test_the_deprecated_names_are_reported(program: Program) -> None:
    _, findings = validate(program, load(FOLDER / "state.yaml"))
    assert {f.severity for f in findings} <= {"warning"}
