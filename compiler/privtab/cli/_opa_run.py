"""Keep an OPA running: restart it, and reload edited policies and states."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from privtab._staged import write
from privtab.cli._output import out, print_error, show_diagnostics
from privtab.errors import PolicyInvalid, PrivtabError

if TYPE_CHECKING:
    from privtab.opa.server import OpaServer

POLL_SECONDS = 0.2
MIN_SECONDS_BETWEEN_STARTS = 1.0
ACTIVE_SECONDS = 15.0
"""Seconds within which OPA must activate new bundles."""
LOG_LINES = 5

Bundles = Callable[[], tuple[bytes, bytes]]
"""Builds the policy and the state bundle from their files; raises PrivtabError or typer.Exit."""


class FileWatch:
    """Detects changes of files and folders."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._stamps = self._scan()

    def changed(self) -> bool:
        """Whether anything changed since the last call."""
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
            out().print(f"OPA was started again at {server.url}", soft_wrap=True)
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
    log = "\n".join(f"  {line}" for line in server.problems(LOG_LINES))
    return f"OPA ended {cause}" + (f"; its last errors:\n{log}" if log else "; its log has no errors")


def _reload(server: OpaServer, bundles: Bundles, stop: threading.Event) -> None:
    from privtab.bundle.inspect import inspect

    try:
        policy, state = bundles()
        for name, content in (("policy", policy), ("state", state)):
            write(server.bundles[name], content)
    except PolicyInvalid as error:
        show_diagnostics(error.diagnostics)
    except (PrivtabError, OSError) as error:
        print_error(str(error))
    except typer.Exit:
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
            out().print(f"reloaded: policy {revisions['policy']}, state {revisions['state']}", soft_wrap=True)
            return
        stop.wait(POLL_SECONDS)
    if not stop.is_set():
        log = "\n".join(f"  {line}" for line in server.problems(LOG_LINES))
        print_error(
            f"OPA does not run what was written after {ACTIVE_SECONDS:g} seconds" + (f":\n{log}" if log else "")
        )
