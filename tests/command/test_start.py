"""Modules that each command loads before it works: a module loaded for nothing is time that everybody waits."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import privtab
from privtab.base import lazy, plugins
from privtab.command import _app, _typer

STARTED = """
import atexit, sys
sys.argv = ["privtab", *sys.argv[1:]]
atexit.register(lambda: sys.stderr.write("LOADED " + " ".join(sys.modules)))
"""
MAIN = f"{STARTED}from privtab.command import main\nmain()"


def loaded(folder: Path, *words: str, start: str = MAIN, **environment: str) -> tuple[str, set[str]]:
    """The output of a command line, and every module that it loads in a process of its own."""
    command = [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}\n{start}", *words]
    ran = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, check=False, capture_output=True, text=True, timeout=120
    )
    errors, said, modules = ran.stderr.rpartition("LOADED ")
    assert said, ran.stderr
    assert not errors, errors
    return ran.stdout, set(modules.split())


def unwanted(modules: set[str], names: Sequence[str]) -> list[str]:
    return sorted(name for name in names if name in modules)


@pytest.mark.parametrize("start", [MAIN, f"{STARTED}import runpy\nrunpy.run_module('privtab', run_name='__main__')"])
def test_the_version_is_said_before_anything_is_loaded(start: str, tmp_path: Path) -> None:
    out, modules = loaded(tmp_path, "--version", start=start)
    assert out == f"privtab {privtab.__version__}\n"
    own = {name for name in modules if name.partition(".")[0] == "privtab"}
    assert own <= {"privtab", "privtab.__main__", "privtab.base", "privtab.base.lazy", "privtab.command"}
    assert not unwanted(modules, ("dataclasses", "inspect", "typing", "json", "typer", "rich", "importlib.metadata"))


LIST = Path(_app.__file__).with_name("commands.tsv")


def test_the_list_of_commands_is_that_of_the_commands(golden: Callable[[Path, str], None]) -> None:
    places = _app.MODULES | plugins.plugin_places("privtab.commands")
    lines = []
    for name, place in sorted(places.items()):
        found: Any = _app.command()
        for word in name.split("."):
            found = found.commands[word]
        kind = "group" if hasattr(found, "commands") else "command"
        meaning = " ".join(found.help.partition("\n\n")[0].split()).replace("\\[", "[")
        lines.append("\t".join((name, place, "" if "." in name else found.rich_help_panel, kind, meaning)))
    golden(LIST, "".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    "words", [["--help"], ["state", "--help"], ["bundle"], ["nope"], ["state", "nope"]], ids=" ".join
)
def test_help_from_the_list_is_the_help_of_the_commands(
    words: list[str], privtab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from_list = privtab(*words)
    loads: dict[str, Callable[[], Any]] = {}
    monkeypatch.setattr(_app, "_listed", lambda: loads)
    monkeypatch.setattr(_app, "command", _app.command.__wrapped__)
    whole = privtab(*words)
    assert (from_list.code, from_list.out, from_list.err) == (whole.code, whole.out, whole.err)
    assert whole.out + whole.err


def test_privtab_alone_shows_where_to_begin(privtab: Callable[..., Any]) -> None:
    ran = privtab()
    lines = [line.split() for line in ran.out.splitlines() if line.startswith("  ")]
    assert (ran.code, ran.err) == (2, "")
    assert [name for name, *_ in lines] == [*_typer.FIRST, "serve"]
    assert all(len(" ".join(line)) < 72 for line in lines)
    assert "`privtab --help` lists all commands" in ran.out


def words_of_help(group: Any, *above: str) -> Iterator[tuple[list[str], Any]]:
    """The words of each command, and the command."""
    for name, member in group.commands.items():
        yield from words_of_help(member, *above, name) if hasattr(member, "commands") else [([*above, name], member)]


@pytest.mark.parametrize("width", [60, 80])
def test_words_of_help_are_whole(width: int, privtab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of options, what they take, and what is said of them."""
    monkeypatch.setenv("COLUMNS", str(width))
    for words, found in words_of_help(_app.command()):
        shown = privtab(*words, "--help").out
        assert max(map(len, shown.splitlines())) <= width, words
        whole = set(re.sub("[│╭╮╰╯─]", " ", shown).split())
        for one in found.params:
            meaning = one.help() if callable(one.help) else one.help
            names = {name for name in one.opts if name.startswith("--")}
            assert names | set((meaning or "").replace("\\[", "[").split()) <= whole, (words, one.name)


def test_patterns_are_compiled_when_they_are_used() -> None:
    written = lazy.pattern("(A)-?b", re.IGNORECASE)
    assert "match" not in vars(written)
    found = written.match("a-b")
    assert found is not None
    assert found.groups() == ("a",)
    assert (written.sub("x", "aab"), written.pattern) == ("ax", "(A)-?b")
    assert copy.deepcopy(written).fullmatch("ab")  # as pickling does
    with pytest.raises(re.error):
        lazy.pattern("(").search("")


NEVER = (
    "importlib.metadata",
    "importlib.resources",
    "zipfile",
    "email",
    "csv",
    "xml.etree.ElementTree",
    "sqlglot",
    "numpy",
    "pyarrow",
    "requests",
    "lark",
)
"""Modules that no command here needs, with the libraries of other commands."""
BY_HAND = (*NEVER, "typer", "rich")
"""With what lays out help, faults and styles: a line without them is read by hand, and printed as it is."""
COMPILER = ("yaml", "privtab.pipeline", "privtab.language", "privtab.state")
HELP = (*NEVER, *COMPILER, "jinja2", "rich.markdown", "rich.traceback", "markdown_it", "pygments", "privtab_analysis")
POLICY = """\
privtab: 1
system: lake
version: "1"
entities: {cat: {tab:}}
privileges: [READ]
tables:
  tab:
    read: READ (tab)
"""
STATE = """\
grants: [{grantee: "user:ann", effect: allow, privilege: READ, entity: "tab:a/b"}]
"""
REQUEST = (
    '{"subject": {"type": "user", "id": "ann"}, "action": {"name": "read"}, "resource": {"type": "tab", "id": "a/b"}}\n'
)
ASKED = ("-p", "lake.yaml", "-s", "state.yaml")


@pytest.mark.parametrize(
    ("line", "unneeded"),
    [
        ("--help", (*HELP, "privtab.command.lint")),
        ("describe --help", (*HELP, "privtab.command.compile", "privtab.command.lint")),
        (
            "lint --help",
            (*NEVER, "rich.markdown", "rich.traceback", "markdown_it", "jinja2", "privtab.command.compile"),
        ),
        ("state --help", ("yaml", "lark", "jinja2", "rich.markdown", "privtab_spark", "privtab_connect")),
        ("explain --help", (*NEVER, "yaml", "jinja2", "rich.markdown", "rich.traceback", "privtab.pipeline")),
        ("lint lake.yaml", (*BY_HAND, "jinja2", "privtab.backends", "privtab.engines")),
        (
            "fmt --check lake.yaml",
            (*BY_HAND, "jinja2", "privtab.checks.conditions", "privtab.ir.solver", "pysat", "privtab.backends"),
        ),
        ("compile lake.yaml -o out", (*BY_HAND, "privtab.engines", "privtab_analysis")),
        ("describe lake.yaml", (*BY_HAND, "privtab.engines", "privtab_analysis")),
        ("decide -r asked.jsonl " + " ".join(ASKED), (*NEVER[:-2], "lark", "privtab_analysis", "typer", "rich")),
        (
            "explain ann read tab:a/b " + " ".join(ASKED),
            (
                "importlib.metadata",
                "importlib.resources",
                "email",
                "lark",
                "sqlglot",
                "pyarrow",
                "jinja2",
                "typer",
                "rich",
            ),
        ),
        (
            "diff lake.yaml lake.yaml",
            ("importlib.metadata", "email", "lark", "sqlglot", "pyarrow", "privtab.engines", "numpy", "typer", "rich"),
        ),
    ],
)
def test_a_command_loads_nothing_that_it_does_not_need(line: str, unneeded: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "lake.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "state.yaml").write_text(STATE, encoding="utf-8")
    (tmp_path / "asked.jsonl").write_text(REQUEST, encoding="utf-8")
    out, modules = loaded(tmp_path, *line.split())
    assert out
    assert unwanted(modules, unneeded) == []


@pytest.mark.parametrize(
    ("words", "offered", "unneeded"),
    [
        ("privtab li", "lint", (*HELP, "rich", "privtab.command.lint")),
        ("privtab state va", "validate", (*NEVER, "yaml", "privtab_spark", "privtab_connect")),
        ("privtab describe --form", "--format", (*HELP, "privtab.command.compile", "privtab.command.lint")),
    ],
)
def test_completion_loads_only_the_command_of_the_line(
    words: str, offered: str, unneeded: Sequence[str], tmp_path: Path
) -> None:
    line = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_PRIVTAB_COMPLETE": "complete_bash"}
    out, modules = loaded(tmp_path, **line)
    assert out.split() == [offered]
    assert unwanted(modules, unneeded) == []
