"""Entry points are those that `importlib.metadata` finds, read without it."""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_args

import pytest
from installed import install

from privtab.base import plugins
from privtab.base.errors import UsageError
from privtab.command import _app

GROUPS: tuple[Any, ...] = get_args(plugins.Group)
PLACES: Any = plugins.plugin_places.__wrapped__
TOY = "'''A toy.'''\nPANEL = 'Ask'\ndef run() -> None:\n    '''Play with [toys].'''\n"


def known() -> dict[str, list[tuple[str, str]]]:
    return {group: sorted((point.name, point.value) for point in entry_points(group=group)) for group in GROUPS}


def read() -> dict[str, list[tuple[str, str]]]:
    return {group: sorted(PLACES(group).items()) for group in GROUPS}


def test_entry_points_are_those_of_the_standard_library() -> None:
    assert read() == known()
    assert all(known()[f"privtab.{kind}"] for kind in ("commands", "doors", "gates", "states"))


def test_other_distributions_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = "[other]\nx=y\n\n# none\n[privtab.backends]\n#a = b\n toy = toy_plugin \nlist=toy_plugin:x.y\n[privtab.engines]\n"
    install(tmp_path, monkeypatch, points, TOY)
    assert read() == known()
    assert ("list", "toy_plugin:x.y") in read()["privtab.backends"]
    (tmp_path / "second").mkdir()
    info = tmp_path / "second" / "Toy_Plugin-2.0.dist-info"  # the same distribution, later on the path
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 2.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[privtab.backends]\nlater = toy_plugin\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "second")])
    assert read() == known()
    assert "later" not in dict(read()["privtab.backends"])


def test_distributions_in_archives_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as archive:
        archive.writestr("toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        archive.writestr("toy-1.0.dist-info/entry_points.txt", "[privtab.backends]\ntoy = toy_plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path / "toy.zip"))
    assert read() == known()
    assert ("toy", "toy_plugin") in read()["privtab.backends"]


def test_two_packages_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "[privtab.gates]\ntest = toy_plugin\n", TOY)
    with pytest.raises(UsageError, match=r"two entry points `privtab\.gates` are `test`"):
        plugins.plugin_names("privtab.gates")


def test_commands_of_other_distributions_are_in_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, privtab: Any
) -> None:
    points = "[privtab.commands]\ntoy = toy_plugin\nlost = no_such_package\nstate.toy = toy_plugin\n"
    install(tmp_path, monkeypatch, points, TOY)
    monkeypatch.setattr(_app, "command", _app.command.__wrapped__)
    shown = privtab("--help")
    assert "Play with [toys]." in shown.out
    assert "`lost` is in the package `no_such_package`" in shown.err
    assert "Play with [toys]." in privtab("state", "--help").out
    assert privtab("toy").code == 0
    assert privtab("state", "toy").code == 0
    assert privtab("lint", "--help").err == ""
