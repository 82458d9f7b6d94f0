"""The driver for servers of the OpenID AuthZEN Authorization API, whose state is prepared through a file, or by the user."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, Protocol

from privtab.base import DecisionError, Request, strict_loads
from privtab_testing.conform import SystemAnswer, World
from privtab_testing.conform.driver import Driver, DriverError, StateFile

EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"


class Transport(Protocol):
    """A sender of the AuthZEN driver's requests."""

    def post(self, path: str, body: bytes, timeout: tuple[float, float]) -> bytes:
        """Return the body of the answer to a JSON body; raises PolicyError, DecisionUnavailable."""

    def close(self) -> None:
        """Release the connections."""


class AuthZenDriver(Driver):
    """Asks in batches.

    `state`: the file that the server reads its state from, which is replaced during the test; None: the server has the state
    already, as `--write-state` wrote it. `prefixed`: callers are named `user:NAME`, which servers of privtab take for `NAME`.
    """

    batch = 500

    def __init__(
        self,
        transport: Transport,
        *,
        url: str,
        timeout: tuple[float, float] = (5.0, 30.0),
        state: StateFile | None = None,
        prefixed: bool = False,
    ) -> None:
        self._transport = transport
        self._url = url
        self._timeout = timeout
        self._prefixed = prefixed
        self.file = state
        self.keeps_state = state is None

    def calls(self, world: World) -> int:
        """As Driver.calls: one file."""
        del world
        return 0 if self.file is None else 1

    def prepare(self, world: World) -> None:
        """As Driver.prepare: write the state, and wait until the server shows it."""
        if self.file is not None:
            self.file.replace(world.state, self.probe)

    def ask(self, request: Request) -> SystemAnswer:
        """As Driver.ask."""
        return _answer(self._post(EVALUATION, self._body(request)))

    def ask_many(self, requests: Sequence[Request]) -> list[SystemAnswer]:
        """As Driver.ask_many."""
        answers = self._post(EVALUATIONS, {"evaluations": [self._body(request) for request in requests]}).get(
            "evaluations"
        )
        if not isinstance(answers, list) or len(answers) != len(requests):
            raise DriverError(f"the server at {self._url} did not answer {len(requests)} evaluations")
        return [_answer(answer) for answer in answers]

    def clean(self) -> tuple[str, ...]:
        """As Driver.clean: put the former state back."""
        try:
            return () if self.file is None else self.file.restore()
        finally:
            self._transport.close()

    def reproduce(self, request: Request) -> str:
        """As Driver.reproduce."""
        body = json.dumps(self._body(request), ensure_ascii=False)
        return (
            f"curl -s {shlex.quote(self._url + EVALUATION)} -H 'Content-Type: application/json' -d {shlex.quote(body)}"
        )

    def _body(self, request: Request) -> dict[str, Any]:
        body = request.to_json()
        if self._prefixed:
            body["subject"] |= {"id": f"user:{request.user}"}
        return body

    def _post(self, path: str, body: object) -> dict[str, Any]:
        try:
            content = self._transport.post(path, json.dumps(body).encode(), self._timeout)
            value = strict_loads(content)
        except (DecisionError, ValueError) as error:
            raise DriverError(f"the server at {self._url} gave no answer: {error}") from error
        if not isinstance(value, dict):
            raise DriverError(f"the server at {self._url} did not answer with an object")
        return value


def _answer(value: object) -> SystemAnswer:
    if not isinstance(value, dict) or not isinstance(value.get("decision"), bool):
        return SystemAnswer.BROKEN
    if value["decision"]:
        return SystemAnswer.ALLOWED
    context = value.get("context")
    return SystemAnswer.BROKEN if isinstance(context, dict) and "error" in context else SystemAnswer.REFUSED
