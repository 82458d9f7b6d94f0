from __future__ import annotations

import pytest

from privtab import checks, model
from privtab.base.source import SourceFile
from privtab.checks import _every
from privtab.checks._view import View
from privtab.language import syntax
from privtab.model.nodes import Policy
from privtab.pipeline import find_policy


def resolved(name: str) -> Policy:
    tables, _ = syntax.read_policy(SourceFile.load(find_policy(name)))
    assert tables is not None
    policy, _ = model.resolve(tables)
    assert policy is not None
    return policy


@pytest.fixture
def _two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privtab.checks._every.LARGE", 1)
    monkeypatch.setattr("privtab.base.worker.Worker.spare", lambda: 1)


@pytest.mark.usefixtures("_two_processes")
@pytest.mark.parametrize("name", ["cdap/final", "polaris/1.7"])
def test_two_processes_find_the_same(name: str) -> None:
    found = checks.run(resolved(name), parallel=True)
    assert found == checks.run(resolved(name))
    assert found


@pytest.mark.usefixtures("_two_processes")
def test_undecided_questions_of_the_child_process_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "_needed_by", lambda *_: None)
    found = checks.run(resolved("cdap/final"), parallel=True)
    assert found == checks.run(resolved("cdap/final"))
    assert any(finding.code == "P341" and "`P302`" in finding.message for finding in found)


def test_the_checks_for_a_child_exist() -> None:
    codes = {check.kind.code for check in _every.catalogue()}
    assert codes > _every.BESIDE
