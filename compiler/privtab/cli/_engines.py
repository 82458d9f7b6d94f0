"""What answers `decide`: the reference meaning, an OPA, or an engine in process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never

from privtab.cli._output import waiting
from privtab.request import Decision, Request

if TYPE_CHECKING:
    from privtab import Client
    from privtab.ir.nodes import Program
    from privtab.opa.server import OpaServer
    from privtab.state.nodes import State


class Engine(StrEnum):
    """The engines by the names of the design."""

    REFERENCE = "reference"
    OPA = "opa"
    PYTHON = "python"
    WASM = "wasm"


class Answers(Protocol):
    """Answers requests whose names have been checked, by position."""

    chunk: int
    """How many requests are best asked at once."""

    def decide(self, requests: Sequence[Request]) -> list[Decision]:
        """The decision of each request."""


class ReferenceAnswers:
    """The plain reading of the policy, in this process."""

    chunk = 1

    def __init__(self, program: Program, state: State) -> None:
        from privtab.pipeline import policy_artifacts
        from privtab.reference.evaluate import Reference

        self._reference = Reference(program, state, revision=policy_artifacts(program).revision)

    def decide(self, requests: Sequence[Request]) -> list[Decision]:
        """The decision of each request."""
        return [self._reference.decide(request) for request in requests]


class OpaAnswers:
    """An OPA over HTTP, asked for whole decisions in batches."""

    chunk = 1000

    def __init__(self, client: Client) -> None:
        self._client = client

    def decide(self, requests: Sequence[Request]) -> list[Decision]:
        """The decision of each request."""
        return self._client.decide_many(requests)


class EngineAnswers:
    """An engine in this process, over what the bundles carry."""

    chunk = 1000

    def __init__(self, decide_many: Callable[[Sequence[Request]], list[Decision]]) -> None:
        self._decide_many = decide_many

    def decide(self, requests: Sequence[Request]) -> list[Decision]:
        """The decision of each request."""
        return self._decide_many(requests)


def answering(engine: Engine, program: Program, state: State) -> AbstractContextManager[Answers]:
    """What answers for an engine, with this policy and this state."""
    match engine:
        case Engine.REFERENCE:
            return reference(program, state)
        case Engine.OPA:
            return started(program, state)
        case Engine.PYTHON | Engine.WASM:
            return in_process(engine, program, state)
        case _:
            assert_never(engine)


@contextmanager
def in_process(engine: Engine, program: Program, state: State) -> Iterator[Answers]:
    """The engine `python`, or `wasm` on what OPA compiles the policy to."""
    from privtab.pipeline import policy_artifacts, wasm_modules
    from privtab.state.index import index

    artifacts, document = policy_artifacts(program), index(program, state)
    if engine is Engine.PYTHON:
        from privtab.engines.index import Index
        from privtab.engines.python import PythonEngine

        yield EngineAnswers(PythonEngine(artifacts.program, Index(document)).decide_many)
        return
    from privtab.engines.wasm import WasmEngine
    from privtab.opa.wasm import build

    with waiting("compiling to Wasm"):
        module = build(wasm_modules(program), artifacts.entrypoints)
    yield EngineAnswers(WasmEngine(module, artifacts.program, document).decide_many)


@contextmanager
def reference(program: Program, state: State) -> Iterator[Answers]:
    """The reference meaning."""
    yield ReferenceAnswers(program, state)


@contextmanager
def asked_at(url: str, system: str) -> Iterator[Answers]:
    """An OPA that runs already; its own state decides."""
    from privtab import Client

    with Client(url, system=system) as client:
        yield OpaAnswers(client)


@contextmanager
def started(program: Program, state: State) -> Iterator[Answers]:
    """An OPA of our own, with this policy and this state, for as long as the block lasts."""
    with served(packed(program, state)) as server, asked_at(server.url, program.system) as answers:
        yield answers


@contextmanager
def served(bundles: tuple[bytes, bytes], *, port: int = 0, binary: Path | None = None) -> Iterator[OpaServer]:
    """Run OPA on a policy and a state bundle, which lie in a temporary folder."""
    from privtab.opa.server import OpaServer

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-")))
        with waiting("starting OPA"):
            files = [folder / "policy.tar.gz", folder / "state.tar.gz"]
            for file, content in zip(files, bundles, strict=True):
                file.write_bytes(content)
            server = stack.enter_context(OpaServer(files, port=port, binary=binary))
        yield server


def packed(program: Program, state: State) -> tuple[bytes, bytes]:
    """The policy bundle and the state bundle."""
    from privtab.bundle.pack import state_bundle
    from privtab.pipeline import policy_bundle

    return policy_bundle(program), state_bundle(program, state)
