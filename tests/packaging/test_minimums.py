"""Each direct dependency has a minimum version, at or above the first that fixes its latest known advisory."""

from __future__ import annotations

import re
import tomllib

from checkout import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

RECORD = ROOT / "docs" / "decisions" / "0160-minimum-versions-have-no-known-advisories.md"


def fixed() -> dict[str, Version | None]:
    """The table of the record: the first fixed version by package, None where no advisory was found."""
    found: dict[str, Version | None] = {}
    rows = re.findall(r"^\| (.+?) \| (.+?) \| *(.*?) *\|$", RECORD.read_text(encoding="utf-8"), re.MULTILINE)
    for names, _, version in rows:
        if names != "package":
            found |= {canonicalize_name(name): Version(version) if version else None for name in names.split(", ")}
    return found


def direct() -> dict[str, list[Requirement]]:
    """The requirements of pyproject.toml, in every extra, by package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    found: dict[str, list[Requirement]] = {}
    for requirement in map(Requirement, texts):
        if requirement.name != project["name"]:
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def test_every_direct_dependency_is_in_the_table() -> None:
    assert direct().keys() <= fixed().keys()


def test_no_version_with_an_advisory_is_allowed() -> None:
    for name, first in fixed().items():
        for requirement in direct().get(name, []):
            least = [Version(bound.version) for bound in requirement.specifier if bound.operator in (">=", "==", "~=")]
            if first is not None:
                assert least, f"{name} has no minimum version"
                assert max(least) >= first, f"{requirement} allows versions before {first}"


def test_requirements_at_run_time_have_a_minimum_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, texts in project["optional-dependencies"].items():
        for requirement in map(Requirement, texts):
            if extra != "dev" and requirement.name != project["name"]:
                assert any(bound.operator == ">=" for bound in requirement.specifier), f"{extra}: {requirement}"
