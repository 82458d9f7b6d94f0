"""The files of `privtab init` are green at its first push: the workflow's packages are there, by hash, and its checks pass."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT
from packaging.utils import canonicalize_name

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


@pytest.fixture(scope="module")
def shop(environment: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    env, folder = environment("compiler"), tmp_path_factory.mktemp("first")
    ran = env.run(env.command, "init", "shop", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return folder / "shop"


def test_the_wheel_in_the_repository_is_the_one_that_was_installed(shop: Path, wheel: Path) -> None:
    (vendored,) = (shop / "vendor").iterdir()
    assert vendored.name == wheel.name
    assert contents(vendored) == contents(wheel)


def test_the_checkout_makes_the_same_wheel(privtab: Callable[..., Any], wheel: Path, tmp_path: Path) -> None:
    assert privtab("init", tmp_path / "shop").code == 0
    ours, built = contents(tmp_path / "shop" / "vendor" / wheel.name), contents(wheel)
    code = {name for name in built if ".dist-info/" not in name}
    assert {name for name in ours if ".dist-info/" not in name} == code
    assert [name for name in code if ours[name] != built[name]] == []


def test_its_packages_install_by_hash_and_no_other_file_does(shop: Path, tmp_path: Path) -> None:
    """`--no-deps --no-index`: the packages of the lock are checked below, and nothing is fetched."""
    lines = (shop / "policy-requirements.txt").read_text(encoding="utf-8").splitlines()
    (ours,) = [line for line in lines if line.startswith("./")]
    alone = tmp_path / "alone.txt"
    target = f"--target={tmp_path / 'there'}"
    install = [sys.executable, "-m", "pip", "install", target, "--no-deps", "--no-index", "--no-compile", "--quiet"]
    install += ["--require-hashes", "--only-binary", ":all:", "--requirement", str(alone)]
    ours = ours.replace("[compiler]", "")
    alone.write_text(ours)
    subprocess.run(install, cwd=shop, check=True, timeout=120)
    assert (tmp_path / "there" / "privtab" / "_data" / "requirements" / "compiler.lock").is_file()
    alone.write_text(ours[:-1] + ("1" if ours[-1] == "0" else "0"))
    assert subprocess.run(install, cwd=shop, check=False, capture_output=True, timeout=120).returncode != 0


def test_every_package_that_the_wheel_needs_is_locked(shop: Path, environment: Callable[..., Any]) -> None:
    text = (shop / "policy-requirements.txt").read_text(encoding="utf-8")
    locked = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    needed = environment("compiler").needs
    assert {"pyyaml", "sqlglot"} <= needed <= locked


def test_its_checks_pass(shop: Path, environment: Callable[..., Any]) -> None:
    env = environment("compiler")
    workflow = yaml.safe_load((shop / ".github/workflows/policy.yml").read_text(encoding="utf-8"))
    steps = [step for step in workflow["jobs"]["policy"]["steps"] if "if" not in step]
    scripts = [step["run"] for step in steps if step.get("run", "").startswith("privtab ")]
    assert len(scripts) == 4
    for script in scripts:
        ran = env.run(env.command, *shlex.split(script)[1:], cwd=shop)
        assert ran.returncode == 0, (script, ran.stdout, ran.stderr)


def test_the_data_of_the_wheel_are_those_that_the_code_names() -> None:
    from privtab.base.resources import DATA

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {name: f"privtab/_data/{name}" for name in DATA}
