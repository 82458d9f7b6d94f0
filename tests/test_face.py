"""The face of the core: the names that its rooms export, which are all that packages take, each with what it is and an example."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
from checkout import PACKAGES, PYTHONPATH, ROOT, modules

PAGE = ROOT / "docs" / "internals" / "face.md"
ROOMS = (*sorted(path.name for path in PACKAGES[0].iterdir() if (path / "__init__.py").exists()), "pipeline")
MOST = 314
"""The names of the core that packages take; it only falls, until it is 320."""
MOST_ALONE = 44
"""The names that one package alone takes; Spark and the analysis aside, which read the program, the index and the kernel."""
# What reads all modules is read once, by one worker.
pytestmark = pytest.mark.xdist_group("face")
READERS = {"privtab_analysis", "privtab_spark"}
HEAD = """\
# The face of the core

The names of the core that [packages](../architecture.md) take, by room: `from privtab.base import UsageError`. Packages import nothing else of the core.
`tests/test_face.py` holds code and page to this, and the count only falls. It writes this page again with `--update-golden`.
"""


class Taken(NamedTuple):
    """A name of the core that a module of a package imports, such as `UsageError` of `privtab.base`."""

    module: str
    name: str


@cache
def taken() -> dict[str, frozenset[Taken]]:
    """The names of the core that each package imports; an attribute of an imported module is a name, too."""
    core = {name for name, _ in modules() if name.partition(".")[0] == "privtab"}
    found: dict[str, set[Taken]] = {package.name: set() for package in PACKAGES[1:]}
    for module, path in modules():
        package = module.partition(".")[0]
        if package in found:
            found[package].update(_taken_in(ast.parse(path.read_text(encoding="utf-8")), core))
    return {package: frozenset(names) for package, names in found.items()}


def _taken_in(tree: ast.Module, core: set[str]) -> set[Taken]:
    found: set[Taken] = set()
    imported: dict[str, str] = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "privtab":
            for alias in node.names:
                if (full := f"{node.module}.{alias.name}") in core:
                    imported[alias.asname or alias.name] = full
                else:
                    found.add(Taken(node.module or "", alias.name))
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
            found.add(Taken(imported[node.value.id], node.attr))
    return found


@cache
def face() -> list[tuple[str, str]]:
    """The exported names that packages take, each with its room."""
    everything = frozenset().union(*taken().values())
    return [
        (room, name)
        for room in ROOMS
        for name in sorted(import_module(f"privtab.{room}").__all__)
        if Taken(f"privtab.{room}", name) in everything
    ]


@cache
def constants(room: str) -> dict[str, str]:
    """The docstrings below assignments of a room, by name."""
    found: dict[str, str] = {}
    for module, path in modules():
        if f"{module}.".startswith(f"privtab.{room}."):
            body = ast.parse(path.read_text(encoding="utf-8")).body
            for node, after in zip(body, [*body[1:], None], strict=True):
                targets = node.targets if isinstance(node, ast.Assign) else getattr(node, "target", None)
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                for target in targets if isinstance(targets, list) else [targets]:
                    if isinstance(target, ast.Name) and is_text:
                        found.setdefault(target.id, str(after.value.value))  # type: ignore[union-attr]
    return found


def said(room: str, name: str) -> str:
    """The docstring of an exported name: that of its class or function, or the text below its assignment."""
    value = getattr(import_module(f"privtab.{room}"), name)
    defined = getattr(value, "__name__", None) == name
    return (value.__doc__ if defined else constants(room).get(name)) or ""


def test_packages_take_exported_names_of_rooms_alone() -> None:
    public = {
        Taken(module, name)
        for module in ("privtab", *(f"privtab.{room}" for room in ROOMS))
        for name in import_module(module).__all__
    }
    beside = {package: sorted(names - public) for package, names in taken().items() if names - public}
    assert not beside, "take a name of the face, or put it there on purpose"


def test_no_name_is_private_or_called_like_a_module_of_its_room() -> None:
    names = {module for module, _ in modules()}
    assert not [name for room, name in face() if name.startswith("_") or f"privtab.{room}.{name}" in names]


def test_the_face_only_shrinks() -> None:
    times = Counter(name for names in taken().values() for name in names)
    alone = {name for package, names in taken().items() if package not in READERS for name in names if times[name] == 1}
    assert (len(times), len(alone)) == (MOST, MOST_ALONE), "fewer is better: lower the numbers; more needs a reason"


def test_each_name_says_what_it_is_with_an_example() -> None:
    # One test, not one a name: the names are found by reading every module, which each worker would do to collect them.
    texts = {f"{room}.{name}": said(room, name) for room, name in face()}
    assert not [name for name, text in texts.items() if not text], "these have no docstring"
    without = [name for name, text in texts.items() if not (">>>" in text or "`" in text or "\n    " in text)]
    assert not without, "the docstrings of these have no example"


def test_the_page_lists_who_takes_what(golden: Callable[[Path, str], None]) -> None:
    lines = [HEAD]
    for room in ROOMS:
        rows = [
            f"| `{name}` | {first_line(room, name)} | {', '.join(package.removeprefix('privtab_') for package in by)} |"
            for of_room, name in face()
            if of_room == room
            for by in [[package for package in sorted(taken()) if Taken(f"privtab.{room}", name) in taken()[package]]]
        ]
        if rows:
            lines += [f"## privtab.{room}\n", "| name | what it is | taken by |", "|---|---|---|", *rows, ""]
    golden(PAGE, "\n".join(lines))


def first_line(room: str, name: str) -> str:
    return " ".join(said(room, name).split("\n\n")[0].split()).replace("|", "\\|").replace("<", "&lt;")


def test_importing_the_rooms_loads_no_library() -> None:
    code = "import sys\nbefore = set(sys.modules)\n" + "".join(f"import privtab.{room}\n" for room in ROOMS[:-1])
    code += (
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert ran.stdout.split() == ["privtab"]
