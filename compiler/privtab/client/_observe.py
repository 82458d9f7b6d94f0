"""Report every decision: ids, logs, and hooks for tracing and metrics.

Nothing here has access to tokens, headers or bodies.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field
from typing import TypeAlias

from privtab.base.records import dataclass
from privtab.base.request import Decision, Request

LOG = logging.getLogger("privtab.client")


class CallContext:
    """The context of one call of a client: its deadline, and the decision ids that the PDP returned."""

    __slots__ = ("cached", "deadline", "ids")

    def __init__(self) -> None:
        self.deadline: float | None = None
        """The time on the monotonic clock; set by the first exchange."""
        self.ids: list[str] = []
        self.cached: list[int] = []
        """The positions of requests answered from the cache."""


CURRENT: ContextVar[CallContext | None] = ContextVar("privtab_asked", default=None)


def note_id(decision_id: object) -> None:
    """Record the PDP's id of a decision."""
    context = CURRENT.get()
    if context is not None and isinstance(decision_id, str):
        context.ids.append(decision_id)


def note_cached(position: int = 0) -> None:
    """Record that a request was answered from the cache."""
    context = CURRENT.get()
    if context is not None:
        context.cached.append(position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question of a call, before anything is sent.

    >>> Question(kind="check_many", engine="opa", mode="enforce", request=None, count=2).count
    2
    """

    kind: str
    """The method: `check`, `decide`, `require`, `check_many`, `decide_many`, `visible`."""
    engine: str
    mode: str
    request: Request | None
    """None for calls with many requests, or if the arguments are invalid."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a call.

    >>> asked = Question(kind="check_many", engine="opa", mode="enforce", request=None, count=2)
    >>> Outcome(id="1", allowed=1).word(asked)
    'mixed'
    """

    id: str
    """The PDP's id of the decision if it returns one (OPA does if it logs decisions), else a generated one."""
    ids: Sequence[str] = ()
    """All ids from the PDP; several if the call took several exchanges."""
    system: str | None = None
    revision: str | None = None
    """The policy's revision."""
    rule: str | None = None
    allowed: int = 0
    """Number of requests of `Question.count` that the policy allows, regardless of the mode."""
    seconds: float = 0.0
    cached: int = 0
    """Number of requests answered from the cache."""
    decision: Decision | None = None
    error: BaseException | None = None
    """Usually a DecisionError; for a cancelled call, the exception that cancelled it."""

    def word(self, question: Question) -> str:
        """The outcome as one word: `allow`, `deny`, `mixed` (of many requests), `error`."""
        if self.error is not None:
            return "error"
        if self.allowed in (0, question.count):
            return "allow" if self.allowed or not question.count else "deny"
        return "mixed"

    def fields(self, question: Question, *, identities: bool = True) -> dict[str, str | int | float]:
        """A decision as flat values, for structured logs and spans; unknown ones are omitted.

        `identities`: include the user and the path of the resource. Groups, further objects and flags are never included.
        """
        request = question.request
        found: dict[str, str | int | float | None] = {
            "kind": question.kind,
            "engine": question.engine,
            "mode": question.mode,
            "system": self.system,
            "action": request.action if request is not None else None,
            "type": request.resource.type if request is not None else None,
            "user": request.user if request is not None and identities else None,
            "resource": str(request.resource) if request is not None and identities else None,
            "rule": self.rule,
            "revision": self.revision,
            "decision_id": self.id,
            "outcome": self.word(question),
            "count": question.count,
            "allowed": self.allowed,
            "cached": self.cached,
            "seconds": self.seconds,
            "error": type(self.error).__name__ if self.error is not None else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def line(self, question: Question) -> str:
        """A decision as one readable line."""
        request = question.request
        if request is not None:
            subject = f"user:{request.user} {request.action} {request.resource}"
            answer = "allow" if self.allowed else "deny"
        else:
            subject = f"{question.count} request(s)"
            answer = f"{self.allowed} allowed"
        if self.error is not None:
            answer = f"{type(self.error).__name__}: {self.error}"
        return (
            f"{question.kind} {subject}: {answer} (engine {question.engine}, rule {self.rule}, revision {self.revision}, "
            f"id {self.id}, {self.seconds * 1000:.1f} ms)"
        )


class Hook:
    """Called for every decision; exceptions in a hook are logged and suppressed.

    Subclass the class, and pass an instance to a client:

        Client(url, hooks=[DecisionLog()])
    """

    def before(self, question: Question) -> object:  # noqa: ARG002  (for subclasses)
        """Called before anything is sent; the result is passed to `after`."""
        return None

    def after(self, question: Question, outcome: Outcome, begun: object) -> None:
        """Called when the call has ended, successfully or not."""

    def headers(self) -> Mapping[str, str]:
        """Additional headers for each exchange with a PDP, such as a trace context."""
        return {}


HookLike: TypeAlias = Hook | Callable[[Question, Outcome], None]
"""A Hook, or a function to call when a call has ended."""


@dataclass(slots=True)
class Watch:
    """A call in progress, with hooks or debug logging to report it."""

    question: Question
    hook_states: tuple[object, ...]
    counts_at_start: tuple[int, int]
    """Numbers of ids and cached answers at its start: one call of many requests can consist of several questions."""
    started: float = field(default_factory=time.perf_counter)


class _Function(Hook):
    def __init__(self, function: Callable[[Question, Outcome], None]) -> None:
        self.function = function

    def after(self, question: Question, outcome: Outcome, begun: object) -> None:
        del begun
        self.function(question, outcome)


class Observer:
    """Reports calls to hooks and to the log."""

    def __init__(self, hooks: Sequence[HookLike] = ()) -> None:
        self.hooks = tuple(hook if isinstance(hook, Hook) else _Function(hook) for hook in hooks)

    def begin(self, kind: str, engine: str, mode: str, request: Request | None, count: int) -> Watch | None:
        """Start watching a call; None, at no cost, if there are no hooks and no debug log."""
        if not self.hooks and not LOG.isEnabledFor(logging.DEBUG):
            return None
        question = Question(kind=kind, engine=engine, mode=mode, request=request, count=count)
        context = CURRENT.get()
        counts = (len(context.ids), len(context.cached)) if context is not None else (0, 0)
        return Watch(question, tuple(self._call(hook.before, question) for hook in self.hooks), counts)

    def end(
        self,
        watch: Watch,
        *,
        system: str | None = None,
        revision: str | None = None,
        rule: str | None = None,
        allowed: int = 0,
        decision: Decision | None = None,
        error: BaseException | None = None,
    ) -> None:
        context = CURRENT.get()
        ids = tuple(context.ids[watch.counts_at_start[0] :]) if context is not None else ()
        own_id = decision.id if decision is not None else None
        outcome = Outcome(
            id=own_id or (ids[-1] if ids else new_id()),
            ids=ids,
            system=system,
            revision=decision.revision or revision if decision is not None else revision,
            rule=decision.rule or rule if decision is not None else rule,
            allowed=allowed,
            seconds=time.perf_counter() - watch.started,
            cached=len(context.cached) - watch.counts_at_start[1] if context is not None else 0,
            decision=decision,
            error=error,
        )
        question = watch.question
        if LOG.isEnabledFor(logging.DEBUG):
            LOG.debug("%s", outcome.line(question), extra={"privtab": outcome.fields(question)})
        for hook, hook_state in zip(self.hooks, watch.hook_states, strict=True):
            self._call(hook.after, question, outcome, hook_state)

    def headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for hook in self.hooks:
            extra = self._call(hook.headers)
            if isinstance(extra, Mapping):
                found.update(extra)
        return found

    @staticmethod
    def _call(function: Callable[..., object], *arguments: object) -> object:
        try:
            return function(*arguments)
        except Exception:
            LOG.exception("a hook failed; the decision is not touched by it")
            return None


def new_id() -> str:
    return str(uuid.uuid4())
