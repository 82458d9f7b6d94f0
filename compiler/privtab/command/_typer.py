"""The application that Typer has: help, completion, errors of command lines, and commands in groups."""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand
from typer.models import ArgumentInfo

from privtab import __version__
from privtab.base.errors import UsageError
from privtab.command._line import moved_first, tab_lines
from privtab.command._parameters import with_options

EXAMPLE = "Example:\n"
"""Begins a paragraph whose lines are not rewrapped."""


class Commands(typer.Typer):
    """A group of commands, whose parameters may be groups of options; docstrings are the help, with brackets as text.

    >>> app = Commands()
    >>> @app.command("list")
    ... def list_channels(url: str) -> None:
    ...     "List the channels of a registry."
    """

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a function as a command."""
        register = super().command

        def registered(function: Callable[..., None]) -> Any:
            run = with_options(function)
            moved = {"cls": partial(_Command, options=_options_of_arguments(run))}
            return register(name, help=_help(function), **moved | settings)(run)

        return registered

    def callback(self, **settings: Any) -> Callable[[Any], Any]:
        """Register what runs before any command of the group, or without one."""
        register = super().callback
        return lambda function: register(help=_help(function), **settings)(with_options(function))


def _help(function: Callable[..., None]) -> str:
    return rewrap(inspect.getdoc(function) or "")


def rewrap(text: str) -> str:
    r"""A docstring with each paragraph on one line, except examples.

    >>> rewrap("Say\nwhat is in [x].\n\nExample:\n  privtab a\n  privtab b")
    'Say what is in \\[x].\n\nExample:\n\n[dim][/dim]  privtab a\n  privtab b'
    """
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def _paragraph(text: str) -> str:
    plain = re.sub(r"\[(?=[a-z#/@])", r"\\[", text)
    # Typer removes the common indentation: the empty tag at the margin prevents that.
    return f"{EXAMPLE}\n[dim][/dim]{plain[len(EXAMPLE) :]}" if text.startswith(EXAMPLE) else " ".join(plain.split())


_UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""The classes that Typer imports for markup and tracebacks that this application does not have: a third of the time of `--help`."""


class _RichUtils(ModuleType):
    """Stands for `typer.rich_utils` until it prints help or an error: loading it takes as long as checking a thousand rows."""

    def __getattr__(self, name: str) -> Any:
        from privtab.command._terminal import Terminal

        unused = {module: ModuleType(module) for module in _UNUSED if module not in sys.modules}
        for module, stand_in in unused.items():
            setattr(stand_in, _UNUSED[module], type(_UNUSED[module], (), {}))
        sys.modules.update(unused)
        loaded = import_module(self.__name__)  # replaces this in `typer`
        for module in unused:
            del sys.modules[module]
        loaded.Console = Terminal  # type: ignore[attr-defined]  # Typer's own messages repeat arguments
        loaded.Table = type("Table", (loaded.Table,), {"__rich_console__": _rows})  # type: ignore[attr-defined]
        loaded.RICH_HELP = "Try '{command_path} {help_option}' for help."  # type: ignore[attr-defined]  # a pipe shows markup
        return getattr(loaded, name)


def _rows(table: Any, console: Any, options: Any) -> Iterator[Any]:
    """The rows of a table of help, which cut no word: a meaning stands below its names where they leave no room beside them."""
    rich, (*names, meanings) = sys.modules["typer.rich_utils"], [list(column.cells) for column in table.columns]
    for column in table.columns[:-2]:
        column.no_wrap = True
    wide = sum(max(len(str(cell)) for cell in cells) + 2 for cells in names)
    parts = (str(part) for meaning in meanings for part in getattr(meaning, "renderables", (meaning,)))
    if wide + max(len(word) for part in parts for word in (*part.split(), "")) <= options.max_width:
        yield from super(type(table), table).__rich_console__(console, options)
        return
    for *row, meaning in zip(*names, meanings, strict=True):
        yield rich.Text(" ").join(rich.Text.assemble(cell) for cell in row if cell)
        yield rich.Padding(meaning, (0, 0, 0, 4))


typer.rich_utils = _RichUtils("typer.rich_utils")  # type: ignore[attr-defined]

PANELS = ("Start here", "Write", "Check", "Ask", "Grant", "Ship", "Serve")
"""The groups of commands in `--help`; each module declares its own as `PANEL`."""
FIRST = ("init", "lint", "test", "diff", "explain", "compile", "deploy")
"""The first group in the order of the work; groups of commands follow."""


def _options_of_arguments(command: Callable[..., None]) -> list[Sequence[str]]:
    """The options that arguments of a command may be written as (`argument`)."""
    metadata = [getattr(annotation, "__metadata__", ()) for annotation in command.__annotations__.values()]
    return [
        info.param_decls for infos in metadata for info in infos if isinstance(info, ArgumentInfo) and info.param_decls
    ]


class _Command(TyperCommand):
    """A command whose arguments may be written as options, too, and may have functions that make their help."""

    def __init__(self, *args: Any, options: Sequence[Sequence[str]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._options = options

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the values of options that are arguments moved to the front. Raises UsageError for a former option."""
        for option in self._options:
            args = moved_first(args, option)
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            if now := dict(tab_lines("former.tsv")).get(name := getattr(error, "option_name", "")):
                raise UsageError(f"`{name}` is no option any more: {now}") from None
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print help, with the texts that are made for it."""
        params: list[Any] = self.params
        made = [(parameter, parameter.help) for parameter in params if callable(parameter.help)]
        try:
            for parameter, meaning in made:
                parameter.help = meaning()
            super().format_help(ctx, formatter)
        finally:
            for parameter, meaning in made:
                parameter.help = meaning


def application(commands: Mapping[str, Callable[[], Any]]) -> Commands:
    """Build the application with commands by what loads their modules.

    A module has `PANEL` and either `run`, the function of the command, or `app`, a group of commands. A name of two words,
    such as `state.import`, adds a command to a group.
    """
    root = Commands(
        name="privtab",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    ordered = dict.fromkeys((*filter(commands.__contains__, FIRST), *sorted(commands)))
    modules = {name: module for name in ordered if (module := commands[name]()) is not None}
    groups = {name: _group(module.app) for name, module in modules.items() if hasattr(module, "app")}
    for name, module in sorted(modules.items(), key=_place):
        group, _, own = name.rpartition(".")
        if name in groups:
            root.add_typer(groups[name], name=name, rich_help_panel=module.PANEL)
        elif not group:
            _register(root, own, module, rich_help_panel=module.PANEL)
        elif own in _subcommands(groups[group]):
            raise UsageError(f"an installed package has a command `{own}`, which its group has itself")
        else:
            _register(groups[group], own, module)
    root.callback()(_top)
    return root


def _group(app: typer.Typer) -> typer.Typer:
    """A group to which commands can be added; the group in its module stays as it is."""
    found = copy.copy(app)
    found.registered_commands = [*app.registered_commands]
    return found


def _subcommands(group: typer.Typer) -> set[str | None]:
    return {found.name for found in group.registered_commands} | {found.name for found in group.registered_groups}


def _place(command: tuple[str, Any]) -> int:
    """The place of a command in the help; commands of groups come last, once the groups are there."""
    name, module = command
    return len(PANELS) if "." in name else PANELS.index(module.PANEL)


def _register(group: typer.Typer, name: str, module: Any, **settings: Any) -> None:
    """Add a command: the `run` of a module, or a function that an entry point names itself."""
    group.command(name, **settings, **getattr(module, "SETTINGS", {}))(getattr(module, "run", module))


def _version(value: bool) -> None:  # noqa: FBT001  Typer passes the flag by position
    if value:
        from privtab.command._output import deliver

        deliver(f"privtab {__version__}\n")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Privilege tables as code: YAML tables become OPA bundles, and answers to who may do what."""
