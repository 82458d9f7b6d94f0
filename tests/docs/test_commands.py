"""The reference of the command line is written from the commands themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from checkout import ROOT

from privtab.command._app import command
from privtab.command._typer import PANELS

PAGE = ROOT / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands

Every command with its arguments and options. `pytest tests/docs/test_commands.py --update-golden` writes this page from the
commands; `privtab COMMAND --help` prints the same with examples.
"""


def test_the_page_lists_every_command_with_its_options(golden: Callable[[Path, str], None]) -> None:
    top = command()
    groups = {panel: [c for c in commands(top) if c.rich_help_panel == panel] for panel in PANELS}
    assert sum(map(len, groups.values())) == len(top.commands)
    parts = [HEAD]
    for panel, members in groups.items():
        parts.append(f"## {panel}\n")
        parts += [text for command in members for text in described(command, f"privtab {command.name}")]
    golden(PAGE, "\n".join(parts))


def commands(group: Any) -> list[Any]:
    return [command for command in group.commands.values() if not command.hidden]


def described(command: Any, name: str) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name != "help"]
    yield f"### `{' '.join([name, *(written(p) for p in arguments)])}`\n"
    summary = (command.help or "").split("\n\nExample:")[0].replace("\\[", "[")
    yield f"{summary}\n"
    if arguments or options:
        rows = [row(f"`{written(p)}`", p) for p in arguments] + [row(spelt(p), p) for p in options]
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) + "\n"
    if hasattr(command, "commands"):
        for member in commands(command):
            yield from described(member, f"{name} {member.name}")


def row(label: str, parameter: Any) -> str:
    default = parameter.default
    shown = (
        [f"default `{default}`"] if isinstance(default, str | int | float) and default not in {True, False, ""} else []
    )
    notes = "; ".join(["required"] * parameter.required + shown)
    meaning = parameter.help() if callable(parameter.help) else parameter.help
    text = f"{meaning or ''}{f' ({notes})' if notes else ''}".replace("\\[", "[").replace("|", "\\|")
    return f"| {label} | {text} |"


def written(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).removesuffix("…")
    return f"{name}{'…' if argument.nargs == -1 else ''}"


def spelt(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return f"`{names} {option.metavar}`" if option.metavar else f"`{names}`"
