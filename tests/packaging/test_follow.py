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


@pytest.mark.parametrize(
    ("newest", "said"),
    [
        ("1.8.0", "compared: 1.8.0 has no table of its own"),
        ("1.8.1", "newer: 1.8.1"),
        ("1.7.3", "followed"),
    ],
)
def test_a_release_that_was_compared_is_not_newer_but_the_next_one_is(
    follow: ModuleType, newest: str, said: str
) -> None:
    assert follow.verdict([Version("1.7")], Version(newest), Version("1.8.0")) == said


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_was_compared_stands_in_the_header_of_the_newest_table(follow: ModuleType, system: str) -> None:
    folder = ROOT / "policy_src" / system
    document = yaml.safe_load((folder / "releases.yaml").read_text(encoding="utf-8"))
    if compared := document.get("compared"):
        newest = follow.versions(system)[-1]
        header = (folder / f"{newest}.yaml").read_text(encoding="utf-8").split("\nprivtab: 1\n")[0]
        assert compared in header
        assert Version(compared) > newest


def test_each_system_with_tables_says_where_it_is_published(follow: ModuleType) -> None:
    assert {path.parent.name for path in follow.find_policies([ROOT / "policy_src"])} == set(SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_registry_is_asked_by_the_name_in_the_document(
    follow: ModuleType, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = yaml.safe_load((ROOT / "policy_src" / system / "releases.yaml").read_text(encoding="utf-8"))
    [(registry, name)] = ((key, value) for key, value in document.items() if key != "compared")
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
