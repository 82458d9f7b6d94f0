"""The application: its commands, and the exit code for each exception."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand

from privtab import __version__
from privtab.base import errors, files, plugins, staged
from privtab.base.errors import UsageError
from privtab.base.printable import printable_output
from privtab.command._output import Terminal, deliver, print_error, show_findings
from privtab.command._parameters import options_of_arguments, with_options

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
            moved = {"cls": partial(_Command, options=options_of_arguments(run))}
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


class _RichUtils(ModuleType):
    """Stands for `typer.rich_utils` until it prints help or an error: loading it takes as long as checking a thousand rows."""

    def __getattr__(self, name: str) -> Any:
        loaded = import_module(self.__name__)  # replaces this in `typer`
        loaded.Console = Terminal  # type: ignore[attr-defined]  # Typer's own messages repeat arguments
        loaded.RICH_HELP = "Try '{command_path} {help_option}' for help."  # type: ignore[attr-defined]  # a pipe shows markup
        return getattr(loaded, name)


typer.rich_utils = _RichUtils("typer.rich_utils")  # type: ignore[attr-defined]

PANELS = ("Start here", "Write", "Check", "Ask", "Grant", "Ship", "Serve")
"""The groups of commands in `--help`; each module declares its own as `PANEL`."""
FIRST = ("init", "lint", "test", "diff", "explain", "compile", "deploy")
"""The first group in the order of the work; groups of commands follow."""


def modules_of(folders: Sequence[str] = (str(Path(__file__).parent),)) -> dict[str, str]:
    """The module of each command: every one in these folders whose name does not begin with `_`."""
    names = sorted(module.name for module in iter_modules(folders))
    return {name.replace("_", "-"): f"privtab.command.{name}" for name in names if not name.startswith("_")}


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


class _Command(TyperCommand):
    """A command whose arguments may be written as options, too, and may have functions that make their help."""

    def __init__(self, *args: Any, options: Sequence[Sequence[str]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._options = options

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the values of options that are arguments moved to the front."""
        for option in self._options:
            args = moved_first(args, option)
        return super().parse_args(ctx, args)

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
    for name, module in sorted(modules.items(), key=_place):
        group, _, own = name.rpartition(".")
        if hasattr(module, "app"):
            root.add_typer(module.app, name=name, rich_help_panel=module.PANEL)
        elif not group:
            _register(root, own, module, rich_help_panel=module.PANEL)
        else:
            _add(modules[group].app, own, module)
    root.callback()(_top)
    return root


def _place(command: tuple[str, Any]) -> int:
    """The place of a command in the help; commands of groups come last, once the groups are there."""
    name, module = command
    return len(PANELS) if "." in name else PANELS.index(module.PANEL)


def _register(group: typer.Typer, name: str, module: Any, **settings: Any) -> None:
    """Add a command: the `run` of a module, or a function that an entry point names itself."""
    group.command(name, **settings, **getattr(module, "SETTINGS", {}))(getattr(module, "run", module))


_added: set[tuple[int, str]] = set()
"""The commands that packages added to groups, which stay as they are."""


def _add(group: typer.Typer, name: str, module: Any) -> None:
    """Add a command of a package to a group, once. Raises UsageError where the group has it itself."""
    if (id(group), name) in _added:
        return
    if name in subcommands(group):
        raise UsageError(f"an installed package has a command `{name}`, which its group has itself")
    _added.add((id(group), name))
    _register(group, name, module)


def subcommands(group: typer.Typer) -> set[str | None]:
    """The names of the commands and groups of a group, as far as it has them."""
    return {found.name for found in group.registered_commands} | {found.name for found in group.registered_groups}


def _version(value: bool) -> None:  # noqa: FBT001  Typer passes the flag by position
    if value:
        deliver(f"privtab {__version__}\n")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Privilege tables as code: YAML tables become OPA bundles, and answers to who may do what."""


MODULES = modules_of()
MOVED: Mapping[tuple[str, ...], tuple[str, ...]] = {
    **{(name,): ("store", name) for name in ("grant", "revoke", "assign", "unassign", "own", "show")},
    **{("state", name): ("store", name) for name in ("log", "undo")},
    **{(name,): ("bundle", name) for name in ("sign", "verify", "inspect", "keys")},
    **{(name,): ("registry", name) for name in ("rollback", "status")},
    ("spark", "certify"): ("certify",),
    ("store", "serve"): ("serve", "store"),
}
"""Where commands of earlier names are now. They work for one version more."""


def plugged() -> dict[str, Callable[[], Any]]:
    """The commands of packages beside the core, by name, and what loads them. Raises UsageError for a word of the core."""
    names = plugins.plugin_names("privtab.commands")
    if twice := sorted(MODULES.keys() & set(names)):
        raise UsageError(f"an installed package has a command `{twice[0]}`, which privtab has itself")
    return {name: partial(plugins.load_plugin, "privtab.commands", name) for name in names}


@cache
def command(name: str | None = None, *, own: bool = False) -> Any:
    """The application, or only its command with this name: Typer reads the signature of every command that it has.

    `own`: without the commands that packages add to a group, whose entry points take as long to read as a small command runs.
    """
    found: dict[str, Callable[[], Any]] = {
        word: partial(import_module, module) for word, module in MODULES.items() if name in (word, None)
    }
    added = {} if own else plugged()
    if name is None:
        found |= {word: partial(_said, load) for word, load in added.items()}
    else:
        found |= {word: load for word, load in added.items() if name in (word, word.partition(".")[0])}
    return typer.main.get_command(application(found))


def _said(load: Callable[[], Any]) -> Any:
    """The module of a command; None, which is said, for one that cannot be loaded: help shows the others."""
    try:
        return load()
    except UsageError as error:
        print_error(str(error))
        return None


def _command(arguments: Sequence[str]) -> Any:
    """The part of the application that a command line needs: for help, completion and words that nothing has, all of it."""
    first, second, *_ = *(word for word in arguments[:2] if not word.startswith("-")), "", ""
    if not first and "--version" in arguments:
        return command(FIRST[0], own=True)
    if first not in MODULES:
        return command(first if first in plugged() else None)
    group = getattr(import_module(MODULES[first]), "app", None)
    return command(first, own=group is None or (second in subcommands(group) and (id(group), second) not in _added))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; privtab's own errors never show a traceback."""
    files.begin(arguments)
    with printable_output(), warnings.catch_warnings():
        warnings.simplefilter("always", files.SecretWarning)
        warnings.showwarning = partial(_show_warning, warnings.showwarning)
        return _run(arguments)


def _show_warning(others: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Print a warning about a secret as a line of the command, any other as Python does."""
    if issubclass(category, files.SecretWarning):
        print_error(f"warning: {message}")
    else:
        others(message, category, *place)


def _ask(question: str) -> bool:
    """Ask at the terminal; without one, the answer is no."""
    return sys.stdin.isatty() and typer.confirm(question, err=True)


staged.ask = _ask


def _moved(arguments: Sequence[str]) -> Sequence[str]:
    """The command line with a command's name of now, which is said for an earlier one."""
    for count in (1, 2):
        if (now := MOVED.get(tuple(arguments[:count]))) is not None:
            was = " ".join(arguments[:count])
            print_error(
                f"`privtab {was}` is `privtab {' '.join(now)}` now; the earlier name goes with the next version"
            )
            return [*now, *arguments[count:]]
    if arguments[:1] == ["serve"] and any(word.partition("=")[0] == "--registry" for word in arguments):
        print_error("`privtab serve --registry` is `privtab serve registry` now; the option goes with the next version")
        return ["serve", "registry", *arguments[1:]]
    return arguments


def _run(arguments: Sequence[str]) -> int:
    arguments = _moved(arguments)
    try:
        _command(arguments)(args=list(arguments), prog_name="privtab")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except (errors.PolicyInvalid, errors.SettingsInvalid) as error:
        show_findings(error.diagnostics)
        return error.exit_code
    except errors.StateInvalid as error:
        show_findings(error.findings)
        return error.exit_code
    except errors.InvalidRequest as error:
        print_error(error.written(r"`--with \1=TYPE:PATH`"))
        return error.exit_code
    except errors.PrivtabError as error:
        print_error(str(error))
        return error.exit_code
    except OSError as error:
        print_error(str(error))
        return errors.ExitCode.EXTERNAL
    return errors.ExitCode.OK
