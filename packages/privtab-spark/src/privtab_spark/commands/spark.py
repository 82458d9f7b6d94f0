"""`privtab spark`: the jobs of `privtab_spark`, each with the same options as under spark-submit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import typer

from privtab.base import ExitCode, how_to_install
from privtab.command import Commands, print_error
from privtab_spark.jobs import JOBS

PANEL = "Serve"

app = Commands(help="Decide, filter, list and certify whole tables on Spark.", no_args_is_help=True)
_ALL = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def job(name: str) -> tuple[dict[str, Any], Callable[[typer.Context], None]]:
    """The settings of a job's command, and its function: the job reads the arguments itself."""

    def run(context: typer.Context) -> None:
        raise typer.Exit(_run(name, context.args))

    run.__doc__ = JOBS[name]
    return {"context_settings": _ALL, "add_help_option": False}, run


def _run(job: str, arguments: Sequence[str]) -> int:
    try:
        code: int = import_module(f"privtab_spark.jobs.{job}").main(list(arguments))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pyspark", "pyarrow", "numpy"):
            raise
        print_error(f"`privtab spark` needs {error.name}: {how_to_install('compiler', 'spark')}")
        return ExitCode.EXTERNAL
    return code


for _name in JOBS:
    if _name != "certify":
        _settings, _function = job(_name)
        app.command(_name, **_settings)(_function)
