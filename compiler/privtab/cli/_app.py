"""The application: which commands there are, and which exception ends with which exit code.

Exit codes: 0 fine, 1 findings or a failed check, 2 bad usage, 3 the world failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import typer
import typer.rich_utils

from privtab import __version__
from privtab.cli import compile as compile_command
from privtab.cli import (
    decide,
    deploy,
    describe,
    diff,
    explain,
    fmt,
    init,
    inspect,
    keys,
    lint,
    opa,
    paths,
    registry,
    rollback,
    schema,
    serve,
    sign,
    spark,
    state,
    status,
    stubs,
    verify,
    what_can,
    who_can,
)
from privtab.cli import test as test_command
from privtab.cli._help import flow
from privtab.cli._output import Terminal, complain, show_diagnostics, show_state_findings
from privtab.errors import (
    BundleRefused,
    InvalidRequest,
    PolicyInvalid,
    PrivtabError,
    RegistryConflict,
    SettingsInvalid,
    StateInvalid,
    UnsupportedError,
    UsageError,
)
from privtab.printable import printable_output

FINDINGS, USAGE, WORLD = 1, 2, 3

# What Typer itself says of a command line repeats arguments.
typer.rich_utils.Console = Terminal  # type: ignore[attr-defined]

app = typer.Typer(
    name="privtab",
    help="Privilege tables as code: YAML tables become OPA bundles, and answers to who may do what.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PANELS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Write": {
        "init": init.init,
        "fmt": fmt.fmt,
        "schema": schema.schema,
        "stubs": stubs.stubs,
    },
    "Check": {
        "lint": lint.lint,
        "test": test_command.run_scenarios,
        "diff": diff.diff,
    },
    "Ask": {
        "describe": describe.describe,
        "decide": decide.decide,
        "explain": explain.explain,
        "who-can": who_can.who_can,
        "what-can": what_can.what_can,
        "paths": paths.paths,
    },
    "Ship": {
        "compile": compile_command.compile_policies,
        "sign": sign.sign,
        "verify": verify.verify,
        "inspect": inspect.inspect,
        "deploy": deploy.deploy,
        "rollback": rollback.rollback,
        "status": status.status,
    },
    "Serve": {"serve": serve.serve},
}
"""The commands as `--help` groups them."""
for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)
flow(app)
flow(keys.app)
flow(state.app)
flow(opa.app)
flow(registry.app)
app.add_typer(state.app, name="state", rich_help_panel="Ship")
app.add_typer(opa.app, name="opa", rich_help_panel="Serve")
app.add_typer(spark.app, name="spark", rich_help_panel="Serve")
app.add_typer(registry.app, name="registry", rich_help_panel="Ship")
app.add_typer(keys.app, name="keys", rich_help_panel="Ship")


def _version(value: bool) -> None:  # noqa: FBT001  Typer hands the flag over by position
    if value:
        typer.echo(f"privtab {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Privilege tables as code: YAML tables become OPA bundles, and answers to who may do what."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; nothing that privtab raises on purpose ends in a traceback."""
    with printable_output():
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    try:
        app(args=list(arguments), prog_name="privtab")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except PolicyInvalid as error:
        show_diagnostics(error.diagnostics)
        return FINDINGS
    except StateInvalid as error:
        show_state_findings(error.findings)
        return FINDINGS
    except UnsupportedError as error:
        complain(str(error))
        return FINDINGS
    except SettingsInvalid as error:
        show_diagnostics(error.diagnostics)
        return USAGE
    except (RegistryConflict, BundleRefused) as error:
        complain(str(error))
        return FINDINGS
    except InvalidRequest as error:
        complain(error.written(r"`--with \1=TYPE:PATH`"))
        return USAGE
    except UsageError as error:
        complain(str(error))
        return USAGE
    except (PrivtabError, OSError) as error:
        complain(str(error))
        return WORLD
    return 0
