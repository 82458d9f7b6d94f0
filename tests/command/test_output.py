"""What is shown while something runs."""

from __future__ import annotations

import ast
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest
from checkout import sources

from privtab.base.errors import ExitCode
from privtab.base.request import Entity
from privtab.command import _output, _terminal

BY_HAND = {
    "typer.echo",
    "sys.stdout.write",
    "sys.stderr.write",
    "sys.stdout.flush",
    "csv.writer",
    "json.dumps",
    "print",
}
"""What prints or formats without the one place for it."""
MEANT = {
    ("__init__.py", "sys.stdout.write"): "Typer and Rich are missing",
    ("__init__.py", "sys.stderr.write"): "Typer and Rich are missing",
    ("_app.py", "sys.stdout.write"): "a text of ours, before Rich is loaded",
    ("opa.py", "json.dumps"): "an argument of curl",
    ("filter.py", "json.dumps"): "quotes a parameter in a comment of SQL",
    ("filter.py", "csv.writer"): "rows for programs",
    ("test.py", "json.dumps"): "quotes a YAML scalar",
}


COMMANDS = [
    path
    for name, path in sources().items()
    if {"command", "commands"} & set(name.split("/")[:-1])
    and path.name not in ("_output.py", "_layout.py", "_terminal.py")
]
"""The modules of commands, of the core and of packages."""


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_commands_print_in_one_place() -> None:
    assert {(path.name, call) for path in COMMANDS for call in calls(path) if call in BY_HAND} == set(MEANT)


def test_exit_codes_are_named() -> None:
    for path in COMMANDS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"typer.Exit", "sys.exit"}:
                for argument in node.args:
                    chosen = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
                    assert not any(isinstance(branch, ast.Constant) for branch in chosen), f"{path}:{node.lineno}"
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3]


@pytest.mark.parametrize(("format_", "out"), [("json", '[\n  "a\\u001b"\n]\n'), ("csv", "x\n'=1\n"), ("text", "")])
def test_a_format_is_printed_where_it_was_requested(capsys: pytest.CaptureFixture[str], format_: str, out: str) -> None:
    is_printed = _output.print_if_data(format_, ["a\x1b"], ("x",), [("=1",)])
    assert capsys.readouterr().out == out
    assert is_printed is bool(out)


@dataclass(frozen=True)
class Shown:
    with_: Entity
    names: tuple[str, ...] = ()


def test_dataclasses_and_entities_are_json() -> None:
    shown = Shown(Entity.parse("table:m/t"), ("a", "b"))
    assert json.loads(_output.as_json({"found": [shown]})) == {"found": [{"with": "table:m/t", "names": ["a", "b"]}]}
    with pytest.raises(TypeError, match="a set is not JSON"):
        _output.as_json({1})


def test_a_report_is_printed_or_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    reports: list[object] = ["a text\n", lambda console: console.print("a text", style="bold")]
    for number, report in enumerate(reports):
        _output.deliver(report)
        assert capsys.readouterr().out == "a text\n"
        _output.deliver(report, tmp_path / str(number))
        assert capsys.readouterr().out == ""
        assert (tmp_path / str(number)).read_text() == "a text\n"


@dataclass
class Count:
    """A report that is a value."""

    rules: int


def test_an_object_has_the_number_of_its_format_and_nothing_else_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _output.deliver({"rules": 3}, tmp_path / "report.json")
    _output.deliver({"rules": 3})
    printed = capsys.readouterr().out
    assert (tmp_path / "report.json").read_text() == printed
    assert list(json.loads(printed).items()) == [("format", _output.JSON_FORMAT), ("rules", 3)]
    for report in (Count(rules=3), MappingProxyType({"rules": 3})):
        _output.deliver(report)
        assert capsys.readouterr().out == printed
    _output.deliver([{"rules": 3}])
    assert json.loads(capsys.readouterr().out) == [{"rules": 3}]
    _output.deliver({"keys": {}}, numbered=False)
    assert json.loads(capsys.readouterr().out) == {"keys": {}}


def test_what_is_left_out_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    _output.out().more(0)
    _output.out().more(1200, "rows", apart=True)
    _output.out().more(1, how="`--all` shows them", indent=2)
    lines = ("", "… and 1,200 more rows; `--limit 0` lists them", "  … and 1 more; `--all` shows them")
    assert capsys.readouterr().out.splitlines() == list(lines)


def test_parts_of_a_line_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    _output.out().print_styled("a\x07", ("b\x1b[31m", "bold"))
    assert capsys.readouterr().out == "a\\x07b\\x1b[31m\n"


@pytest.mark.parametrize(("total", "shown"), [(0, False), (3, True)])
def test_a_bar_is_shown_where_there_is_something_to_do(total: int, *, shown: bool) -> None:
    screen = io.StringIO()
    with _terminal.Terminal(file=screen, force_terminal=True, width=80).progress(total):
        pass
    assert (f"0/{total}" in screen.getvalue()) is shown


@pytest.mark.parametrize(
    ("terminal", "wait", "shown"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_slow_steps_are_announced_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool, wait: bool, shown: bool
) -> None:
    screen = io.StringIO()
    console = _terminal.Terminal(file=screen, force_terminal=terminal, width=80)
    begun = threading.Event()
    status = console.status("comparing")
    monkeypatch.setattr(console, "status", lambda _: status)
    start = status.start

    def started() -> None:
        start()
        begun.set()

    monkeypatch.setattr(status, "start", started)
    with console.spinner("comparing", after=1.0):
        if wait:
            begun.wait(10 if shown else 1.5)
    assert ("comparing" in screen.getvalue()) is shown
