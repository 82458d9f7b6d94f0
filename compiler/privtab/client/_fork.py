"""Renew locks after a fork: one held by another thread would never be released in the child."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class ForkSafeLocks(Protocol):
    """An object with locks."""

    def after_fork(self) -> None:
        """Replace the locks; called in the child process."""


_HOLDERS: WeakSet[ForkSafeLocks] = WeakSet()


def renew_after_fork(holder: ForkSafeLocks) -> None:
    """Call `holder.after_fork()` in processes forked from now on."""
    _HOLDERS.add(holder)


def _renew() -> None:
    for holder in list(_HOLDERS):
        holder.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
