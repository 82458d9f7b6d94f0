"""docs/how-to/signing.md: its commands, one after the other, print what it shows but for sizes, times and hashes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from documentation_pages import read

from privtab.command._app import run

_HASH = re.compile(r"\b[0-9a-f]{16,64}\b")
_NUMBER = re.compile(r"\b[\d,]+ (B|bytes|ms|lines of Rego)(?= |:|$)", re.MULTILINE)


def tidy(text: str) -> list[str]:
    lines = _NUMBER.sub(r"… \1", _HASH.sub("…", text)).strip().splitlines()
    # Columns are as wide as what stands in them.
    return [" ".join(line.split()) for line in lines]


def test_the_commands_of_the_page_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    page = read("docs/how-to/signing.md")
    page.write(tmp_path)
    shown = 0
    for block in page.blocks:
        if block.language != "console" or block.says:
            continue
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            capsys.readouterr()
            words = shlex.split(command)
            assert words[0] == "privtab"
            run(words[1:])
            printed = capsys.readouterr()
            expected, actual = tidy(output), tidy(printed.out + printed.err)
            if expected[-1] == "…":  # and so on
                expected.pop()
                actual = actual[: len(expected)]
            assert actual == expected, command
            shown += 1
    assert shown >= 5
