"""A distribution of plug-ins, installed in a folder for one test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from privtab.base import plugins


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, points: str, source: str) -> None:
    """Install the module `toy_plugin` with this source and these entry points, until the test ends."""
    (folder / "toy_plugin.py").write_text(source, encoding="utf-8")
    info = folder / "toy_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "toy_plugin", raising=False)
    monkeypatch.setattr(
        plugins, "plugin_places", plugins.plugin_places.__wrapped__
    )  # what other tests found is known no more
