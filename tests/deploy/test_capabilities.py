"""opa/capabilities.json: what policies may use, and nothing that reaches outside."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from privtab.base import resources
from privtab.command._app import run
from privtab.engines.opa import binary


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        str(binary.find()),
        "check",
        "--strict",
        "--capabilities",
        str(resources.opa() / "capabilities.json"),
        str(folder),
    ]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_all_shipped_policies_make_do_with_them(tmp_path: Path) -> None:
    assert run(["compile", str(resources.policies()), "-o", str(tmp_path)]) == 0
    folders = sorted(tmp_path.glob("*/*/rego"))
    assert len(folders) >= 6
    for folder in folders:
        answer = check(folder)
        assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize(
    "call",
    [
        'http.send({"method": "GET", "url": "http://127.0.0.1"})',
        'rand.intn("x", 2)',
        "opa.runtime()",
        'net.lookup_ip_addr("x")',
        'uuid.rfc4122("x")',
    ],
)
def test_builtins_that_reach_outside_are_refused(call: str, tmp_path: Path) -> None:
    (tmp_path / "x.rego").write_text(f"package x\n\ny := {call}\n", encoding="utf-8")
    answer = check(tmp_path)
    assert answer.returncode != 0
    assert "undefined function" in answer.stdout + answer.stderr


def test_capabilities_are_those_of_the_pinned_opa_without_nondeterministic_builtins() -> None:
    command = [str(binary.find()), "capabilities", "--current"]
    current = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    pinned = json.loads((resources.opa() / "capabilities.json").read_text(encoding="utf-8"))
    # The clock, by which rows of a state hold for a time, is the only exception.
    deterministic = [
        builtin
        for builtin in current["builtins"]
        if builtin["name"] == "time.now_ns" or not builtin.get("nondeterministic")
    ]
    assert pinned["builtins"] == deterministic
    assert len(deterministic) < len(current["builtins"])
    assert pinned["allow_net"] == []
    assert pinned["features"] == current["features"]
