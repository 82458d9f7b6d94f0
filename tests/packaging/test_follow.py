"""`make follow`: what a release in the registries means for the shipped tables."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
import yaml
from checkout import ROOT
from packaging.version import Version

SCRIPT = ROOT / ".ci" / "follow.py"
SYSTEMS = sorted(path.parent.name for path in (ROOT / "policy_src").glob("*/releases.yaml"))


@pytest.fixture
def follow() -> ModuleType:
    spec = importlib.util.spec_from_file_location("follow", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("shipped", "newest", "said"),
    [
        (["1.6", "1.7"], "1.7.2", "followed"),
        (["1.7"], "1.8.0", "newer: 1.8.0"),
        (["1.7"], "2.0", "newer: 2.0"),
        (["1.7", "1.8"], "1.7.0", "ahead of the registry, which has 1.7.0"),
        (["476"], "476", "followed"),
        (["476"], "4760", "newer: 4760"),
        (["3.9"], "3.10.1", "newer: 3.10.1"),
        (["1.1.0", "1.3.0"], "1.3.0", "followed"),
    ],
)
def test_a_table_is_of_each_release_that_begins_with_its_version(
    follow: ModuleType, shipped: list[str], newest: str, said: str
) -> None:
    assert follow.verdict([Version(one) for one in shipped], Version(newest)) == said


def test_each_system_with_tables_says_where_it_is_published(follow: ModuleType) -> None:
    assert {path.parent.name for path in follow.find_policies([ROOT / "policy_src"])} == set(SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_registry_is_asked_by_the_name_in_the_document(
    follow: ModuleType, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = yaml.safe_load((ROOT / "policy_src" / system / "releases.yaml").read_text(encoding="utf-8"))
    [(registry, name)] = document.items()
    asked = []

    def newest(name: str) -> str:
        asked.append(name)
        return "99999"

    monkeypatch.setattr(follow, "REGISTRIES", dict.fromkeys(follow.REGISTRIES, newest))
    text, answered = follow.line(system, document)
    assert answered
    if registry == "nowhere":
        assert text == f"{system}: not followed: {name}"
        assert asked == []
    else:
        assert text.endswith("newer: 99999")
        assert asked == [name]


def test_a_registry_that_does_not_answer_fails(follow: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "REGISTRIES", dict.fromkeys(follow.REGISTRIES, lambda _: None))
    assert follow.main(["polaris"]) == 1
    assert follow.main(["streams"]) == 0


def test_a_table_that_is_called_otherwise_is_no_version(follow: ModuleType) -> None:
    assert [str(one) for one in follow.versions("polaris")] == ["1.7", "1.8"]
    assert follow.versions("streams") == []
