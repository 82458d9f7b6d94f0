"""Our AuthZEN server in process, for one program and one state: what a conformance test asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import httpx
from starlette.types import ASGIApp

from privtab.base.request import Decision, Request
from privtab.base.vocabulary import Vocabulary
from privtab.client._transport import Timeout
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.pipeline import load_program, optimised
from privtab.state.index import index_document
from privtab.state.nodes import State
from privtab_server.authzen.app import AppSettings, application
from privtab_server.authzen.points import DecisionPoint
from privtab_server.authzen.service import Service
from privtab_testing.conform import QuestionPlan, World
from privtab_testing.conform.authzen import AuthZenDriver
from privtab_testing.conform.plan import plan


class _Point(DecisionPoint):
    """A decision point over the `python` engine."""

    def __init__(self, engine: PythonEngine, program: Any) -> None:
        self._engine = engine
        self._vocabulary = Vocabulary.from_program(program)

    async def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        for request in requests:
            self._vocabulary.check(request)
        return [self._engine.allow(request) for request in requests]

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        return [Decision(allowed=allowed) for allowed in await self.check_many(requests)]

    async def ready(self) -> bool:
        return True

    async def close(self) -> None:
        pass


class _InProcess:
    """A transport into an application."""

    def __init__(self, app: ASGIApp, *, strips: bool = True) -> None:
        self._app, self._strips = app, strips

    def post(self, path: str, body: bytes, timeout: Timeout) -> bytes:
        del timeout
        if not self._strips:
            body = body.replace(b'"id": "user:', b'"id": "user of ')

        async def posted() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.post(path, content=body, headers={"Content-Type": "application/json"})

        answer = asyncio.run(posted())
        assert answer.status_code == 200, answer.text
        content: bytes = answer.content
        return content

    def get(self, path: str, timeout: Timeout) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        pass


class _Served(AuthZenDriver):
    """Takes the state that is prepared, unless it has another one."""

    def __init__(self, program: Program, state: State | None, *, prefixed: bool, strips: bool) -> None:
        self._named, self._strips = prefixed, strips
        self._program = program
        self._other_state = state
        self._document = json.loads(json.dumps(program_json(program, optimised(program))))

    def prepare(self, world: World) -> None:
        rows = world.state if self._other_state is None else self._other_state
        engine = PythonEngine(self._document, Index(json.loads(json.dumps(index_document(self._program, rows)))))
        service = Service(_Point(engine, self._document), system=self._program.system, brief=True)
        app = application(AppSettings(services={"": service}, base="http://localhost", max_body=1 << 26))
        super().__init__(_InProcess(app, strips=self._strips), url="http://localhost", prefixed=self._named)


def served(
    program: Program, state: State | None = None, *, prefixed: bool = False, strips: bool = True
) -> AuthZenDriver:
    """The driver of a server that decides by a program; `state`: what it holds whatever is prepared.

    `prefixed`: callers are named with their kind. `strips`: the server takes such a name for the name alone.
    """
    return _Served(program, state, prefixed=prefixed, strips=strips)


@cache
def shipped_plan(policy: str) -> QuestionPlan:
    """The plan for a shipped policy: it takes seconds to make, and no test changes it."""
    return plan(load_program(policy))
