"""`privtab opa`: install a pinned OPA and run it on compiled bundles."""

from __future__ import annotations

import json
import shlex
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privtab.cli._engines import packed, served
from privtab.cli._options import PartialOption, PolicyOption, ReadingOption, VariantOption, load_state, readings
from privtab.cli._output import err, flush, out, print_text, spinner

if TYPE_CHECKING:
    from privtab.ir.nodes import Program

PANEL = "Serve"

app = typer.Typer(help="Find, build and run the pinned OPA.", no_args_is_help=True)


RequireBuiltOption = Annotated[
    bool, typer.Option("--require-built", help="Accept only an OPA that privtab built, unchanged.")
]


@app.command("install")
def install(require_built: RequireBuiltOption = False) -> None:
    """Install the pinned OPA, unless it is found already.

    The build verifies every module by its hash. Standard error says which OPA is used, and why.

    Example:

    \b
      privtab opa install
      privtab opa install --require-built
    """
    from privtab.opa.binary import install as installed

    with spinner("building OPA (some minutes)"):
        path = installed(lambda line: err().print(line, style="dim", soft_wrap=True), require_built=require_built)
    out().print(str(path), soft_wrap=True)


@app.command("path")
def path(require_built: RequireBuiltOption = False) -> None:
    """Print the path of the OPA that privtab uses; standard error says why.

    Exits with 3 if there is none.

    Example:

    \b
      $(privtab opa path) version
    """
    from privtab.opa.binary import choose

    chosen = choose(require_built=require_built)
    err().print(chosen.why, style="dim", soft_wrap=True)
    print_text(f"{chosen.path}\n")


@app.command("run")
def run(
    policy: PolicyOption,
    state: Annotated[
        Path | None,
        typer.Option("--state", "-s", metavar="STATE", help="State to load. (default: an empty one)"),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 picks a free one.")
    ] = 8181,
    restart: Annotated[bool, typer.Option("--restart", help="Restart OPA when it exits.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Reload the policy and the state when their files change.")
    ] = False,
    require_built: RequireBuiltOption = False,
    allow_partial: PartialOption = False,
    variant: VariantOption = None,
    reading: ReadingOption = None,
) -> None:
    """Compile a policy and a state and serve them from OPA until Ctrl-C.

    If OPA exits by itself, exits with its code (128 plus the number of the signal that ended it).

    Example:

    \b
      privtab opa run -p gravitino/1.1.0 -s policy_src/gravitino/state.yaml
      privtab opa run -p mine.yaml -s state.yaml --watch --restart
    """
    from privtab.cli._opa_run import FileWatch, keep_running
    from privtab.opa.binary import choose
    from privtab.opa.server import check_port
    from privtab.pipeline import find_policy, load_program
    from privtab.state.nodes import State

    def load() -> tuple[Program, State]:
        program = load_program(policy, variant=variant, readings=readings(reading))
        return program, State() if state is None else load_state(program, state, allow_partial=allow_partial)

    if port:
        check_port("127.0.0.1", port)
    chosen = choose(require_built=require_built)
    err().print(f"OPA is {chosen.path}: {chosen.why}", style="dim", soft_wrap=True)
    file_watch = FileWatch([find_policy(policy), *([state] if state else [])]) if watch else None
    program, loaded = load()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with served(packed(program, loaded), port=port, binary=chosen.path) as server:
        out().print(f"{program.system} {program.version} at {server.url}; Ctrl-C ends it", soft_wrap=True)
        out().print(_curl(program, server.url), soft_wrap=True)
        flush()
        code = keep_running(server, restart=restart, file_watch=file_watch, bundles=lambda: packed(*load()), stop=stop)
    raise typer.Exit(code)


def _curl(program: Program, url: str) -> str:
    """An example `curl` command: the first operation of the policy, on an entity of its type."""
    from privtab.ir.serialise import vocabulary

    rule = next(iter(program.rules.values()))
    names = vocabulary(program).shapes[rule.entity].example().replace("/…", "")
    request = {
        "subject": {"type": "user", "id": "alice"},
        "action": {"name": rule.operation},
        "resource": {"type": rule.entity, "id": names},
    }
    return shlex.join(
        ["curl", "-s", f"{url}/v1/data/privtab/{program.system}/decision", "-d", json.dumps({"input": request})]
    )
