from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from privtab import pipeline
from privtab.base.diagnostics import Severity
from privtab.base.errors import FileError, PolicyInvalid, UsageError
from privtab.checks import _every

GOOD = 'privtab: 1\nsystem: shop\nversion: "1"\nentities: {shop:}\nprivileges: [READ]\ntables: {shop: {open: READ (shop)}}\n'


def test_a_policy_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(GOOD)
    assert pipeline.load_program(tmp_path / "shop.yaml").system == "shop"
    assert pipeline.load_program("cdap/final").version == "final"


def test_policies_of_the_working_directory_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "policy_src" / "cdap"
    folder.mkdir(parents=True)
    (folder / "final.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert pipeline.load_program("cdap/final").system == "shop"
    assert pipeline.load_program("cdap/draft").system == "cdap"


def test_a_name_that_is_none_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean `cdap/final`"):
        pipeline.find_policy("cdap/fnial")


def test_a_path_that_leads_nowhere_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        pipeline.find_policy(tmp_path / "none.yaml")


def test_only_policies_are_found_below_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yml").write_text(GOOD)
    (tmp_path / "state.yaml").write_text("grants: []\n")
    (tmp_path / "a.scenarios.yaml").write_text("scenarios: 1\npolicy: a\n")
    (tmp_path / "unreadable.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "moved.yaml").symlink_to("gone.yaml")
    (tmp_path / ".#a.yaml").symlink_to("ann@host")
    found = [p.name for p in pipeline.find_policies([tmp_path])]
    assert found == ["a.yaml", "b.yml", "moved.yaml", "unreadable.yaml"]


def test_policies_in_json_are_found_like_those_in_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "policy_src" / "shop"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(json.dumps(yaml.safe_load(GOOD)))
    (folder / "b.json").write_text(json.dumps({"title": "B", **yaml.safe_load(GOOD)}, indent=2))
    (folder / "c.yaml").write_text(json.dumps(yaml.safe_load(GOOD)))
    (folder / "d.yaml").write_text(GOOD.replace("privtab: 1", '"privtab": 1'))
    (folder / "state.json").write_text('{"grants": [{"privtab": 1}]}')
    (folder / "unreadable.json").write_bytes(b"\xff\xfe")
    assert [p.name for p in pipeline.find_policies([tmp_path])] == ["a.json", "b.json", "c.yaml", "d.yaml"]
    monkeypatch.chdir(tmp_path)
    assert pipeline.find_policy("shop/a").name == "a.json"
    assert {"shop/a", "shop/d"} <= set(pipeline.policy_names())


def test_a_system_stands_for_its_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "policy_src" / "shop"
    folder.mkdir(parents=True)
    for name in ("one", "two"):
        (folder / f"{name}.yaml").write_text(GOOD)
    (folder / "state.yaml").write_text("grants: []\n")
    monkeypatch.chdir(tmp_path)
    assert [p.name for p in pipeline.find_policies(["shop"])] == ["one.yaml", "two.yaml"]
    assert {p.parent.name for p in pipeline.find_policies(["cdap"])} == {"cdap"}
    with pytest.raises(UsageError, match="did you mean `shop/"):
        pipeline.find_policies(["shpo"])
    with pytest.raises(UsageError, match="no policy `shop`"):
        pipeline.find_policy("shop")


def test_errors_carry_every_finding(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(GOOD.replace("READ (shop)", "RAED (shpo)"))
    with pytest.raises(PolicyInvalid) as raised:
        pipeline.load_program(tmp_path / "shop.yaml")
    assert [d.code for d in raised.value.diagnostics] == ["P101", "P102"]
    assert "shop.yaml:6:23: P101" in str(raised.value)


def test_warnings_come_with_the_program(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(GOOD.replace("[READ]", "[READ, WRITE]"))
    checked = pipeline.resolve_policy(tmp_path / "shop.yaml").check()
    program, found = checked.program, checked.findings.kept
    assert program is not None
    assert [d.name for d in found] == ["never-required"]


def test_findings_of_checks_never_stop_a_policy() -> None:
    assert _every.catalogue()
    assert [check.kind.code for check in _every.catalogue() if check.kind.severity is Severity.ERROR] == []
