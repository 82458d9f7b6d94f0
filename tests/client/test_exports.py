"""`import privtab` is light, and what it exports is pinned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import PYTHONPATH, ROOT

import privtab
import privtab_analysis as analysis

PROGRAM = """
import json, sys
before = set(sys.modules)
import privtab
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))))
"""


def test_exports() -> None:
    exports = dir(privtab)
    assert exports == sorted(exports)
    assert set(exports) >= {
        "Client",
        "Decision",
        "DecisionUnavailable",
        "Entity",
        "InvalidRequest",
        "PolicyError",
        "Request",
    }
    assert all(hasattr(privtab, name) for name in exports)
    assert (Path(privtab.__file__).parent / "py.typed").is_file()


def test_importing_loads_the_standard_library_alone() -> None:
    path = PYTHONPATH
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    assert json.loads(done.stdout) == ["privtab"]


def test_names_that_are_loaded_later_are_listed() -> None:
    program = """
import privtab, privtab.client, privtab.bundle
for module in (privtab, privtab.client, privtab.bundle):
    assert dir(module) == sorted(module.__all__), module
"""
    path = PYTHONPATH
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": path})


def test_the_page_names_what_a_decision_has() -> None:
    page = (ROOT / "docs" / "reference" / "asking.md").read_text(encoding="utf-8")
    for name in ("rule", "reasons", "missing", "effects", "source", "revision"):
        assert isinstance(getattr(privtab.Decision, name), property)
        assert f"`{name}`" in page


def test_a_name_that_is_not_exported_is_missing() -> None:
    with pytest.raises(AttributeError, match="'privtab_analysis' has no attribute 'Nothing'"):
        analysis.Nothing  # type: ignore[attr-defined]  # noqa: B018
