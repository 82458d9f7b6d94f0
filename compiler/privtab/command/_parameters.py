"""Parameters of commands: options, arguments, groups of options that several commands have, and completion."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path, PosixPath
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import ArgumentInfo

from privtab.base import files
from privtab.base.errors import PrivtabError, UsageError


class Location(PosixPath):
    """An address in the place of a file, which keeps the slashes that a path joins."""

    text = ""

    def __str__(self) -> str:
        return self.text or super().__str__()


def location(text: str) -> Path:
    """Read a path; an address stays as it is written."""
    if ":" not in text:
        return Path(text)
    found = Location(text)
    found.text = text
    return found


def option(
    written: str,
    meaning: str,
    *,
    kind: str | None = None,
    names: Callable[[], Iterable[str]] | None = None,
    **settings: Any,
) -> Any:
    """An option as a command line has it: its names, and the name of its value, if the option takes a value.

    A value of the kind `STATE` may be an address, a value of the kind `TOKEN` is the token in a file, and the shell completes
    a value of the kind `POLICY`. `kind`: where the name of the value does not say so. `names`: the names for completion.

    >>> option("--policy -p POLICY", "A policy by name.").metavar
    'POLICY'
    """
    words = written.split()
    own = [word for word in words if word.startswith("-")]
    value = next((word for word in words if word not in own), None)
    if names is not None:
        settings["autocompletion"] = lambda incomplete: _completed(names, incomplete)
    return typer.Option(*own, metavar=value, help=meaning, **_typed(kind or value, settings))


def argument(
    name: str, meaning: str | Callable[[], str], *, kind: str | None = None, also: str = "", **settings: Any
) -> Any:
    """An argument with the name that help gives it.

    `kind`: `STATE` or `POLICY`, where the name does not say so. `also`: the option that the first argument may be written as.
    A function as the meaning is called when help is printed: it may look for files.

    >>> argument("A", "The policy to compare.", kind="POLICY", also="--policy -p").metavar
    'A'
    """
    found = typer.Argument(metavar=name, **_typed(kind or name, {"help": meaning, **settings}))
    found.param_decls = also.split()  # which Typer reads of options alone
    return found


def options_of_arguments(command: Callable[..., None]) -> list[Sequence[str]]:
    """The options that arguments of a command may be written as (`argument`)."""
    metadata = [getattr(annotation, "__metadata__", ()) for annotation in command.__annotations__.values()]
    return [
        info.param_decls for infos in metadata for info in infos if isinstance(info, ArgumentInfo) and info.param_decls
    ]


def _typed(kind: str | None, settings: dict[str, Any]) -> dict[str, Any]:
    match kind:
        case "STATE":
            return {"parser": location, **settings}
        case "TOKEN":
            return {"callback": _token, **settings}
        case "POLICY":
            return {"autocompletion": lambda incomplete: _completed(_policies, incomplete), **settings}
        case _:
            return settings


def _policies() -> Iterable[str]:
    from privtab.pipeline import policy_names

    return policy_names()


def _completed(names: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    """The names with this prefix. A path has none: the shell completes it."""
    try:
        return [name for name in names() if name.startswith(incomplete)]
    except (PrivtabError, OSError):
        return []  # the command reports an invalid settings file


def _token(parameter: typer.CallbackParam, path: str | None) -> str | None:
    """The token in a file. Raises FileError, and UsageError for a file with anything else."""
    if path is None:
        return None
    text = files.read_secret(path).strip()
    if len(text.split()) != 1:
        raise UsageError(f"`{parameter.opts[0]} {path}`: it holds one token and nothing else")
    return text


def words_of(texts: Iterable[str] | None) -> list[str]:
    """The words of an option that may be given several times, or once with commas."""
    return [word for text in texts or () for part in text.split(",") if (word := part.strip())]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command have the options of dataclasses whose fields are annotated for Typer: its parameters of these types.

    The options come where the parameter stands; fields without a default come first.
    """
    own = inspect.signature(command, eval_str=True).parameters
    shared = {name: _fields(given.annotation) for name, given in own.items() if is_dataclass(given.annotation)}

    def run(**values: Any) -> None:
        groups = {}
        for name, options in shared.items():
            groups[name] = own[name].annotation(**{option.name: values.pop(option.name) for option in options})
        command(**values, **groups)

    # Typer reads the parameters from these.
    parameters = [option for options in shared.values() for option in options if _is_required(option)]
    for name, parameter in own.items():
        if name in shared:
            parameters += (option for option in shared[name] if not _is_required(option))
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _fields(group: Any) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=types[field.name],
        )
        for field in fields(group)
    ]


PathsArgument = Annotated[
    list[str] | None, argument("PATH", "Policies, by path, folder or name (cdap/final); all by default.", kind="POLICY")
]
