"""The file that a system, or the engine that decides for it, reads its state from: replaced during a test."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from privtab._staged import write
from privtab.bundle.pack import state_bundle
from privtab.errors import DriverError
from privtab.ir.nodes import Program
from privtab.state.load import to_tables
from privtab.state.nodes import State

BUNDLE = ".tar.gz"
WAIT_SECONDS = 30.0
"""The longest wait until a system shows a new state."""


class StateFile:
    """A bundle of a state if the name of the file ends like one, and JSON otherwise."""

    def __init__(self, path: Path, program: Program) -> None:
        self._path = path
        self._program = program
        self._before: bytes | None = None
        self._wrote = False

    def replace(self, state: State, shown: Callable[[], bool] | None) -> None:
        """Write a state, and wait until `shown`: whether the system has it. Raises DriverError."""
        try:
            self._before = self._path.read_bytes() if self._path.exists() else None
        except OSError as error:
            raise DriverError(f"{self._path}: {error.strerror}") from error
        is_bundle = self._path.name.endswith(BUNDLE)
        write(self._path, state_bundle(self._program, state) if is_bundle else state_bytes(state))
        self._wrote = True
        deadline = time.monotonic() + WAIT_SECONDS
        while shown is not None and not shown():
            if time.monotonic() > deadline:
                raise DriverError(f"the system does not show the state of {self._path} after {WAIT_SECONDS:g} s")
            time.sleep(0.2)

    def restore(self) -> tuple[str, ...]:
        """Put the former content back, if it was replaced; returns what could not be done."""
        if not self._wrote:
            return ()
        try:
            if self._before is None:
                self._path.unlink(missing_ok=True)
            else:
                write(self._path, self._before)
        except OSError as error:
            return (f"{self._path}: {error.strerror}",)
        self._wrote = False
        return ()


def state_bytes(state: State) -> bytes:
    """A state as a JSON file."""
    return (json.dumps(to_tables(state), indent=1, ensure_ascii=False) + "\n").encode()
