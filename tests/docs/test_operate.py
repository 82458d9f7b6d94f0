"""docs/how-to/operate.md: what befalls a real registry, a real server and real sidecars looks as the page shows."""

from __future__ import annotations

import getpass
import re
import shlex
from pathlib import Path

import pytest
from documentation_pages import read
from operations_page import OperationsPage

from privtab.command._app import run

_VARIES = (
    (re.compile(r"\b([0-9a-f]{16}|[0-9a-f]{10})\b"), "#"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+Z)?"), "WHEN"),
    (re.compile(r"\b\d+(\.\d)? s( ago)?\b"), "N s"),
    (re.compile(r"\b[\d,]+ bytes\b"), "N bytes"),
    (re.compile(rf"\b({re.escape(getpass.getuser())}|ops)\b"), "WHO"),
)


def tidy(text: str) -> list[str]:
    for pattern, shown in _VARIES:
        text = pattern.sub(shown, text)
    lines = [" ".join(line.split()) for line in text.strip().splitlines()]
    return [line for line in lines if line]


@pytest.mark.slow
def test_the_commands_of_the_page_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    shown = 0
    with OperationsPage(tmp_path) as world:
        places = {"http://127.0.0.1:8180": world.fleet.server, "http://127.0.0.1:8182": world.fleet.urls["web-1"]}
        for block in read("docs/how-to/operate.md").blocks:
            if block.language != "console" or "sketch" in block.says:
                continue
            for event in block.says.get("after", []):
                if event != "none":
                    world.happen(event)
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                runnable = command
                for place, real in places.items():
                    runnable, output = runnable.replace(place, real), output.replace(place, real)
                capsys.readouterr()
                assert run(shlex.split(runnable)[1:]) != 2, command
                printed = capsys.readouterr()
                expected, actual = tidy(output), tidy(printed.out + printed.err)
                assert actual, command
                if expected[-1] == "…":  # and so on
                    expected.pop()
                    actual = actual[: len(expected)]
                assert actual == expected, command
                shown += 1
    assert shown >= 8
