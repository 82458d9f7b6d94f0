"""Load names on first use, so that importing a package costs next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` that imports each name from its module."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get


def listed(names: Sequence[str]) -> Callable[[], list[str]]:
    """A module's `__dir__`: all exports, loaded or not, so that shells and notebooks complete them."""
    return lambda: sorted(names)
