"""docs/how-to/registry.md: its commands print what it shows, its configuration makes a sidecar of an OPA."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import sidecars
import yaml
from authzen_server import start
from checkout import ROOT
from documentation_pages import read

from privtab.bundle import state_bundle
from privtab.command._app import run
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import load_raw_state, validate
from privtab_server.registry import Registry
from privtab_server.registry.server.app import Role

PAGE = "docs/how-to/registry.md"
_CHANGES = (
    (re.compile(r"\b(?:[0-9a-f]{16}|[0-9a-f]{10})\b"), "…"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b"), "…"),
    (re.compile(r"(?<= )[\d,]+(?= (?:B|bytes|ms)\b)"), "…"),
    (re.compile(r"(?<=…) +[\d,]+(?= +(?:no|yes))"), "…"),
    (re.compile(r"(?m)^(dev +lake.*?…) \S+(?= the first)"), r"\1 who"),
)


def tidy(text: str) -> list[str]:
    lines = [" ".join(line.split()) for line in text.strip().splitlines()]
    shown = "\n".join(lines)
    for pattern, instead in _CHANGES:
        shown = pattern.sub(instead, shown)
    return shown.splitlines()


def test_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    page = read(PAGE)
    page.write(tmp_path)
    shown = 0
    for block in page.blocks:
        if block.language != "console" or block.says:
            continue
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            capsys.readouterr()
            assert run(shlex.split(command)[1:]) == 0, command
            printed = capsys.readouterr()
            assert tidy(printed.out + printed.err) == tidy(output), command
            shown += 1
    assert shown == 6


def test_the_configuration_makes_a_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = read(PAGE)
    page.write(tmp_path)
    program = load_program("lake.yaml")
    state, _ = validate(program, load_raw_state(Path("state.yaml")))
    registry = Registry.open("registry")
    current = registry.release(
        "dev",
        "lake",
        policy=registry.put(policy_artifacts(program).bundle()).id,
        state=registry.put(state_bundle(program, state)).id,
    )
    (block,) = [block for block in page.blocks if "opa" in block.says]
    server = start(["registry:registry"], tmp_path)
    try:
        config = yaml.safe_load(block.text)
        config["services"]["registry"]["url"] = server.url
        with sidecars.running(tmp_path, config) as (opa,):
            sidecars.until(lambda: opa.revision("lake_policy") == current.policy)
            sidecars.until(lambda: opa.revision("lake_state") == current.state)
            sidecars.until(lambda: [listed["current"] for listed in server.get("/fleet").json()["sidecars"]] == [True])
            (sidecar,) = server.get("/fleet").json()["sidecars"]
            assert (sidecar["id"], sidecar["labels"]["zone"]) == ("web-7f9c", "north")
    finally:
        server.stop()


def test_roles_and_paths_are_those_of_the_page() -> None:
    text = ROOT.joinpath(PAGE).read_text(encoding="utf-8")
    assert set(re.findall(r"\| `(\w+)` \|", text)) >= set(Role)
