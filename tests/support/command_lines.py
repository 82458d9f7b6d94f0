"""Command lines in scripts, containers and documents: whether the command line has these commands, options and choices."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from privtab.command._app import command


def commands_in(script: str) -> list[list[str]]:
    """The words of each `privtab …` of a shell script; variables stay as they are written."""
    joined = re.sub(r"\\\n\s*", " ", script)
    lines = re.findall(r"(?:^|[|&;({]|check|then|do)\s*(privtab (?:[^\n|&;>\"]|\"[^\"\n]*\")+)", joined, re.MULTILINE)
    return [shlex.split(re.sub(r"\s2$", "", line.strip()))[1:] for line in lines]


def problems(words: Iterable[str]) -> list[str]:
    """What the command line does not have of these words of one command; asked of the parameters that `--help` is made of."""
    group: Any = command()
    rest = list(words)
    while rest and hasattr(group, "commands") and rest[0] in group.commands:
        group = group.commands[rest.pop(0)]
    if hasattr(group, "commands") and not getattr(group, "invoke_without_command", False):
        return [f"no command `{' '.join(rest[:1])}`"]
    options = {name: p for p in group.params if p.param_type_name == "option" for name in (*p.opts, *p.secondary_opts)}
    found = []
    for number, word in enumerate(rest):
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            continue
        if name not in options:
            found.append(f"`{group.name}` has no option `{name}`")
            continue
        given = value if equals else next(iter(rest[number + 1 :]), "")
        choices = getattr(options[name].type, "choices", None)
        if choices and "$" not in given and given not in [str(getattr(c, "value", c)) for c in choices]:
            found.append(f"`{name}` of `{group.name}` does not take `{given}`")
    return found
