"""How many commands and options there are: both only fall."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from privtab.command._app import command

MOST_COMMANDS = 47
"""Commands that help shows; to be 45."""
MOST_OPTIONS = 416
"""Options of these commands; to be 400 with the settings."""


def commands(group: Any) -> Iterator[Any]:
    for member in group.commands.values():
        if not member.hidden:
            yield from commands(member) if hasattr(member, "commands") else [member]


def test_commands_and_options_only_get_fewer() -> None:
    found = list(commands(command()))
    options = [parameter for one in found for parameter in one.params if parameter.param_type_name == "option"]
    assert len(found) <= MOST_COMMANDS
    assert len([option for option in options if option.name != "help"]) <= MOST_OPTIONS


def test_no_option_is_hidden() -> None:
    assert not [
        parameter.name for one in commands(command()) for parameter in one.params if getattr(parameter, "hidden", False)
    ]
