"""Say which shipped table has a newer release in the registries: `python .ci/follow.py [SYSTEM…]`.

`releases.yaml` beside the tables of a system names where it is published, and as `compared` the newest release that was found to need
no table of its own. The clients of the registries are asked, with their settings. Exit code 1 where one did not answer: nothing is known
then.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from privtab.pipeline import find_policies

ROOT = Path(__file__).resolve().parents[1]
POLICIES = ROOT / "policy_src"
SECONDS = 180


def pypi(name: str) -> str | None:
    """The newest release of a package on PyPI."""
    ran = _run([sys.executable, "-m", "pip", "index", "versions", name])
    found = re.search(r"^\S+ \(([^)]+)\)", ran or "", re.MULTILINE)
    return found[1] if found else None


def maven(name: str) -> str | None:
    """The newest release of `group:artifact` on Maven, from the metadata that it keeps of what it resolved."""
    if _run(["mvn", "-q", "-U", "dependency:get", f"-Dartifact={name}:RELEASE:pom", "-Dtransitive=false"]) is None:
        return None
    group, artifact = name.split(":")
    folder = Path.home().joinpath(".m2", "repository", *group.split("."), artifact)
    found = [re.search(r"<release>(.*)</release>", one.read_text()) for one in folder.glob("maven-metadata-*.xml")]
    return max((match[1] for match in found if match), key=Version, default=None)


def _run(command: list[str]) -> str | None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout if ran.returncode == 0 else None


REGISTRIES: dict[str, Callable[[str], str | None]] = {"pypi": pypi, "maven": maven}


def versions(system: str, policies: Path = POLICIES) -> list[Version]:
    """The versions of the shipped tables of a system, oldest first; one called otherwise (`next`) is none."""
    found = []
    for path in find_policies([policies / system]):
        try:
            found.append(Version(path.stem))
        except InvalidVersion:
            continue
    return sorted(found)


def verdict(shipped: list[Version], newest: Version, compared: Version | None = None) -> str:
    """The meaning of the newest release for the tables: a table `1.7` is of each `1.7.x`."""
    last = shipped[-1].release
    if newest.release[: len(last)] == last:
        return "followed"
    if newest == compared:
        return f"compared: {newest} has no table of its own"
    return f"newer: {newest}" if newest > shipped[-1] else f"ahead of the registry, which has {newest}"


def line(system: str, document: dict[str, Any], policies: Path = POLICIES) -> tuple[str, bool]:
    """One line about a system, and whether the registry answered."""
    [(registry, name)] = ((key, value) for key, value in document.items() if key != "compared")
    if registry == "nowhere":
        return f"{system}: not followed: {name}", True
    newest = REGISTRIES[registry](name)
    if newest is None:
        return f"{system}: {registry} did not answer for {name}", False
    shipped = versions(system, policies)
    compared = Version(document["compared"]) if "compared" in document else None
    return f"{system}: {', '.join(map(str, shipped))}: {verdict(shipped, Version(newest), compared)}", True


def main(systems: list[str]) -> int:
    """Print a line for each system, and return the exit code."""
    failed = False
    for path in sorted(POLICIES.glob("*/releases.yaml")):
        if systems and path.parent.name not in systems:
            continue
        text, answered = line(path.parent.name, yaml.safe_load(path.read_text(encoding="utf-8")))
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        failed |= not answered
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
