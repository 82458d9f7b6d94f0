"""docs/how-to/trino.md: its files and commands, with a real OPA and a real Trino, as they are written."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from checkout import ROOT
from documentation_pages import Block, read
from trino_server import Trino, trino

from privtab.command._app import run
from privtab.engines.opa.server import OpaServer

PAGE = "docs/how-to/trino.md"
SHIPPED = ROOT / "policy_src" / "trino" / "476.yaml"
ADDRESS = "127.0.0.1:8181"


def loaded(text: str) -> Any:
    """A document, whose keys `on` are words."""
    return yaml.safe_load(re.sub(r"\bon:", '"on":', text))


def merged(base: Any, more: Any) -> Any:
    """Two documents, what the second has added to the first."""
    if isinstance(base, Mapping) and isinstance(more, Mapping):
        return {**base, **{key: merged(base.get(key), value) for key, value in more.items()}}
    return [*base, *more] if isinstance(base, list) else more


@contextmanager
def served(folder: Path, properties: str) -> Iterator[tuple[str, Trino]]:
    """An OPA with the bundles, and a Trino with the properties of the page."""
    bundles = {part: folder / f"build/trino/476/{part}.tar.gz" for part in ("policy", "state")}
    with ExitStack() as stack:
        url = stack.enter_context(OpaServer(bundles)).url.removeprefix("http://")
        lines = properties.replace(ADDRESS, url).splitlines()
        yield url, stack.enter_context(trino(dict(line.split("=", 1) for line in lines), "olga"))


def statements(block: Block) -> Iterator[tuple[str, str, list[str]]]:
    """The user, the SQL and the output of each command of a block."""
    for part in block.text.split("$ ")[1:]:
        command, *output = part.splitlines()
        found = re.fullmatch(r'trino --user (\w+) --execute "(.*)"', command)
        assert found, command
        yield found[1], found[2], output


def printed(sql: Trino, user: str, statement: str) -> list[str]:
    """What Trino's command line prints."""
    found = sql.run(user, statement)
    return [found.message] if found.error else [",".join(f'"{value}"' for value in row) for row in found.rows]


@pytest.mark.long
@pytest.mark.xdist_group("trino")
def test_the_page_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    properties, url, shown, server = "", "", 0, ExitStack()
    (tmp_path / "trino.yaml").write_text(SHIPPED.read_text(encoding="utf-8"), encoding="utf-8")
    with server:
        for block in read(PAGE).blocks:
            if (names := block.names("add")) or (names := block.names("state")[:1]):
                path = tmp_path / names[0]
                base = loaded(path.read_text(encoding="utf-8")) if "add" in block.says else {}
                path.write_text(json.dumps(merged(base, loaded(block.text))), encoding="utf-8")
            elif block.language == "properties":
                properties += block.text
            elif "trino" in block.says:
                server.close()
                given = properties.replace("access-control.name=opa\n", "")
                url, sql = server.enter_context(served(tmp_path, given))
                for user, statement, output in statements(block):
                    assert printed(sql, user, statement) == output, statement
                    shown += 1
            elif "asked" in block.says:
                command, _, answer = block.text.replace("\\\n", "").partition("\n")
                words = shlex.split(command.removeprefix("$ ").replace(ADDRESS, url))
                kind = dict([words[4].split(": ")])
                assert (
                    requests.post(f"http://{words[2]}", words[-1], headers=kind, timeout=10).text.strip()
                    == answer.strip()
                )
                shown += 1
            elif block.language == "console" and "serve" not in block.says:
                command, _, expected = block.text.removeprefix("$ ").partition("\n")
                assert run(shlex.split(command)[1:]) == 0
                written = capsys.readouterr().out
                numbers = re.compile(r"[\d,]+ B|\b[0-9a-f]{16}\b|\d+ ms")
                assert [numbers.sub("#", " ".join(line.split())) for line in written.splitlines()] == [
                    numbers.sub("#", " ".join(line.split())) for line in expected.splitlines()
                ]
                shown += 1
    assert shown == 14
