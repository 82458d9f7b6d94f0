"""Every command asks for a flag that is required, and shows that it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import required_flag_policy

NEEDS = "needs the flag `pii`"


@pytest.fixture
def clinic(tmp_path: Path) -> list[str]:
    policy, state = required_flag_policy.files(tmp_path)
    return ["-p", policy, "-s", state]


@pytest.mark.parametrize(
    "ask", [["explain", "ann", "read", "file:w/1"], ["who-can", "read", "file:w/1"], ["what-can", "ann"]]
)
def test_questions_require_the_flag(privtab: Callable[..., Any], clinic: list[str], ask: list[str]) -> None:
    forgot = privtab(*ask, *clinic)
    assert forgot.code == 2, forgot.out
    assert NEEDS in forgot.err
    answered = privtab(*ask, "--with", "pii=false", *clinic)
    assert answered.code == 0, answered.err
    assert "pii" in privtab(*ask, "--with", "pii", *clinic).out or ask[0] == "what-can"
    assert "no row uses a flag `ppi`" in privtab(*ask, "--with", "ppi=false", *clinic).err


@pytest.mark.parametrize(
    "ask", [["file:w/1", "--gain", "can read"], ["file:w/1", "--gain", "READ"], ["--steps", "any"]]
)
def test_paths_require_the_flag(privtab: Callable[..., Any], clinic: list[str], ask: list[str]) -> None:
    forgot = privtab("what-can", "ann", *ask, *clinic)
    assert forgot.code == 2, forgot.out
    assert NEEDS in forgot.err
    assert privtab("what-can", "ann", *ask, "--with", "pii=false", *clinic).code == 0


def test_paths_go_by_the_flag(privtab: Callable[..., Any], clinic: list[str]) -> None:
    output = {
        flag: privtab("what-can", "ann", "file:w/1", "--gain", "can read", "--with", flag, *clinic).out
        for flag in ("pii=false", "pii")
    }
    assert output["pii=false"].startswith("HELD")
    assert output["pii"].startswith("NO"), output["pii"]


def test_decide_denies_what_forgets_it(privtab: Callable[..., Any], clinic: list[str], tmp_path: Path) -> None:
    request = {
        "subject": {"type": "user", "id": "ann"},
        "action": {"name": "read"},
        "resource": {"type": "file", "id": "w/1"},
    }
    contexts: list[dict[str, Any]] = [{}, {"context": {"pii": False}}, {"context": {"pii": True}}]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(request | c) + "\n" for c in contexts), encoding="utf-8")
    for engine in ("reference", "python"):
        ran = privtab("decide", *clinic, "--requests", tmp_path / "asked.jsonl", "--engine", engine)
        answers = [json.loads(line) for line in ran.out.splitlines()]
        assert [answer["decision"] for answer in answers] == [False, True, False]
        assert NEEDS in answers[0]["context"]["error"]["message"]
        assert ran.code == 1


def test_cases_must_say_it(privtab: Callable[..., Any], clinic: list[str], tmp_path: Path) -> None:
    case = "  - {user: ann, action: read, resource: 'file:w/1', decision: allow%s}\n"
    for more, code in (("", 1), (", flags: [pii=false]", 0)):
        text = "scenarios: 1\npolicy: clinic.yaml\nstate: state.yaml\ncases:\n" + case % more
        (tmp_path / "clinic.scenarios.yaml").write_text(text, encoding="utf-8")
        ran = privtab("test", clinic[1], "--engine", "reference")
        assert ran.code == code, ran.out + ran.err
        assert (NEEDS in ran.out + ran.err) is (code == 1)


def test_describe_shows_it(privtab: Callable[..., Any], clinic: list[str]) -> None:
    (read,) = json.loads(privtab("describe", clinic[1], "--format", "json").out)["operations"]
    assert read["required_flags"] == ["pii"]
    assert "every request says pii: true or false" in privtab("describe", clinic[1]).out
