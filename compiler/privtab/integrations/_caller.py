"""The current caller and decision, kept in context variables for the duration of a call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from privtab.request import Decision


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
