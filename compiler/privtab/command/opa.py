"""`privtab opa`: install a pinned OPA, run it on compiled bundles, and keep it running while policies and states are edited."""

from __future__ import annotations

import json
import shlex
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from privtab.base.errors import PolicyInvalid, PrivtabError
from privtab.base.staged import write_file
from privtab.command._engines import packed, served
from privtab.command._options import DoorOption, PartialOption, PolicyOptions, load_state, open_doors
from privtab.command._output import deliver, err, flush, out, print_error, show_findings
from privtab.command._parameters import option
from privtab.command._typer import Commands
from privtab.state.nodes import State

if TYPE_CHECKING:
    from privtab.bundle.pack import BundledDoor
    from privtab.engines.opa.server import OpaServer
    from privtab.ir.nodes import Program


PANEL = "Serve"

app = Commands(help="Find, build and run the pinned OPA.", no_args_is_help=True)


RequireBuiltOption = Annotated[bool, option("--require-built", "Accept only an OPA that privtab built, unchanged.")]


@app.command("path")
def path(
    require_built: RequireBuiltOption = False,
    install: Annotated[bool, option("--install", "Build the pinned OPA if there is none, some minutes.")] = False,
) -> None:
    """Print the path of the OPA that privtab uses; standard error says why.

    Exits with 3 if there is none. A build verifies every module by its hash; `privtab opa install` is `privtab opa path --install`.

    Example:
      $(privtab opa path) version
      privtab opa path --install --require-built
    """
    from privtab.engines.opa import binary

    if install:
        with err().spinner("building OPA (some minutes)"):
            found = binary.install(lambda line: err().print(line, style="dim"), require_built=require_built)
    else:
        chosen = binary.choose(require_built=require_built)
        err().print(chosen.why, style="dim")
        found = chosen.path
    deliver(f"{found}\n")


@app.command("run")
def run(
    policy: PolicyOptions,
    state: Annotated[Path | None, option("--state -s STATE", "State to load. (default: an empty one)")] = None,
    port: Annotated[int, option("--port", "Port on 127.0.0.1; 0 picks a free one.", min=0, max=65535)] = 8181,
    restart: Annotated[bool, option("--restart", "Restart OPA when it exits.")] = False,
    watch: Annotated[bool, option("--watch", "Reload the policy and the state when their files change.")] = False,
    require_built: RequireBuiltOption = False,
    allow_partial: PartialOption = False,
    door: DoorOption = None,
) -> None:
    """Compile a policy and a state and serve them from OPA until Ctrl-C.

    If OPA exits by itself, exits with its code (128 plus the number of the signal that ended it).

    Example:
      privtab opa run -p gravitino/1.1.0 -s sample:gravitino
      privtab opa run -p mine.yaml -s state.yaml --watch --restart
      privtab opa run -p trino/476 --door trino -s sample:trino
    """
    from privtab.base.resources import Documents
    from privtab.engines.opa.binary import choose
    from privtab.engines.opa.server import check_port
    from privtab.pipeline import ChosenPolicy, find_policy, load_program, policy_folders

    def load() -> tuple[Program, State, list[BundledDoor]]:
        program = load_program(policy.policy)
        rows = State() if state is None else load_state(program, state, allow_partial=allow_partial, samples=True).state
        return program, rows, open_doors(program, door)

    if port:
        check_port("127.0.0.1", port)
    chosen = choose(require_built=require_built)
    err().print(f"OPA is {chosen.path}: {chosen.why}", style="dim")
    documents = [Documents("door", policy_folders()).find(name)[1] for name in door or ()]
    policy_file = find_policy(ChosenPolicy.of(policy.policy).policy)
    file_watch = FileWatch([policy_file, *([state] if state else []), *documents]) if watch else None
    loaded = program, *_ = load()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with served(packed(*loaded), port=port, binary=chosen.path) as server:
        out().print(f"{program.system} {program.version} at {server.url}; Ctrl-C ends it")
        out().print(_curl(program, server.url))
        flush()
        code = keep_running(server, restart=restart, file_watch=file_watch, bundles=lambda: packed(*load()), stop=stop)
    raise SystemExit(code)


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


POLL_SECONDS = 0.2
MIN_SECONDS_BETWEEN_STARTS = 1.0
ACTIVE_SECONDS = 15.0
"""Seconds within which OPA must activate new bundles."""
LOG_LINES = 5

Bundles = Callable[[], tuple[bytes, bytes]]
"""Builds the policy and the state bundle from their files; raises PrivtabError or SystemExit."""


class FileWatch:
    """Detects changes of files and folders."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._stamps = self._scan()

    def changed(self) -> bool:
        """Look again; return True if anything changed since the last call."""
        stamps = self._scan()
        if stamps == self._stamps:
            return False
        # Wait until a file that is being written is stable.
        time.sleep(POLL_SECONDS / 2)
        self._stamps = self._scan()
        return True

    def _scan(self) -> list[tuple[str, int, int, int]]:
        stamps = []
        for path in self._paths:
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                try:
                    status = file.stat()
                except OSError:
                    continue
                stamps.append((str(file), status.st_mtime_ns, status.st_size, status.st_ino))
        return stamps


def keep_running(
    server: OpaServer, *, restart: bool, file_watch: FileWatch | None, bundles: Bundles, stop: threading.Event
) -> int:
    """Run until `stop` is set or OPA exits, and return the exit code. Restart OPA with `restart`; reload changed files."""
    started = time.monotonic()
    while not stop.wait(POLL_SECONDS):
        code = server.process.poll()
        if code is not None:
            # Ctrl-C is sent to both OPA and this process.
            if stop.wait(POLL_SECONDS):
                return 0
            print_error(_exit_message(code, server))
            if not restart:
                return code if code >= 0 else 128 - code
            stop.wait(max(0.0, MIN_SECONDS_BETWEEN_STARTS - (time.monotonic() - started)))
            if stop.is_set():
                return 0
            started = time.monotonic()
            server.restart()
            out().print(f"OPA was started again at {server.url}")
            flush()
        if file_watch is not None and file_watch.changed():
            _reload(server, bundles, stop)
    return 0


def _exit_message(code: int, server: OpaServer) -> str:
    cause = f"with exit code {code}"
    if code < 0:
        try:
            cause = f"by signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            cause = f"by signal {-code}"
    log = _last_errors(server)
    return f"OPA ended {cause}" + (f"; its last errors:\n{log}" if log else "; its log has no errors")


def _last_errors(server: OpaServer) -> str:
    return "\n".join(f"  {line}" for line in server.problems(LOG_LINES))


def _reload(server: OpaServer, bundles: Bundles, stop: threading.Event) -> None:
    from privtab.bundle.inspect import inspect

    try:
        policy, state = bundles()
        for name, content in (("policy", policy), ("state", state)):
            write_file(server.bundles[name], content)
    except PolicyInvalid as error:
        show_findings(error.diagnostics)
    except (PrivtabError, OSError) as error:
        print_error(str(error))
    except SystemExit:
        pass  # The error has been reported.
    else:
        _await_activation(
            server, {"policy": inspect(policy).revision or "", "state": inspect(state).revision or ""}, stop
        )
        return
    print_error("not reloaded: the last good policy and state stay in force")


def _await_activation(server: OpaServer, revisions: dict[str, str], stop: threading.Event) -> None:
    deadline = time.monotonic() + ACTIVE_SECONDS
    while time.monotonic() < deadline and not stop.is_set() and server.process.poll() is None:
        if server.revisions() == revisions:
            out().print(f"reloaded: policy {revisions['policy']}, state {revisions['state']}")
            flush()
            return
        stop.wait(POLL_SECONDS)
    if not stop.is_set():
        log = _last_errors(server)
        print_error(
            f"OPA does not run what was written after {ACTIVE_SECONDS:g} seconds" + (f":\n{log}" if log else "")
        )
