"""Locks do not survive a fork: one that another thread holds would never be given back in the child."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class ForkSafeLocks(Protocol):
    """Has locks."""

    def after_fork(self) -> None:
        """Make them anew; called in the child."""


_ALIVE: WeakSet[ForkSafeLocks] = WeakSet()


def renew_after_fork(thing: ForkSafeLocks) -> None:
    """From now on `thing.after_fork()` is called in forked processes."""
    _ALIVE.add(thing)


def _renew() -> None:
    for thing in list(_ALIVE):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
