"""docs/how-to/deploying.md: its commands, one after the other, with a real server and real sidecars."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import ROOT
from documentation_pages import read
from sidecar_fleet import WIDER, SidecarFleet, answers

from privtab.command._app import command, run

SERVER = "http://127.0.0.1:8180"
MASKS = (
    (r"\b[0-9a-f]{16}\b", "…"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "…"),
    (r"\b\d+ s ago", "… ago"),
    (r"after [\d.]+ s", "after …"),
    (r"  +", " "),
    (r" by \w+:", " by …:"),
    (r"(?<=ago) \w+ (?=owners|the first|too)", " … "),
)
PASSING = re.compile(r"  \w+ (active|waiting|refused) after ")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SidecarFleet]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    with SidecarFleet(tmp_path) as sidecars:
        yield sidecars


def tidy(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not PASSING.match(line)]
    for pattern, mask in MASKS:
        lines = [re.sub(pattern, mask, line).strip() for line in lines]
    return lines


@pytest.mark.slow
def test_the_commands_say_what_the_page_shows(fleet: SidecarFleet, capsys: pytest.CaptureFixture[str]) -> None:
    shown = 0
    for block in read("docs/how-to/deploying.md").blocks:
        if block.language != "console" or block.says:
            continue
        [part] = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
        command, _, output = part.partition("\n")
        capsys.readouterr()
        run(shlex.split(command.replace(SERVER, fleet.server))[1:])
        printed = capsys.readouterr()
        assert tidy(printed.out + printed.err) == tidy(output), command
        shown += 1
        if shown == 1:
            fleet.serve()
            fleet.sidecar("web", "zone=a")
            fleet.sidecar("etl", "zone=b")
            fleet.wait(lambda: all(answers(f"{url}/health?bundles=true") for url in fleet.urls.values()))
            fleet.wait(lambda: len(fleet.reported()["sidecars"]) == 2)
            fleet.policy.write_text(WIDER, encoding="utf-8")
    assert shown == 4


def test_the_options_and_files_that_it_names_are_there() -> None:
    text = (ROOT / "docs" / "how-to" / "deploying.md").read_text(encoding="utf-8")
    deploy, registry = (command().commands[name] for name in ("deploy", "registry"))
    commands = (deploy, registry.commands["rollback"], registry.commands["status"])
    known = {name for shown in commands for parameter in shown.params for name in parameter.opts}
    stack = (ROOT / "examples" / "stack.py").read_text(encoding="utf-8")
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - {"--listen"}  # of `privtab serve`
    assert {option for option in options - known if f'"{option}"' not in stack} == set()
    named = re.findall(r"`((?:opa|examples)/[\w./-]+)`", text)
    assert named
    assert all((ROOT / name).exists() for name in named)
