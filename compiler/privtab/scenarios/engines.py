"""Engines that decide the cases: the reference, or a real OPA whose state is replaced for each world."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from privtab.errors import OpaError
from privtab.ir.nodes import Effect, Program
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.request import Decision, Request
from privtab.state.nodes import State

if TYPE_CHECKING:
    from privtab.client._sender import Sender
    from privtab.client.sync import Client

TIMEOUT = (1.0, 60.0)
"""Connect and read timeouts in seconds; a batch of explained decisions, or a large state, takes a while."""

_LARGEST = 1 << 20
"""Bytes of OPA's answer to a state."""


class Engine(Protocol):
    """Decides requests in one state after another."""

    name: str
    knows_effects: bool
    """Whether decisions without explanation include effects."""

    def decide(self, state: State, requests: Sequence[Request], *, explain: Sequence[bool]) -> list[Decision]:
        """Decide requests in one state; those without `explain` get a brief decision."""


class ReferenceEngine:
    """The reference engine."""

    name = "reference"
    knows_effects = True

    def __init__(self, program: Program) -> None:
        self.program = program
        self._references: dict[int, tuple[State, Reference]] = {}

    def decide(self, state: State, requests: Sequence[Request], *, explain: Sequence[bool]) -> list[Decision]:
        """Decide requests in one state."""
        reference = self.reference(state)
        return [
            reference.decide(request) if in_full else self._decide_briefly(reference, request)
            for request, in_full in zip(requests, explain, strict=True)
        ]

    def reference(self, state: State) -> Reference:
        """The reference for a state, built once."""
        if id(state) not in self._references:
            self._references[id(state)] = state, Reference(self.program, state)
        return self._references[id(state)][1]

    def _decide_briefly(self, reference: Reference, request: Request) -> Decision:
        context = EvaluationContext(reference, request)
        rule = self.program.rules[request.resource.type, request.action]
        allowed = context.holds(context.condition(rule))
        effects = [effect_text(context, effect) for effect in rule.effects] if allowed else []
        return Decision(allowed=allowed, context={"effects": effects})


def effect_text(context: EvaluationContext, effect: Effect) -> str:
    """The text of an effect, as in decisions: `grant ALL (namespace:i/n)`."""
    path = context.path(effect.target)
    return f"{effect.text} ({path[-1] if path else effect.target.type})"


class OpaEngine:
    """A running OPA with the policy's bundle, whose state is replaced for each world."""

    name = "opa"
    knows_effects = False

    def __init__(self, program: Program, url: str, client: Client, sender: Sender) -> None:
        self.program = program
        self._sender = sender
        self._url = f"{url}/v1/data/privtab_state/{program.system}"
        self._client = client
        self._current_state: State | None = None

    def decide(self, state: State, requests: Sequence[Request], *, explain: Sequence[bool]) -> list[Decision]:
        """Decide requests in one state."""
        if self._current_state is not state:
            self._put_state(state)
            self._current_state = state
        explained = iter(
            self._client.decide_many([request for request, in_full in zip(requests, explain, strict=True) if in_full])
        )
        brief = iter(
            self._client.check_many(
                [request for request, in_full in zip(requests, explain, strict=True) if not in_full]
            )
        )
        return [next(explained) if in_full else Decision(allowed=next(brief)) for in_full in explain]

    def _put_state(self, state: State) -> None:
        from privtab.client._sender import SendError
        from privtab.state.index import index

        try:
            answer = self._sender.send("PUT", self._url, index(self.program, state))
        except SendError as error:
            raise OpaError(f"OPA took no state: {error.why}") from error
        if answer.status >= 300:
            raise OpaError(f"OPA refused a state: {answer.status} {answer.body[:200].decode(errors='replace')}")


@contextmanager
def opa(program: Program) -> Iterator[OpaEngine]:
    """Start an OPA for the duration of the block."""
    from privtab.client._sender import Sender
    from privtab.client.sync import Client
    from privtab.opa.server import OpaServer
    from privtab.pipeline import policy_bundle

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-")))
        bundle = folder / "policy.tar.gz"
        bundle.write_bytes(policy_bundle(program))
        server = stack.enter_context(OpaServer([bundle]))
        client = stack.enter_context(Client(server.url, system=program.system, timeout=TIMEOUT))
        sender = stack.enter_context(Sender(timeout=TIMEOUT, seconds=sum(TIMEOUT), largest=_LARGEST))
        yield OpaEngine(program, server.url, client, sender)
