"""The answers of a web service to refused requests: RFC 9457 problem documents with a chosen amount of detail."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Any, TypeAlias

from privtab.base import AccessDenied, Decision, DecisionError, DecisionUnavailable, InvalidRequest


class Unauthenticated(InvalidRequest):
    """A request to a service has no user that the service knows; nothing was sent."""


LOG = logging.getLogger("privtab.web")
CONTENT_TYPE = "application/problem+json"


class Tell(StrEnum):
    """The amount of detail that a refused caller gets."""

    NOTHING = "nothing"
    """Only the refusal and the decision's id, with which operators find the rest in the log."""
    RULE = "rule"
    """Also the rule."""
    SUMMARY = "summary"
    """Also one line with what is missing, which discloses names of privileges, roles and groups."""
    REASONS = "reasons"
    """Also everything that would turn the denial: of a large policy, several kilobytes."""


_DETAILED = (Tell.SUMMARY, Tell.REASONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    problem: Mapping[str, Any]

    @property
    def body(self) -> bytes:
        """The problem document."""
        return json.dumps(self.problem, ensure_ascii=False).encode(errors="replace")

    def fields(self) -> list[tuple[str, str]]:
        """All headers of the answer."""
        standard = {"Content-Type": CONTENT_TYPE, "Content-Length": str(len(self.body)), "Cache-Control": "no-store"}
        return [*standard.items(), *self.headers.items()]


def answer(error: DecisionError, tell: Tell) -> HttpResponse:
    """401 without a caller, 403 for a denial, 400 for an invalid request, 503 if the PDP is unavailable, else 500.

    Errors between a service and its PDP are logged but not shown to the caller.
    """
    match error:
        case AccessDenied():
            return _denied(error, tell)
        case Unauthenticated():
            return _answer(401, "authentication required", headers={"WWW-Authenticate": "Bearer"})
        case InvalidRequest():
            LOG.info("a request that makes no sense was refused: %s", error)
            return _answer(400, "invalid request", detail=str(error) if tell in _DETAILED else None)
        case DecisionUnavailable():
            LOG.error("refused, since no decision could be had: %s", error)
            wait = ceil(error.retry_after) if error.retry_after is not None else 1
            return _answer(503, "no decision available", headers={"Retry-After": str(wait)})
        case _:
            LOG.error("refused, since the decision point gave no decision: %s", error)
            return _answer(500, "no decision")


def unmapped(method: str, path: str) -> HttpResponse:
    """The answer for a request that no route maps to an operation: refused."""
    LOG.warning("no route maps it: %s %r", method, path)
    return _answer(403, "access denied")


def _denied(error: AccessDenied, tell: Tell) -> HttpResponse:
    decision = error.decision
    members: dict[str, Any] = {}
    if decision.id is not None:
        members["decision_id"] = decision.id
    if tell is not Tell.NOTHING:
        members["rule"] = decision.rule
    if tell is Tell.REASONS:
        members["missing"] = [list(way) for way in decision.missing]
    detail = decision.describe(error.request, brief=tell is Tell.SUMMARY) if tell in _DETAILED else None
    return _answer(403, "access denied", detail=detail, **members)


def _answer(
    status: int, title: str, *, detail: str | None = None, headers: Mapping[str, str] | None = None, **members: Any
) -> HttpResponse:
    problem: dict[str, Any] = {"title": title, "status": status}
    if detail is not None:
        problem["detail"] = detail
    return HttpResponse(status=status, headers=headers or {}, problem=problem | members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A user, and their groups, which count if the policy takes groups from requests."""

    user: str
    groups: tuple[str, ...] = ()


CallerLike: TypeAlias = Caller | str | None
"""A Caller, the name of a user, or None."""

_CALLER: ContextVar[Caller | None] = ContextVar("privtab_caller", default=None)
DECISION: ContextVar[Decision | None] = ContextVar("privtab_decision", default=None)


def caller() -> Caller | None:
    """The current caller, or None."""
    return _CALLER.get()


def decision() -> Decision | None:
    """The decision of the innermost guarded call; the service has to carry out its effects."""
    return DECISION.get()


@contextmanager
def decided(decision: Decision | None) -> Iterator[None]:
    """Make this the decision of the guarded call in the block."""
    token = DECISION.set(decision)
    try:
        yield
    finally:
        DECISION.reset(token)


@contextmanager
def acting_as(user: CallerLike, *, groups: Iterable[str] = ()) -> Iterator[Caller | None]:
    """Make decisions in the block for this user, also in tasks and copies of the context; None: for no user."""
    current = as_caller(user)
    if current is not None and groups:
        current = Caller(user=current.user, groups=tuple(groups))
    token = _CALLER.set(current)
    try:
        yield current
    finally:
        _CALLER.reset(token)


def as_caller(value: object) -> Caller | None:
    """Convert what services return to a Caller; None for None or an empty name. Raises TypeError for anything else."""
    match value:
        case Caller(user=str(user)):
            return value if user else None
        case str():
            return Caller(user=value) if value else None
        case None:
            return None
        case _:
            raise TypeError(f"a user is a name, a Caller or None, not a {type(value).__name__}")
