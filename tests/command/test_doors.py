"""How many commands and options there are: both only fall."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from privtab.checks.lint.settings import Settings
from privtab.command._app import command

MOST_COMMANDS = 45
"""Commands that help shows."""
MOST_OPTIONS = 400
"""Options of these commands, and settings of `privtab.toml`."""


def commands(group: Any) -> Iterator[Any]:
    for member in group.commands.values():
        if not member.hidden:
            yield from commands(member) if hasattr(member, "commands") else [member]
    if group.params and getattr(group, "invoke_without_command", False) and group.name != "privtab":
        yield group  # a command, too


def test_commands_and_options_only_get_fewer() -> None:
    found = list(commands(command()))
    options = [parameter for one in found for parameter in one.params if parameter.param_type_name == "option"]
    assert len(found) <= MOST_COMMANDS
    settings = {field.name for field in dataclasses.fields(Settings)} - {"file"}
    assert len([option for option in options if option.name != "help"]) + len(settings) <= MOST_OPTIONS


def test_no_option_is_hidden() -> None:
    assert not [
        parameter.name for one in commands(command()) for parameter in one.params if getattr(parameter, "hidden", False)
    ]
