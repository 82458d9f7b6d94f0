"""The extension for Visual Studio Code: what its manifest says is true, and it builds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT
from command_lines import problems

from privtab import __version__
from privtab.base.files import LARGEST
from privtab.language.fmt import is_policy

FOLDER = ROOT / "editors" / "vscode"
MANIFEST = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
NPM = shutil.which("npm")


def test_it_starts_the_server_and_no_folder_can_change_what_is_started() -> None:
    assert MANIFEST["version"] == __version__
    setting = MANIFEST["contributes"]["configuration"]["properties"]["privtab.command"]
    program, *words = setting["default"]
    assert (program, problems(words)) == ("privtab", [])
    assert setting["scope"] == "machine"
    assert MANIFEST["capabilities"]["untrustedWorkspaces"]["supported"] is False


def test_files_of_the_language_are_policies_and_scenarios() -> None:
    (language,) = MANIFEST["contributes"]["languages"]
    first = re.compile(language["firstLine"])
    for path in sorted((ROOT / "policy_src").rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        assert len(text) < LARGEST
        line = next(line for line in text.splitlines() if line and not line.startswith("#"))
        by_name = path.name.endswith(".scenarios.yaml")
        assert (bool(first.search(line)) or by_name) == (is_policy(text.splitlines()) or by_name), path


def test_packages_are_locked_by_their_hashes_and_name_no_registry() -> None:
    lock = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert all(
        package["integrity"].startswith("sha512-") and "resolved" not in package for package in packages.values()
    )
    wanted = MANIFEST["dependencies"] | MANIFEST["devDependencies"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted


@pytest.mark.long
@pytest.mark.skipif(NPM is None, reason="npm is not installed")
def test_it_builds_and_is_packaged(tmp_path: Path) -> None:
    copy = tmp_path / "vscode"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    for command in ("ci --ignore-scripts --no-audit --no-fund", "run build", "run package"):
        ran = subprocess.run(
            [str(NPM), *command.split()], cwd=copy, check=False, capture_output=True, text=True, timeout=300
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (copy / "dist" / "privtab.vsix").is_file()
    assert "activate" in (copy / "dist" / "extension.js").read_text(encoding="utf-8")
