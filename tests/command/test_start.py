"""What each command loads before it works: a module loaded for nothing is time that everybody waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import privtab

STARTED = """
import atexit, sys
sys.argv = ["privtab", *sys.argv[1:]]
atexit.register(lambda: sys.stderr.write("LOADED " + " ".join(sys.modules)))
"""
MAIN = f"{STARTED}from privtab.command import main\nmain()"


def loaded(folder: Path, *words: str, start: str = MAIN, **environment: str) -> tuple[str, set[str]]:
    """What a command line prints, and every module that it loads in a process of its own."""
    command = [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}\n{start}", *words]
    ran = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, check=False, capture_output=True, text=True, timeout=120
    )
    errors, said, modules = ran.stderr.rpartition("LOADED ")
    assert said, ran.stderr
    assert not errors, errors
    return ran.stdout, set(modules.split())


def unwanted(modules: set[str], names: Sequence[str]) -> list[str]:
    return sorted(name for name in names if name in modules)


@pytest.mark.parametrize("start", [MAIN, f"{STARTED}import runpy\nrunpy.run_module('privtab', run_name='__main__')"])
def test_the_version_is_said_before_anything_is_loaded(start: str, tmp_path: Path) -> None:
    out, modules = loaded(tmp_path, "--version", start=start)
    assert out == f"privtab {privtab.__version__}\n"
    own = {name for name in modules if name.partition(".")[0] == "privtab"}
    assert own <= {"privtab", "privtab.__main__", "privtab.base", "privtab.base.lazy", "privtab.command"}
    assert not unwanted(modules, ("dataclasses", "inspect", "typing", "json", "typer", "rich", "importlib.metadata"))
