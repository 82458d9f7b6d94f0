"""The driver for servers of the OpenID AuthZEN Authorization API; their state is prepared through a file, or by the user."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from privtab import strict_json
from privtab._staged import write
from privtab.client._transport import Timeout, Transport
from privtab.conform.driver import Driver
from privtab.conform.nodes import SystemAnswer, World
from privtab.errors import DecisionError, DriverError
from privtab.request import Request
from privtab.state.load import to_tables

EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"


class AuthZenDriver(Driver):
    """Asks in batches.

    `state`: the file that the server reads its state from, which is replaced during the test; None: the server has the state
    already, as `--write-state` wrote it.
    """

    batch = 500

    def __init__(
        self,
        transport: Transport,
        *,
        url: str,
        timeout: Timeout = (5.0, 30.0),
        state: Path | None = None,
        wait: float = 30.0,
        encode: Callable[[World], bytes] | None = None,
    ) -> None:
        """`encode`: the content of the file; None: JSON."""
        self._transport = transport
        self._url = url
        self._timeout = timeout
        self._state = state
        self.keeps_state = state is None
        self._wait = wait
        self._encode = encode or state_bytes
        self._before: bytes | None = None
        self._wrote = False
        self.probe: Callable[[], bool] | None = None
        """Whether the server shows the new state already."""

    def calls(self, world: World) -> int:
        """As Driver.calls: one file."""
        del world
        return 0 if self._state is None else 1

    def prepare(self, world: World) -> None:
        """As Driver.prepare: write the state, and wait until the server shows it."""
        if self._state is None:
            return
        try:
            self._before = self._state.read_bytes() if self._state.exists() else None
        except OSError as error:
            raise DriverError(f"{self._state}: {error.strerror}") from error
        write(self._state, self._encode(world))
        self._wrote = True
        deadline = time.monotonic() + self._wait
        while self.probe is not None and not self.probe():
            if time.monotonic() > deadline:
                raise DriverError(
                    f"the server at {self._url} does not show the state of {self._state} after {self._wait:g} s"
                )
            time.sleep(0.2)

    def ask(self, request: Request) -> SystemAnswer:
        """As Driver.ask."""
        return _answer(self._post(EVALUATION, request.to_json()))

    def ask_many(self, requests: Sequence[Request]) -> list[SystemAnswer]:
        """As Driver.ask_many."""
        answers = self._post(EVALUATIONS, {"evaluations": [request.to_json() for request in requests]}).get(
            "evaluations"
        )
        if not isinstance(answers, list) or len(answers) != len(requests):
            raise DriverError(f"the server at {self._url} did not answer {len(requests)} evaluations")
        return [_answer(answer) for answer in answers]

    def clean(self) -> tuple[str, ...]:
        """As Driver.clean: put the former state back."""
        try:
            if self._state is not None and self._wrote:
                if self._before is None:
                    self._state.unlink(missing_ok=True)
                else:
                    write(self._state, self._before)
        except OSError as error:
            return (f"{self._state}: {error.strerror}",)
        finally:
            self._transport.close()
        return ()

    def reproduce(self, request: Request) -> str:
        """As Driver.reproduce."""
        body = json.dumps(request.to_json(), ensure_ascii=False)
        return (
            f"curl -s {shlex.quote(self._url + EVALUATION)} -H 'Content-Type: application/json' -d {shlex.quote(body)}"
        )

    def _post(self, path: str, body: object) -> dict[str, Any]:
        try:
            content = self._transport.post(path, json.dumps(body).encode(), self._timeout)
            value = strict_json.loads(content)
        except (DecisionError, ValueError) as error:
            raise DriverError(f"the server at {self._url} gave no answer: {error}") from error
        if not isinstance(value, dict):
            raise DriverError(f"the server at {self._url} did not answer with an object")
        return value


def state_bytes(world: World) -> bytes:
    """The state of a world as a JSON file."""
    return (json.dumps(to_tables(world.state), indent=1, ensure_ascii=False) + "\n").encode()


def _answer(value: object) -> SystemAnswer:
    if not isinstance(value, dict) or not isinstance(value.get("decision"), bool):
        return SystemAnswer.BROKEN
    if value["decision"]:
        return SystemAnswer.ALLOWED
    context = value.get("context")
    return SystemAnswer.BROKEN if isinstance(context, dict) and "error" in context else SystemAnswer.REFUSED
