"""A command line, read by hand. What is not plain here is left to Typer, which also says what is wrong with a line."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from privtab.base.errors import PrivtabError
from privtab.command._parameters import Parameter, declared

_READ = {"min", "max", "parser"}
_SHOWN = {"autocompletion", "show_default", "rich_help_panel", "envvar", "callback"}
"""Settings that do not matter here: a variable that is set, and an option that is given and has a callback, are Typer's."""


def tab_lines(name: str) -> list[list[str]]:
    """The cells of each line of a list beside this file, whose cells are parted by tabs."""
    return [line.split("\t") for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()]


class _UnclearError(ValueError):
    """A line that Typer reads."""


def read(command: Callable[..., None], words: Sequence[str]) -> Callable[[], None] | None:
    """The call that a command line asks for; None if Typer must read the line.

    Values are those of Typer: the last of an option that is repeated, and a callback returns what is not given as it is.
    """
    parameters, run = declared(command)
    try:
        return partial(run, **_values(parameters, words))
    except (ValueError, PrivtabError):  # a fault in a value: Typer names its option, and orders the faults
        return None


def _values(parameters: Sequence[inspect.Parameter], words: Sequence[str]) -> dict[str, Any]:
    """The value of each parameter. Raises _UnclearError, and ValueError for a wrong value."""
    kinds = [_Kind(parameter) for parameter in parameters]
    arguments = [kind for kind in kinds if not kind.names]
    given = _given({name: kind for kind in kinds for name in kind.names}, _ordered(arguments, words))
    rest = given.pop(None, [])
    for number, kind in enumerate(arguments, start=1):
        if kind.many and number < len(arguments):
            raise _UnclearError
        taken = len(rest) if kind.many else min(1, len(rest))
        if taken:
            given[kind], rest = rest[:taken], rest[taken:]
    if rest:
        raise _UnclearError
    return {kind.name: kind.value(given.get(kind)) for kind in kinds}


def _ordered(arguments: Sequence[_Kind], words: Sequence[str]) -> list[str]:
    found = list(words)
    for kind in arguments:
        if kind.also:
            found = moved_first(found, kind.also)
    return found


def _given(options: dict[str, _Kind], words: list[str]) -> dict[_Kind | None, list[str]]:
    """The texts of each option, and under None the other words."""
    given: dict[_Kind | None, list[str]] = {}
    while words:
        word = words.pop(0)
        if word == "--":
            given.setdefault(None, []).extend(words)
            break
        if not word.startswith("-") or word == "-":
            given.setdefault(None, []).append(word)
            continue
        name, equals, text = word.partition("=")
        kind = options.get(name)
        if kind is None or (equals and (kind.flag or not name.startswith("--"))):
            raise _UnclearError
        if not kind.flag and not equals:
            text = words.pop(0) if words else "-"
        if kind.flag:
            text = name
        elif text.startswith("-"):
            raise _UnclearError
        given.setdefault(kind, []).append(text)
    return given


class _Kind:
    """A parameter: its names, and what makes a value of its texts. Raises _UnclearError for one that Typer must read."""

    def __init__(self, parameter: inspect.Parameter) -> None:
        metadata: tuple[Any, ...] = getattr(parameter.annotation, "__metadata__", ())
        if len(metadata) != 1 or not isinstance(metadata[0], Parameter):
            raise _UnclearError
        written: Parameter = metadata[0]
        self.name, self.default, self.settings = parameter.name, parameter.default, written.settings
        self.also = written.also
        pairs = [name.split("/") for name in written.names]
        self.off = {name for _, *off in pairs for name in off}
        """The names that switch a flag off, as in `--colours/--no-colours`."""
        self.names = [name for pair in pairs for name in pair]
        kinds = [parameter.annotation.__origin__]
        if get_origin(kinds[0]) in (UnionType, Union):
            kinds = [kind for kind in get_args(kinds[0]) if kind is not NoneType]
        kind: Any = kinds[0] if len(kinds) == 1 else None
        self.many = get_origin(kind) is list
        self.kind = next(iter(get_args(kind))) if self.many else kind
        self.flag = self.kind is bool
        if self.settings.keys() - _READ - _SHOWN or (self.flag and (self.many or not self.names)):
            raise _UnclearError

    def value(self, texts: list[str] | None) -> Any:
        """The value for the texts of a command line. Raises _UnclearError, and what a parser raises."""
        if texts is None:
            variable = self.settings.get("envvar")
            if self.default is inspect.Parameter.empty or (variable is not None and variable in os.environ):
                raise _UnclearError
            return self.default
        if "callback" in self.settings or "" in texts:
            raise _UnclearError
        values = [self._value(text) for text in texts]
        return values if self.many else values[-1]

    def _value(self, text: str) -> Any:
        parser, kind = self.settings.get("parser"), self.kind
        if parser is not None:
            return parser(text)
        if kind is bool:
            return text not in self.off
        if kind is str:
            return text
        if kind is int:
            return self._within(int(text))
        if kind is Path and (os.access(text, os.R_OK) or not Path(text).exists()):
            return Path(text)
        if get_origin(kind) is Literal and text in get_args(kind):
            return text
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind(text)
        raise _UnclearError

    def _within(self, number: int) -> int:
        least, most = self.settings.get("min"), self.settings.get("max")
        if (least is not None and number < least) or (most is not None and number > most):
            raise _UnclearError
        return number


def moved_first(args: list[str], option: Sequence[str]) -> list[str]:
    """Arguments with the value of an option moved to the front, where an argument is.

    >>> moved_first(["prod", "--registry", "/srv/registry", "lake"], ("--registry", "-r"))
    ['/srv/registry', 'prod', 'lake']
    """
    options = args[: args.index("--")] if "--" in args else args
    for position, word in enumerate(options):
        name, equals, value = word.partition("=")
        if name in option and equals:
            return [value, *args[:position], *args[position + 1 :]]
        if word in option and position + 1 < len(options):
            return [args[position + 1], *args[:position], *args[position + 2 :]]
    return args
