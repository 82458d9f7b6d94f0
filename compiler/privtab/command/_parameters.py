"""Parameters of commands: options, arguments, groups of options that several commands have, and completion."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

from privtab.base import files
from privtab.base.errors import PrivtabError, UsageError

if TYPE_CHECKING:
    from privtab.ir import Program


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


class Parameter:
    """An option or an argument as a command declares it, whose annotation has the type: `Annotated[int, option(…)]`.

    `names`: of an option. `also`: the names of the option that an argument may be written as. `settings`: as Typer takes them.
    """

    def __init__(
        self,
        names: Sequence[str],
        metavar: str | None,
        meaning: Any,
        settings: dict[str, Any],
        also: Sequence[str] = (),
    ) -> None:
        self.names, self.metavar, self.help, self.settings, self.also = names, metavar, meaning, settings, also

    def for_typer(self) -> Any:
        """The parameter as Typer reads it, which is loaded for help, completion, faults and groups of commands."""
        import typer

        meaning = self.help.replace("[@", r"\[@") if isinstance(self.help, str) else self.help  # else a style of Rich
        if self.names:
            return typer.Option(*self.names, metavar=self.metavar, help=meaning, **self.settings)
        found = typer.Argument(metavar=self.metavar, help=meaning, **self.settings)
        found.param_decls = self.also  # which Typer reads of options alone
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
    values of the kinds `POLICY`, `OPERATION`, `TYPE` and `ENTITY`, the last three from the policy that the line names before.
    `kind`: where the name of the value does not say so. `names`: the names for completion.

    >>> option("--policy -p POLICY", "A policy by name.").metavar
    'POLICY'
    """
    words = written.split()
    own = [word for word in words if word.startswith("-")]
    value = next((word for word in words if word not in own), None)
    if names is not None:
        settings["autocompletion"] = lambda incomplete: _completed(names, incomplete)
    return Parameter(own, value, meaning, _typed(kind or value, own, settings))


def argument(
    name: str, meaning: str | Callable[[], str], *, kind: str | None = None, also: str = "", **settings: Any
) -> Any:
    """An argument with the name that help gives it.

    `kind`: as for options, where the name does not say so. `also`: the option that the first argument may be written as.
    A function as the meaning is called when help is printed: it may look for files.

    >>> argument("A", "The policy to compare.", kind="POLICY", also="--policy -p").metavar
    'A'
    """
    return Parameter((), name, meaning, _typed(kind or name, (), settings), also.split())


def _typed(kind: str | None, names: Sequence[str], settings: dict[str, Any]) -> dict[str, Any]:
    match kind:
        case "STATE":
            return {"parser": location, **settings}
        case "TOKEN":
            return {"callback": lambda value: _token(names[0], value), **settings}
        case "POLICY":
            return {"autocompletion": lambda incomplete: _completed(_policies, incomplete), **settings}
        case "OPERATION" | "TYPE" | "ENTITY":
            return {
                "autocompletion": lambda ctx, incomplete: _completed_by_policy(_NAMES[kind], ctx, incomplete),
                **settings,
            }
        case _:
            return settings


def _policies() -> Iterable[str]:
    from privtab.pipeline import policy_names

    return policy_names()


_NAMES: Mapping[str, Callable[[Program], Iterable[str]]] = {
    "OPERATION": lambda program: sorted({rule.operation for rule in program.rules.values()}),
    "TYPE": lambda program: program.entities,
    "ENTITY": lambda program: [f"{type_}:" for type_ in program.entities],
}
"""The names of a policy for each kind of value."""


def _completed_by_policy(names: Callable[[Program], Iterable[str]], ctx: Any, incomplete: str) -> list[str]:
    """The names with this prefix in the policy of the line; none before the line names one."""
    from privtab.command._files import load_policy

    policy = ctx.params.get("policy")
    return _completed(lambda: names(load_policy(policy)), incomplete) if policy else []


def _completed(names: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    """The names with this prefix. A path has none: the shell completes it."""
    try:
        return [name for name in names() if name.startswith(incomplete)]
    except (PrivtabError, OSError):
        return []  # the command reports an invalid settings file


def _token(name: str, path: str | None) -> str | None:
    """The token in a file. Raises FileError, and UsageError for a file with anything else."""
    if path is None:
        return None
    text = files.read_secret(path).strip()
    if len(text.split()) != 1:
        raise UsageError(f"`{name} {path}`: it holds one token and nothing else")
    return text


def words_of(texts: Iterable[str] | None) -> list[str]:
    """The words of an option that may be given several times, or once with commas."""
    return [word for text in texts or () for part in text.split(",") if (word := part.strip())]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command have the options of dataclasses (`declared`), as Typer reads them."""
    parameters, run = declared(command)
    typers = [parameter.replace(annotation=_for_typer(parameter.annotation)) for parameter in parameters]
    run.__signature__ = inspect.Signature(typers)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in typers}
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


def _for_typer(annotation: Any) -> Any:
    if get_origin(annotation) is not Annotated:
        return annotation
    metadata = (one.for_typer() if isinstance(one, Parameter) else one for one in annotation.__metadata__)
    return Annotated[(annotation.__origin__, *metadata)]


def declared(command: Callable[..., None]) -> tuple[list[inspect.Parameter], Callable[..., None]]:
    """The parameters of a command, and what calls the command with a value for each.

    A parameter whose type is a dataclass stands for its fields, which are annotated as parameters: they come where it stands, and
    those without a default first.
    """
    own = inspect.signature(command, eval_str=True).parameters
    shared = {name: _fields(given.annotation) for name, given in own.items() if is_dataclass(given.annotation)}

    def run(**values: Any) -> None:
        groups = {}
        for name, options in shared.items():
            groups[name] = own[name].annotation(**{option.name: values.pop(option.name) for option in options})
        command(**values, **groups)

    parameters = [option for options in shared.values() for option in options if _is_required(option)]
    for name, parameter in own.items():
        if name in shared:
            parameters += (option for option in shared[name] if not _is_required(option))
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    return parameters, run


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
