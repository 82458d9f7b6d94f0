"""A command line: its command, and the exit code for each exception."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from privtab.base import errors, files, plugins, staged
from privtab.base.errors import UsageError
from privtab.base.printable import printable_output
from privtab.command._line import read, tab_lines


def modules_of(folders: Sequence[str] = (str(Path(__file__).parent),)) -> dict[str, str]:
    """The module of each command: every one in these folders whose name does not begin with `_`."""
    names = sorted(module.stem for folder in folders for module in Path(folder).glob("[!_]*.py"))
    return {name.replace("_", "-"): f"privtab.command.{name}" for name in names}


MODULES = modules_of()


def plugged() -> dict[str, Callable[[], Any]]:
    """The commands of packages beside the core, by name, and what loads them. Raises UsageError for a word of the core."""
    names = plugins.plugin_names("privtab.commands")
    if twice := sorted(MODULES.keys() & set(names)):
        raise UsageError(f"an installed package has a command `{twice[0]}`, which privtab has itself")
    return {name: partial(plugins.load_plugin, "privtab.commands", name) for name in names}


@cache
def command(first: str = "", second: str = "", *, listed: bool = False) -> Any:
    """The application, or its command with these words: Typer reads the signature of every command that it has.

    `listed`: with all other commands, as `commands.tsv` lists them for help and completion; further ones of a group are listed, too.
    """
    found: dict[str, Callable[[], Any]] = {}
    lines = _listed() if first or listed else {}
    loads = {word: partial(import_module, module) for word, module in MODULES.items()}
    for word, load in (loads | plugged()).items():
        if word in (first, f"{first}.{second}"):
            found[word] = load
        elif listed or not first or word.startswith(f"{first}."):
            found[word] = lines.get(word) or partial(_said, load)
    import typer.main

    from privtab.command._typer import application

    return typer.main.get_command(application(found))


def _listed() -> dict[str, Callable[[], Any]]:
    """Stand for modules of commands, with what help and completion say of them; a test writes the list from the modules."""
    places = MODULES | plugins.plugin_places("privtab.commands")
    lines = tab_lines("commands.tsv")
    return {word: partial(_stand_in, *said) for word, place, *said in lines if places.get(word) == place}


def _stand_in(panel: str, kind: str, meaning: str) -> Any:
    from privtab.command._typer import Commands

    def run() -> None: ...

    run.__doc__ = meaning
    return SimpleNamespace(PANEL=panel, **({"app": Commands(help=meaning)} if kind == "group" else {"run": run}))


def _said(load: Callable[[], Any]) -> Any:
    """The module of a command; None, which is said, for one that cannot be loaded: help shows the others."""
    try:
        return load()
    except UsageError as error:
        _print_error(str(error))
        return None


def _command(arguments: Sequence[str]) -> Any:
    """The part of the application that a command line needs, or a line that a shell completes."""
    if completing := "_PRIVTAB_COMPLETE" in os.environ:
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
        arguments = line.split()[1:]
    first, second, *_ = *(word for word in arguments if not word.startswith("-")), "", ""
    known = "." not in first and (first in MODULES or first in plugged())  # with a dot, it is a command of a group
    return command(first if known else "", second, listed=completing or not known)


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
        _print_error(f"warning: {message}")
    else:
        others(message, category, *place)


def _print_error(message: str) -> None:
    from privtab.command._output import print_error

    print_error(message)


def _ask(question: str) -> bool:
    """Ask at the terminal; without one, the answer is no."""
    if not sys.stdin.isatty():
        return False
    from typer import confirm

    return confirm(question, err=True)


staged.ask = _ask


def _check_moved(arguments: Sequence[str]) -> None:
    """Raise UsageError for an earlier name that no file has, with what to write instead, as `moved.tsv` lists them."""
    for was, now in tab_lines("moved.tsv"):
        words = was.split()
        if list(arguments[: len(words)]) == words and not Path(words[-1]).exists():
            raise UsageError(f"there is no `privtab {was}`: write `privtab {now}`")


def _read_by_hand(arguments: Sequence[str]) -> Callable[[], None] | None:
    """What a command line asks for; None for groups of the core, help, completion and faults, which are left to Typer.

    Loading Typer and describing a command to it takes longer than most commands work.
    """
    first, second = (*arguments, "", "")[:2]
    if first.startswith("-") or "." in first or "_PRIVTAB_COMPLETE" in os.environ:
        return None
    load: Callable[[], Any] | None
    if first in MODULES:
        words, load = arguments[1:], partial(import_module, MODULES[first])
    elif (load := plugged().get(f"{first}.{second}")) is not None:
        words = arguments[2:]
    else:
        words, load = arguments[1:], plugged().get(first)
    module: Any = None if load is None else load()
    if module is None or hasattr(module, "app") or hasattr(module, "SETTINGS"):
        return None
    return read(getattr(module, "run", module), words)


def _call(command: Callable[[], None]) -> None:
    """Run a command, which ends for `typer.Exit`, an interrupt and a reader that goes away as a command of Typer does."""
    try:
        command()
    except _endings() as error:
        import typer.main

        ended = error
        ending = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

        @ending.command()
        def end() -> None:
            raise ended

        typer.main.get_command(ending)(args=[], prog_name="privtab")


def _endings() -> tuple[type[BaseException], ...]:
    """The exceptions that end a command of Typer: those of its own have not been raised where it is not loaded."""
    typer = sys.modules.get("typer")
    return (KeyboardInterrupt, EOFError, BrokenPipeError, *((typer.Exit, typer.Abort) if typer is not None else ()))


def _run(arguments: Sequence[str]) -> int:
    if not arguments and "_PRIVTAB_COMPLETE" not in os.environ:
        sys.stdout.write(Path(__file__).with_name("start.txt").read_text(encoding="utf-8"))
        return errors.ExitCode.USAGE
    if arguments[:1] in (["rollback"], ["status"]):  # other programs call them so, and the next
        arguments = ["registry", *arguments]
    elif arguments[:2] == ["opa", "install"]:
        arguments = ["opa", "path", "--install", *arguments[2:]]
    try:
        _check_moved(arguments)
        if (call := _read_by_hand(arguments)) is None:
            _command(arguments)(args=list(arguments), prog_name="privtab")
        else:
            _call(call)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except (errors.PolicyInvalid, errors.SettingsInvalid, errors.StateInvalid) as error:
        from privtab.command._output import show_findings

        show_findings(error.findings if isinstance(error, errors.StateInvalid) else error.diagnostics)
        return error.exit_code
    except errors.InvalidRequest as error:
        _print_error(error.written(r"`--with \1=TYPE:PATH`"))
        return error.exit_code
    except errors.PrivtabError as error:
        _print_error(str(error))
        return error.exit_code
    except OSError as error:
        _print_error(str(error))
        return errors.ExitCode.EXTERNAL
    return errors.ExitCode.OK
