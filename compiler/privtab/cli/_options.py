"""Options shared by several commands, and their interpretation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from privtab.cli._complete import policies
from privtab.cli._output import Format, print_error, show_state_findings
from privtab.errors import UsageError
from privtab.exit_codes import ExitCode
from privtab.formats import STATE_HELP
from privtab.key_values import key_values

if TYPE_CHECKING:
    from privtab.analysis.diff.nodes import Waiver
    from privtab.diagnostics import Diagnostic
    from privtab.ir.nodes import Program
    from privtab.state.nodes import State, StateFinding
    from privtab.state.places import Places

FormatOption = Annotated[Format, typer.Option("--format", help="Output format: for people or for programs.")]
PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        "-p",
        metavar="POLICY",
        help="A policy by name (cdap/final), a path, a bundle, or registry:URL#CHANNEL[@RELEASE].",
        autocompletion=policies,
    ),
]
PolicyArgument = Annotated[
    str,
    typer.Argument(
        metavar="POLICY", help="A policy by name (cdap/final) or a path; or `--policy`.", autocompletion=policies
    ),
]
StateOption = Annotated[Path, typer.Option("--state", "-s", metavar="STATE", help=STATE_HELP)]
VariantOption = Annotated[
    str | None, typer.Option("--variant", metavar="NAME", help="Compile this variant of the tables.")
]
ReadingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reading",
        metavar="ROW=NAME",
        help="Use another reading of an ambiguous row (namespace/list=parent, any/share=strict).",
    ),
]
PartialOption = Annotated[
    bool, typer.Option("--allow-partial", help="Skip wrong rows of the state instead of stopping.")
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Moment to answer for, as in 2026-03-03T12:00Z. Default: now.",
    ),
]


WAIVERS = Path("privtab-waivers.yaml")
"""The default file of waivers."""


def waivers_of(path: Path | None) -> tuple[tuple[Waiver, ...], tuple[Diagnostic, ...]]:
    """The waivers of the given file, else of `WAIVERS` if it exists; a file with errors waives nothing."""
    from privtab import source
    from privtab.analysis.diff.waivers import read_waivers

    if path is None and not WAIVERS.is_file():
        return (), ()
    waiver_file = read_waivers(source.load(path or WAIVERS))
    return waiver_file.waivers, waiver_file.found


def readings(options: list[str] | None) -> dict[str, str]:
    """Parse `--reading ROW=NAME` options; raises UsageError."""
    return key_values(options, "--reading", "ROW=NAME", example="namespace/list=parent")


def load_state(program: Program, path: Path, *, allow_partial: bool = False) -> State:
    """Read and check a state; its errors go to standard error, and result in exit code 1 unless `allow_partial`."""
    return load_state_and_places(program, path, allow_partial=allow_partial)[0]


def load_state_and_places(program: Program, path: Path, *, allow_partial: bool = False) -> tuple[State, Places]:
    """As `load_state`, with the position of each row."""
    state, places, errors = _load_and_check(program, path)
    if errors and not allow_partial:
        print_error(f"{len(errors)} wrong row(s) in {path}; `--allow-partial` continues without them")
        raise typer.Exit(ExitCode.FINDINGS)
    return state, places


def moment_of(at: str | None) -> int:
    """The moment of `--at`, or the present one; raises UsageError for anything but a time."""
    from privtab.moments import WrongTime, moment, now

    try:
        return now() if at is None else moment(at)
    except WrongTime as error:
        raise UsageError(f"`--at {at}` {error}: {error.help}") from None


def load_state_for_queries(
    program: Program, path: Path, *, allow_partial: bool = False, at: str | None = None
) -> tuple[State, bool]:
    """Read and check a state for queries; also returns whether invalid rows were left out without `allow_partial`.

    The state is that of the moment `at`, by default now.
    An invalid row that can only allow is reported and left out, since that cannot allow more. One that may carry a denial
    results in exit code 1 unless `allow_partial`, as does a file or a table that was not read whole.
    """
    state, _, partial = load_places_for_queries(program, path, allow_partial=allow_partial, at=at)
    return state, partial


def load_places_for_queries(
    program: Program, path: Path, *, allow_partial: bool = False, at: str | None = None
) -> tuple[State, Places, bool]:
    """As `load_state_for_queries`, with the position of each row."""
    moment = moment_of(at)
    state, places, partial = load_windows_for_queries(program, path, allow_partial=allow_partial)
    return state.at(moment), places.some(state.held(moment)), partial


def load_windows_for_queries(
    program: Program, path: Path, *, allow_partial: bool = False
) -> tuple[State, Places, bool]:
    """As `load_places_for_queries`, with the rows of every moment."""
    from privtab.state.findings import stops

    state, places, errors = _load_and_check(program, path)
    if allow_partial or not errors:
        return state, places, False
    stopping = [error for error in errors if stops(program, error)]
    if stopping:
        problem = f"{len(stopping)} wrong row(s) in {path} may carry a denial"
        if program.semantics.deny == "none":
            problem = f"{path} was not read whole"
        print_error(f"{problem}; `--allow-partial` continues without them")
        raise typer.Exit(ExitCode.FINDINGS)
    print_error(f"{len(errors)} wrong row(s) in {path}: answered without them")
    return state, places, True


def _load_and_check(program: Program, path: Path) -> tuple[State, Places, list[StateFinding]]:
    from privtab.cli._stored import load_rows
    from privtab.state.validate import validate_with_places

    state, places, findings = validate_with_places(program, load_rows(program, path))
    errors = [finding for finding in findings if finding.severity == "error"]
    show_state_findings(errors)
    return state, places, errors


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command have the options of a dataclass whose fields are annotated for Typer: its keyword parameter of that type.

    The options come where the parameter stands; fields without a default are arguments, and come first.
    """
    own = inspect.signature(command, eval_str=True).parameters
    settings = next(parameter for parameter in own.values() if is_dataclass(parameter.annotation))
    types = get_type_hints(settings.annotation, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=types[field.name],
        )
        for field in fields(settings.annotation)
    ]

    def run(**values: Any) -> None:
        options = {option.name: values.pop(option.name) for option in shared}
        command(**values, **{settings.name: settings.annotation(**options)})

    # Typer reads the parameters from these.
    parameters = [argument for argument in shared if argument.default is inspect.Parameter.empty]
    for parameter in own.values():
        if parameter is settings:
            parameters += (option for option in shared if option.default is not inspect.Parameter.empty)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = command.__doc__
    return run
