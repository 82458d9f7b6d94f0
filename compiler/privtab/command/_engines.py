"""The engines of `decide`: the reference, an OPA, or the engine in process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, TypeAlias

from privtab.base import plugins
from privtab.base.records import dataclass
from privtab.base.request import Decision, Request
from privtab.command._output import err

if TYPE_CHECKING:
    from privtab.bundle.pack import BundledDoor
    from privtab.engines.opa.server import OpaServer
    from privtab.ir.nodes import Program
    from privtab.state.nodes import State


@dataclass(frozen=True, slots=True)
class Answers:
    """Decides checked requests, by position; `chunk` of them are best decided at once.

    >>> Answers(lambda requests: [Decision(allowed=False) for _ in requests]).decide([])
    []
    """

    decide: Callable[[Sequence[Request]], list[Decision]]
    chunk: int = 1000


Answering: TypeAlias = Callable[["Program", "State"], AbstractContextManager[Answers]]
"""An engine: answers with a policy and a state, while a block runs. The entry point of an engine is one."""


@contextmanager
def in_process(program: Program, state: State) -> Iterator[Answers]:
    """Answers from the engine in process, on the content that the bundles of a policy and a state have."""
    from privtab.engines.python import OpenEngine
    from privtab.pipeline import policy_artifacts
    from privtab.state.index import index_document

    opened = OpenEngine.of(policy_artifacts(program).program, index_document(program, state), time_ns())
    yield Answers(opened.engine.decide_many)


@contextmanager
def reference(program: Program, state: State) -> Iterator[Answers]:
    """Answers from the reference."""
    from privtab.pipeline import policy_revision
    from privtab.reference.evaluate import Reference

    decide = Reference(program, state, revision=policy_revision(program)).decide
    yield Answers(lambda requests: [decide(request) for request in requests], chunk=1)


@contextmanager
def asked_at(url: str, system: str) -> Iterator[Answers]:
    """Answers from a running OPA, with its own state."""
    from privtab import Client

    with Client(url, system=system) as client:
        yield Answers(client.decide_many)


@contextmanager
def started(program: Program, state: State) -> Iterator[Answers]:
    """Answers from an OPA started for the block, with this policy and this state."""
    with served(packed(program, state)) as server, asked_at(server.url, program.system) as answers:
        yield answers


_OWN: Mapping[str, Answering] = {"reference": reference, "opa": started, "python": in_process}
ENGINES = tuple(_OWN)
"""The engines of the core; plug-ins add others."""


def engine_named(name: str) -> Answering:
    """The engine with a name. Raises UsageError for an engine that nothing has."""
    found: Answering = _OWN.get(name) or plugins.load_plugin("privtab.engines", name, ENGINES)
    return found


def engine_names() -> tuple[str, ...]:
    """The names of all engines, plug-ins included, for completion."""
    return (*ENGINES, *plugins.plugin_names("privtab.engines"))


@contextmanager
def served(bundles: tuple[bytes, bytes], *, port: int = 0, binary: Path | None = None) -> Iterator[OpaServer]:
    """Run OPA on a policy bundle and a state bundle in a temporary folder."""
    from privtab.engines.opa.server import OpaServer

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-")))
        with err().spinner("starting OPA"):
            files = [folder / "policy.tar.gz", folder / "state.tar.gz"]
            for file, content in zip(files, bundles, strict=True):
                file.write_bytes(content)
            server = stack.enter_context(OpaServer(files, port=port, binary=binary))
        yield server


def packed(program: Program, state: State, doors: Sequence[BundledDoor] = ()) -> tuple[bytes, bytes]:
    """The policy bundle, with these doors, and the state bundle."""
    from privtab.bundle.pack import state_bundle
    from privtab.pipeline import policy_artifacts

    return policy_artifacts(program, doors=doors).bundle(), state_bundle(program, state)
