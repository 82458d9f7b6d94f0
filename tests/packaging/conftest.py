"""The distribution, built once, and clean environments that hold it with exactly what its metadata asks for."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import pytest
from checkout import ROOT
from environments import Environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from reader_folder import furnish


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that was built from it, not from the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Environment]:
    """Makes an environment with the wheel, some of its extras, what a reader installs `beside` it, and nothing else.

    The packages themselves are links to those of the environment that runs the tests, so that nothing is fetched.
    """
    environments: dict[tuple[str, ...], Environment] = {}

    def make(*extras: str, beside: tuple[str, ...] = ()) -> Environment:
        if (*extras, *beside) not in environments:
            path = tmp_path_factory.mktemp("-".join(("env", *extras, *beside)))
            venv.create(path, with_pip=False, symlinks=True)
            python = path / "bin" / "python"
            install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
            subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True, timeout=120)
            (site,) = (path / "lib").glob("python*/site-packages")
            (installed,) = distributions(name="privtab", path=[str(site)])
            closure = list(_closure(installed, set(extras)))
            for other in map(distribution, beside):
                closure += [other, *_closure(other, set())]
            for needed in closure:
                _link(needed, site)
            names = frozenset(canonicalize_name(needed.name) for needed in closure)
            environments[*extras, *beside] = Environment(path, names)
        return environments[*extras, *beside]

    return make


@pytest.fixture(scope="session")
def home(environment: Callable[..., Environment], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the things that examples name."""
    return furnish(tmp_path_factory.mktemp("reader"), environment("compiler"))


def _closure(root: Distribution, extras: set[str]) -> Iterator[Distribution]:
    """Every distribution that `root` with these extras needs, by metadata."""
    waiting: list[tuple[Distribution, set[str]]] = [(root, extras)]
    visited: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        current, extras_of = waiting.pop()
        for text in current.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in extras_of | {""}):
                continue
            if requirement.name == root.name:  # an extra of others
                waiting.append((root, set(requirement.extras)))
                continue
            found = distribution(requirement.name)
            assert requirement.specifier.contains(found.version, prereleases=True), text
            key = (found.name.lower(), frozenset(requirement.extras))
            if key not in visited:
                visited.add(key)
                waiting.append((found, set(requirement.extras)))
                yield found


def _link(needed: Distribution, site: Path) -> None:
    """Link the top level of an installed distribution into another environment."""
    home = Path(str(needed.locate_file("")))
    for name in {file.parts[0] for file in needed.files or () if file.parts[0] not in {"..", "__pycache__"}}:
        if not (site / name).exists():
            (site / name).symlink_to(home / name)
