"""Installing is told in one place: privtab is on no package index, and no text may send people there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from checkout import ROOT

from privtab.base.resources import SOURCE, how_to_install

ONE_PLACE = {"compiler/privtab/base/resources.py", "docs/how-to/install.md", "README.md"}
OURS = {"Makefile", "docker-compose.yml"}
"""They install the checkout that they lie in; nobody is told to type that."""
INDEX = re.compile(
    r"(?:pip3? install|uv add|uv pip install|poetry add|pipx install)\b[^\n`]*[\s'\"]privtab(?=[\s'\"`\[=<>~]|$)|(?<![\w./-])privtab\[[a-z,]+\]",
    re.MULTILINE,
)
EXTRA = re.compile(r"install[^\n`]*\[[a-z,]+\]['\"]")


def texts() -> dict[str, str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = {}
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if (
            name
            and not name.startswith(("tests/", "sources/", "docs/decisions/"))
            and "/tests/" not in name
            and path.is_file()
        ):
            try:
                found[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    assert "docs/how-to/spark.md" in found
    return found


def test_no_text_sends_people_to_a_package_index() -> None:
    found = {
        f"{name}: {match[0]}"
        for name, text in texts().items()
        if name != "pyproject.toml"
        for match in INDEX.finditer(text)
    }
    assert not found
    for wrong in ("pip install privtab", "pip install 'privtab[sign]'", "uv add privtab", "needs privtab[sign]"):
        assert INDEX.search(wrong), wrong


def test_installation_is_described_in_one_place() -> None:
    found = {name for name, text in texts().items() if EXTRA.search(text)}
    assert "docs/how-to/install.md" in found
    assert found <= ONE_PLACE | OURS
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    assert f"pip install '{SOURCE}[compiler]'" in page
    assert how_to_install("sign").startswith(f"pip install '{SOURCE}[sign]'")


def test_the_page_lists_every_extra() -> None:
    project = tomllib.loads(Path(ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert listed == set(project["optional-dependencies"]) - {"dev"}
