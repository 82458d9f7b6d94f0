"""docs/conformance.md: its commands with a real server, its driver in Python, and the options and files that it names; and the figures of its method."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from authzen_server import start
from checkout import ROOT
from documentation_pages import read
from postgresql_server import postgresql

from privtab.command._app import command, run
from privtab.pipeline import load_program
from privtab_testing.conform import SystemAnswer, Verdict
from privtab_testing.conform.driver import PlainDriver
from privtab_testing.conform.mistakes import mistakes
from privtab_testing.conform.plan import plan

PAGE = "docs/conformance.md"
METHOD = "docs/internals/conformance.md"
SERVER = "http://127.0.0.1:8181"
DATABASE = "postgresql+psycopg://postgres@/postgres"


def commands() -> list[str]:
    """The commands of the page, each without what it prints."""
    blocks = (block for block in read(PAGE).blocks if block.language == "console")
    return [line for block in blocks for line in re.findall(r"^\$ (.*)$", block.text, flags=re.MULTILINE)]


@pytest.mark.slow
def test_the_commands_for_a_server_of_authzen_do_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write, serve, ask = (command for command in commands() if SERVER in command or "privtab serve" in command)
    assert run(shlex.split(write)[1:]) == 0
    options = shlex.split(serve.removesuffix(" &"))[2:]
    server = start(options[: options.index("--listen")], tmp_path)
    try:
        assert run(shlex.split(ask.replace(SERVER, server.url))[1:]) == 0
    finally:
        server.stop()
    assert "427 of 427 cells agree" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.xdist_group("postgresql-15")
def test_the_command_for_postgresql_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    [command] = (command for command in commands() if DATABASE in command)
    with postgresql() as url:
        arguments = shlex.split(command.replace(DATABASE, url).replace("examples/", f"{ROOT}/examples/"))[1:]
        assert run(arguments) == 0
    assert "264 of 264 cells agree" in capsys.readouterr().out


def test_the_driver_in_python_has_the_methods_of_the_protocol() -> None:
    [block] = (block for block in read(PAGE).blocks if block.language == "python")
    names: dict[str, type] = {}
    exec(block.text, names)  # noqa: S102  (the block is the page's)
    assert isinstance(names["Driver"]("http://127.0.0.1"), PlainDriver)


def test_the_answers_verdicts_options_and_keys_are_those_of_the_code() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    options = {name for parameter in command().commands["conform"].params for name in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", text)) - {"--mutation"} <= options
    assert set(re.findall(r"^\| `(\w+)` \| [^|]*(?:table|neither|nothing was asked)", text, flags=re.MULTILINE)) >= set(
        Verdict
    )
    assert all(f"`{answer}`" in text for answer in SystemAnswer)
    links = re.findall(r"\]\(\.\./([^)#]+)\)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize(
    "policy",
    [
        "mariadb/10.11",
        pytest.param("cdap/final", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("streams/teracloud", "postgresql/15")),
    ],
)
def test_the_sizes_of_plans_are_those_of_the_page(policy: str) -> None:
    planned = plan(load_program(policy))
    sizes = (len(planned.cells), len(planned.questions), len(planned.world.users), planned.world.rows)
    seen = f"{len(planned.mistakes) - len(planned.unseen)} of {len(planned.mistakes)}"
    row = re.search(
        rf"^\| `{re.escape(policy)}` \|(.*)\|$", (ROOT / METHOD).read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert row is not None
    *numbers, kinds = row[1].split("|")
    assert (sizes, seen) == (tuple(int(cell.replace(",", "")) for cell in numbers), kinds.strip())


def test_the_page_lists_every_kind_of_mistake() -> None:
    rows = [f"| `{mistake.id}` | {mistake.text} | {mistake.needs} |" for mistake in mistakes()]
    assert "\n".join(rows) in (ROOT / METHOD).read_text(encoding="utf-8")
