"""`privtab spark`: the jobs of `privtab_spark`, each with the same options as under spark-submit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin

from privtab.base import ExitCode, how_to_install
from privtab.command import Commands, argument, option, print_error
from privtab_spark.jobs import JOBS
from privtab_spark.jobs._job import run_with
from privtab_spark.jobs._options import Parameter, parameters_of

PANEL = "Serve"

app = Commands(help="Decide, filter, list and certify whole tables on Spark.", no_args_is_help=True)


def job(name: str) -> Callable[..., None]:
    """The function of a job as a command: the same options, docstring and exit code."""
    function = getattr(import_module(f"privtab_spark.jobs.{name}"), JOBS[name])

    def run(**values: Any) -> None:
        try:
            code = run_with(function, values)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in ("pyspark", "pyarrow", "numpy"):
                raise
            print_error(f"`privtab spark` needs {error.name}: {how_to_install('compiler', 'spark')}")
            code = ExitCode.EXTERNAL
        raise SystemExit(code)

    run.__signature__ = inspect.Signature([_option(found) for found in parameters_of(function)])  # type: ignore[attr-defined]
    run.__doc__ = inspect.getdoc(function)
    return run


def _option(parameter: Parameter) -> inspect.Parameter:
    """An option of a job as Typer reads options."""
    kind, said = get_args(parameter.annotation)
    meaning = f"{said.meaning[0].upper()}{said.meaning[1:]}."
    if get_origin(kind) is tuple:
        kind = list[str]
    if parameter.positional:
        found = argument(said.value, meaning)
    else:
        # Jobs open addresses of states themselves.
        words = " ".join(filter(None, (parameter.option, said.short, said.value)))
        of = "TEXT" if said.value == "STATE" else None
        found = option(words, meaning, kind=of, rich_help_panel=parameter.heading)
    default = inspect.Parameter.empty if parameter.default is MISSING else parameter.default
    if isinstance(default, tuple):
        default = [*default]
    annotation = Annotated[kind, found]  # type: ignore[valid-type]
    return inspect.Parameter(parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


for _name in JOBS:
    if _name != "certify":
        app.command(_name)(job(_name))
