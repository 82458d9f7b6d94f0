"""Whether a lock file holds what pyproject.toml asks for: `python .ci/locked.py FILE EXTRA…`; exit code 1 where it is stale."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]


def pins(lock: str) -> dict[str, list[tuple[Version, str]]]:
    """Each package of a lock file with its versions and what stands after them: markers and hashes."""
    found: dict[str, list[tuple[Version, str]]] = {}
    for entry in re.split(r"(?<!\\)\n", lock):
        if match := re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;]+)(.*)", entry, re.DOTALL):
            found.setdefault(canonicalize_name(match[1]), []).append((Version(match[2]), match[3]))
    return found


def asked(project: dict[str, object], extras: list[str]) -> list[Requirement]:
    """What the base install and these extras ask for."""
    table = project["project"]
    assert isinstance(table, dict)
    optional = table["optional-dependencies"]
    found = [Requirement(text) for text in table["dependencies"]]
    waiting, seen = list(extras), set[str]()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in map(Requirement, optional[extra]):
            if requirement.name == table["name"]:
                waiting.extend(requirement.extras)
            else:
                found.append(requirement)
    return found


def stale(lock: str, pyproject: str, extras: list[str]) -> list[str]:
    """What is wrong with a lock file, in words."""
    locked = pins(lock)
    wrong = [
        f"{name} has no hash"
        for name, versions in locked.items()
        for _, rest in versions
        if "--hash=sha256:" not in rest
    ]
    for requirement in asked(tomllib.loads(pyproject), extras):
        versions = [version for version, _ in locked.get(canonicalize_name(requirement.name), [])]
        if not versions:
            wrong.append(f"{requirement} is missing")
        wrong += [f"{requirement} is {one} there" for one in versions if one not in requirement.specifier]
    return wrong


def main() -> int:
    """Complain on standard error."""
    file, *extras = sys.argv[1:]
    lock, pyproject = (ROOT / name for name in (file, "pyproject.toml"))
    wrong = stale(lock.read_text(encoding="utf-8"), pyproject.read_text(encoding="utf-8"), extras)
    for one in wrong:
        sys.stderr.write(f"{file}: {one}\n")
    if wrong:
        sys.stderr.write(f"{file} is stale: `make lock` renews it\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
