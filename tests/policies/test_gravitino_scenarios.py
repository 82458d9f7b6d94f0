"""The scenarios of the Gravitino policy beside what it says itself; and its sample state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from checkout import ROOT

from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.pipeline import load_program
from privtab.state.load import load_raw_state, validate

FOLDER = ROOT / "policy_src" / "gravitino"


@pytest.fixture(scope="module")
def scenarios() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((FOLDER / "1.1.0.scenarios.yaml").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(FOLDER / "1.1.0.yaml")


def test_effects_are_those_of_the_policy(program: Program, scenarios: Mapping[str, Any]) -> None:
    """Ownership and membership in `then` of a creation are the effects of its rule."""
    for walkthrough in scenarios["walkthroughs"]:
        for step in walkthrough["steps"]:
            if step["decision"] == "deny":
                continue
            entity = Entity.parse(step["resource"])
            gained = {e.what for e in program.rules[entity.type, step["action"]].effects if e.kind == "become"}
            then = step.get("then", {}) if gained else {}
            owned = {"entity": str(entity), "owner": f"user:{step['user']}"} in then.get("owners", [])
            joined = {"user": step["user"], "of": str(entity)} in then.get("members", [])
            assert gained == {what for what, is_gained in (("owner", owned), ("member", joined)) if is_gained}, step[
                "say"
            ]


def test_names_are_unique(scenarios: Mapping[str, Any]) -> None:
    names = [case["name"] for case in scenarios["cases"]]
    assert len(names) == len(set(names))


def test_the_deprecated_names_are_reported(program: Program) -> None:
    _, findings = validate(program, load_raw_state(FOLDER / "state.yaml"))
    assert {f.severity for f in findings} <= {"warning"}
