"""The Dockerfile: pinned, small, without rights, and of files and commands that exist."""

from __future__ import annotations

import json
import re
import tomllib

from checkout import ROOT
from command_lines import problems

TEXT = re.sub(r"\\\n\s*", " ", (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8"))
STEPS = [line.partition(" ")[::2] for line in TEXT.splitlines() if line and not line.startswith("#")]


def steps(instruction: str) -> list[str]:
    return [rest for word, rest in STEPS if word == instruction]


def test_instructions_are_those_of_a_dockerfile() -> None:
    known = {"ARG", "FROM", "ENV", "WORKDIR", "RUN", "COPY", "USER", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in STEPS} <= known
    assert STEPS[0][0] == "ARG"


def test_the_base_is_pinned_and_the_same_as_that_of_compose() -> None:
    (base,) = steps("ARG")
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+\.\d+-slim-\w+", base)
    assert base.partition("=")[2] in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert steps("FROM") == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]


def copied() -> set[str]:
    return {word for step in steps("COPY") if not step.startswith("--from") for word in step.split()[:-1]}


def test_what_is_copied_exists_and_is_all_that_the_wheel_needs() -> None:
    assert all((ROOT / name).exists() for name in copied())
    target = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*target["force-include"], *(package.split("/")[0] for package in target["packages"])} <= copied()
    sent = {
        line[1:]
        for line in (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert copied() <= sent


def test_packages_are_installed_by_their_hashes() -> None:
    installs = [step for step in steps("RUN") if "pip install" in step]
    assert "--require-hashes --no-deps --requirement requirements/run.lock" in installs[0]
    assert all("--no-deps" in step for step in installs)


def test_it_runs_privtab_as_nobody() -> None:
    last = [rest for word, rest in STEPS[STEPS.index(("FROM", "${PYTHON_IMAGE}")) :] if word == "USER"]
    assert last == ["65532:65532"]
    (entrypoint,), (arguments,) = steps("ENTRYPOINT"), steps("CMD")
    assert json.loads(entrypoint) == ["privtab"]
    assert json.loads(arguments) == ["--help"]
    assert problems(["serve", "registry:/registry"]) == []
