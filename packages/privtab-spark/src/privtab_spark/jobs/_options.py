"""Options of a job: the signature of the function that a job runs says each option once."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints


class Option(NamedTuple):
    """The help of an option, the name of its value, and its short name; the rest follows from the annotated parameter.

    `bool`: no value. `Literal`: choices. `tuple[str, ...]`: may be given several times. No default: must be given.
    """

    meaning: str
    value: str | None = None
    short: str | None = None


class Parameter(NamedTuple):
    """A parameter, and the heading of its group of options in the help; None for no group."""

    name: str
    annotation: Any
    default: Any
    heading: str | None = None
    positional: bool = False

    @property
    def option(self) -> str:
        """The option as it is written: `--input-format`."""
        return f"--{self.name.rstrip('_').replace('_', '-')}"


class _Help(argparse.RawDescriptionHelpFormatter):
    """Formats help like the other commands: a usage line, paragraphs, an example."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, "Usage: " if prefix is None else prefix)


def parser_of(function: Callable[..., int], job: str) -> argparse.ArgumentParser:
    """Make the parser of a job: its description is the docstring, and its options are the parameters of the function.

    A parameter with the type of a dataclass stands for the fields of the class.
    """
    name = f"privtab {job}" if job == "certify" else f"privtab spark {job}"
    script = Path(__file__).with_name(f"{job}.py")
    parser = argparse.ArgumentParser(
        prog=name,
        usage=f"{name} [OPTIONS]",
        description=inspect.getdoc(function),
        epilog=(
            f"The same as a program:\n  spark-submit {script} [OPTIONS]\n  python -m privtab_spark.jobs.{job} [OPTIONS]"
        ),
        formatter_class=_Help,
        allow_abbrev=False,
    )
    groups: dict[str | None, Any] = {None: parser}
    for parameter in parameters_of(function):
        if parameter.heading not in groups:
            groups[parameter.heading] = parser.add_argument_group(parameter.heading)
        _add(groups[parameter.heading], parameter)
    return parser


def arguments_of(function: Callable[..., int], options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the function of a job: the values of its options by name, in the dataclasses of the signature."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    found = {}
    for name, annotation in _hints(function).items():
        group = _plain(annotation)
        if is_dataclass(group):
            found[name] = group(**{field.name: values[field.name] for field in fields(group) if field.init})  # type: ignore[operator]
        else:
            found[name] = values[name]
    return found


def parameters_of(function: Callable[..., int]) -> Iterator[Parameter]:
    """The parameters of the function of a job; the fields of a dataclass in the place of the parameter that has its type."""
    signature, hints = inspect.signature(function).parameters, _hints(function)
    for name, annotation in hints.items():
        group = _plain(annotation)
        if is_dataclass(group):
            heading = annotation.__metadata__[0] if get_origin(annotation) is Annotated else None
            types = get_type_hints(group, include_extras=True)
            for field in fields(group):
                if field.init:
                    yield Parameter(field.name, types[field.name], field.default, heading)
        else:
            given = signature[name]
            default = MISSING if given.default is given.empty else given.default
            yield Parameter(name, annotation, default, positional=given.kind is not given.KEYWORD_ONLY)


def _hints(function: Callable[..., int]) -> Mapping[str, Any]:
    return {name: hint for name, hint in get_type_hints(function, include_extras=True).items() if name != "return"}


def _plain(annotation: Any) -> Any:
    return annotation.__origin__ if get_origin(annotation) is Annotated else annotation


def _add(parser: argparse._ActionsContainer, parameter: Parameter) -> None:
    kind, option = _plain(parameter.annotation), parameter.annotation.__metadata__[0]
    settings: dict[str, Any] = {"help": option.meaning}
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    if kind is bool:
        settings["action"] = "store_true"
    elif get_origin(kind) is Literal:
        settings["choices"] = get_args(kind)
    else:
        settings["metavar"] = option.value
        if kind is int:
            settings["type"] = int
        elif get_origin(kind) is tuple:
            settings["action"] = "append"
    if parameter.positional:
        parser.add_argument(parameter.name, **settings)
        return
    if parameter.default is MISSING:
        settings["required"] = True
    elif kind is not bool:
        # `append` copies the default, and appends to the copy.
        settings["default"] = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
    names = [option.short] if option.short else []
    parser.add_argument(*names, parameter.option, dest=parameter.name, **settings)
