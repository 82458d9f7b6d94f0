"""Who asks, and what was decided, for as long as a call of a service lasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from privtab.request import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A user, and the groups that count where the policy takes groups from requests."""

    user: str
    groups: tuple[str, ...] = ()


CallerLike: TypeAlias = Caller | str | None
"""A Caller, the name of a user, or nobody."""

_CALLER: ContextVar[Caller | None] = ContextVar("privtab_caller", default=None)
DECISION: ContextVar[Decision | None] = ContextVar("privtab_decision", default=None)


def caller() -> Caller | None:
    """Who asks now; None where nobody said."""
    return _CALLER.get()


def decision() -> Decision | None:
    """The decision that the innermost guarded call goes by: its effects are for the service to carry out."""
    return DECISION.get()


@contextmanager
def acting_as(user: CallerLike, *, groups: Iterable[str] = ()) -> Iterator[Caller | None]:
    """Everything inside is asked in this user's name, tasks and copies of the context included; None: in nobody's."""
    found = as_caller(user)
    if found is not None and groups:
        found = Caller(user=found.user, groups=tuple(groups))
    token = _CALLER.set(found)
    try:
        yield found
    finally:
        _CALLER.reset(token)


def as_caller(value: object) -> Caller | None:
    """A Caller from what services return; None for nobody, an empty name among them. Raises TypeError for anything else."""
    match value:
        case Caller(user=str(user)):
            return value if user else None
        case str():
            return Caller(user=value) if value else None
        case None:
            return None
        case _:
            raise TypeError(f"a user is a name, a Caller or None, not a {type(value).__name__}")
