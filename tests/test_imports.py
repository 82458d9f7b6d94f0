"""Imports point one way, and the front door is light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
from checkout import PACKAGES, PYPROJECT, ROOT, modules

import privtab

PACKAGE = Path(privtab.__file__).parent

ALLOWED: dict[str, set[str]] = {
    # room or package: what it may import beside `base`; packages also the front
    "__main__": {"command"},
    "backends": {"ir"},
    "base": set(),
    "bundle": {"backends", "engines", "ir", "state"},
    "checks": {"ir", "language", "model"},
    "client": {"bundle", "engines", "filters"},
    "command": {
        "backends",
        "bundle",
        "checks",
        "client",
        "engines",
        "ir",
        "language",
        "pipeline",
        "reference",
        "state",
    },
    "engines": set(),
    "filters": {"engines"},
    "front": {"client"},
    "ir": set(),
    "language": set(),
    "model": {"ir", "language"},
    "pipeline": {"backends", "bundle", "checks", "ir", "language", "model"},
    "privtab_analysis": {
        "bundle",
        "checks",
        "command",
        "engines",
        "filters",
        "ir",
        "language",
        "pipeline",
        "reference",
        "state",
    },
    "privtab_connect": {
        "pipeline",
        "backends",
        "client",
        "command",
        "ir",
        "language",
        "privtab_server",
        "reference",
        "state",
    },
    "privtab_logs": {
        "bundle",
        "client",
        "command",
        "engines",
        "ir",
        "language",
        "pipeline",
        "privtab_analysis",
        "privtab_connect",
        "privtab_server",
        "privtab_spark",
        "reference",
        "state",
    },
    "privtab_pages": {
        "privtab_connect",
        "backends",
        "checks",
        "command",
        "engines",
        "filters",
        "ir",
        "language",
        "model",
        "pipeline",
        "privtab_analysis",
        "privtab_server",
        "privtab_testing",
        "reference",
        "state",
    },
    "privtab_server": {
        "bundle",
        "checks",
        "client",
        "command",
        "engines",
        "ir",
        "pipeline",
        "privtab_analysis",
        "reference",
        "state",
    },
    "privtab_spark": {
        "bundle",
        "client",
        "command",
        "engines",
        "ir",
        "language",
        "pipeline",
        "privtab_analysis",
        "privtab_connect",
        "state",
    },
    "privtab_testing": {
        "bundle",
        "client",
        "command",
        "engines",
        "ir",
        "language",
        "pipeline",
        "privtab_analysis",
        "privtab_connect",
        "reference",
        "state",
    },
    "privtab_web": {"client", "command", "ir", "language", "privtab_analysis"},
    "reference": {"ir", "state"},
    "state": {"ir"},
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def part(module: str) -> str:
    package, *names = module.split(".")
    if package != "privtab":
        return package
    if not names or names[0] == "__init__":
        return "front"
    return names[0] if names[0] in ALLOWED else "front"


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "privtab":
                yield from (f"privtab.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_rooms_form_a_directed_acyclic_graph() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    beside = {package.name for package in PACKAGES[1:]}
    assert folders | beside == set(ALLOWED) - {"__main__", "front", "pipeline"}
    TopologicalSorter(ALLOWED).prepare()


MODULES = dict(modules())


def test_imports_point_one_way() -> None:
    wrong = []
    for name, path in MODULES.items():
        own = part(name)
        allowed = {own, "base", "front", *ALLOWED.get(own, set())}
        others = [i for i in imports(path) if i.startswith("privtab") and part(i) not in allowed]
        wrong += [f"{name}: {own} must not import {other}" for other in others]
    assert not wrong, "\n".join(wrong)


def test_the_core_imports_no_package_beside_it() -> None:
    core = [path for name, path in MODULES.items() if not name.startswith("privtab_")]
    assert not [(path, i) for path in core for i in imports(path) if i.startswith("privtab_")]


def test_a_back_end_imports_no_other() -> None:
    backends = PACKAGE / "backends"
    for path in {*backends.rglob("*.py")} - {backends / "__init__.py"}:  # which shows the names of all
        own = path.relative_to(backends).parts[0]
        others = [
            i
            for i in imports(path)
            if i.startswith("privtab.backends.") and i.split(".")[2] not in (own.removesuffix(".py"), "protocol")
        ]
        assert not others, path


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count too, and those for type checkers alone: what a module knows by type, it depends on."""
    graph = {module: set(imported(path, MODULES)) - {module} for module, path in MODULES.items()}
    TopologicalSorter(graph).prepare()


def imported(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """The modules that a module imports: `from package import module` is the module."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else str(node.module) for name in names)


def test_no_system_is_named_in_the_compiler_or_the_templates() -> None:
    root = ROOT
    files = [
        *(path for name, path in MODULES.items() if not name.startswith("privtab_connect")),
        *PACKAGE.rglob("*.lark"),
        *(root / "templates").rglob("*.j2"),
        *(root / "opa" / "lib").rglob("*"),
    ]
    system = re.compile("cdap|gravitino|streams|teracloud", re.IGNORECASE)
    # Only files that hold a name at all are parsed.
    naming = [path for path in files if path.is_file() and system.search(path.read_text(encoding="utf-8"))]
    assert naming, "help texts give examples"
    assert not [path.relative_to(root).as_posix() for path in naming if system.search(ast_without_examples(path))]


def ast_without_examples(path: Path) -> str:
    """The text of a file; of Python the code alone, since help texts and docstrings give examples by name."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    tree = parsed(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and set(node.value) & set("/\n"):
            node.value = ""
    return ast.unparse(tree)


def test_the_front_door_loads_nothing_heavy() -> None:
    heavy = (
        "yaml",
        "jinja2",
        "lark",
        "typer",
        "rich",
        "numpy",
        "pyarrow",
        "pyspark",
        "httpcore",
        "opa_client",
        "opentelemetry",
        "fastapi",
    )
    program = f"import sys, privtab; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "point", [value for group in PYPROJECT["project"]["entry-points"].values() for value in group.values()]
)
def test_an_entry_point_names_what_there_is(point: str) -> None:
    module, _, name = point.partition(":")
    loaded = import_module(module)
    assert not name or hasattr(loaded, name)


def test_no_room_exports_a_name_that_a_module_of_it_has() -> None:
    # Importing the module would put it in the place of what the room exports.
    rooms = {name: import_module(name) for name, path in modules() if path.name == "__init__.py"}
    exported = {f"{name}.{own}" for name, room in rooms.items() for own in getattr(room, "__all__", ())}
    assert exported & {name for name, _ in modules() if name.startswith("privtab.")} == set()
