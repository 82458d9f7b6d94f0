"""Policies that cost exact tools the most, by their commands: the answer, and a word on what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import hostile
import pytest

from privtab.command._app import run
from privtab_server.registry import Registry

CNF = "20 clauses of 20"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = hostile.POLICIES[CNF]()
    (tmp_path / "p.yaml").write_text(text)
    (tmp_path / "s.json").write_text(hostile.state(text))
    return tmp_path


def exit_code(folder: Path, *arguments: str) -> int:
    return run([*arguments, "-p", str(folder / "p.yaml"), "-s", str(folder / "s.json")])


def test_a_denial_says_deny_and_that_not_all_ways_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(folder, "explain", "u1", "load", "shop:s") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("DENY")
    assert "what would allow it" in shown
    assert "not all ways are listed" in shown


def test_json_output_says_that_lists_are_cut(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(folder, "explain", "u1", "load", "shop:s", "--format", "json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["decision"] is False
    assert (value["sets_complete"], value["turns_complete"]) == (False, False)
    assert value["turns"]


def test_principals_are_listed_where_ways_are_too_many(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = json.loads((folder / "s.json").read_text())
    names = hostile.privileges((folder / "p.yaml").read_text())
    rows = [{"grantee": "role:boss", "effect": "allow", "privilege": p, "entity": "shop:s"} for p in names]
    (folder / "s.json").write_text(json.dumps({**state, "grants": [*state["grants"], *rows]}))
    assert exit_code(folder, "who-can", "load", "shop:s", "--by", "principal", "--format", "json") == 0
    assert [row["principal"] for row in json.loads(capsys.readouterr().out)["principals"]] == ["role:boss", "user:all"]


def test_undecided_rows_are_named_and_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = hostile.any_objects(3, 40)
    (tmp_path / "p.yaml").write_text(text)
    (tmp_path / "s.json").write_text(hostile.state(text))
    assert exit_code(tmp_path, "what-can", "all", "--format", "json") == 1
    ran = capsys.readouterr()
    assert json.loads(ran.out)["undecided"] == ["hostile/t39/copy"]
    assert "not decided: `hostile/t39/copy`" in ran.err


@pytest.mark.slow
def test_very_long_lists_of_privileges_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yaml").write_text(hostile.alternatives(1_200))
    assert run(["describe", str(tmp_path / "p.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "P999" in shown
    assert "… and 200 more privileges; `--format json` lists them" in shown


@pytest.mark.slow
def test_a_deployment_whose_comparison_is_not_decided_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before, after = hostile.pigeons(11, 10)
    Path("before.yaml").write_text(before)
    Path("after.yaml").write_text(after)

    def deploy(policy: str, *more: str) -> tuple[int, str]:
        code = run(["deploy", policy, "-r", "registry", "--accept", "untested=there are none", *more])
        return code, " ".join(capsys.readouterr().out.split())

    assert deploy("before.yaml")[0] == 0
    released = Registry.open("registry").channel("dev", "hostile")
    code, output = deploy("after.yaml", "--fail-on", "wider")
    assert code == 1
    assert "diff failed 1 unknown (not decided within the budget); 1 not waived: shop/load" in output
    assert "stopped; nothing was released" in output
    assert Registry.open("registry").channel("dev", "hostile") == released
    assert deploy("after.yaml", "--fail-on", "none")[0] == 0
    assert Registry.open("registry").channel("dev", "hostile").policy != released.policy
