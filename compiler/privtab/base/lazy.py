"""Names that packages export: loaded on first use, so that importing costs next to nothing; former ones for one version."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar


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


def face(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package, from the names that it exports of each of its modules.

    The package says the same to type checkers with imports under `if TYPE_CHECKING`, and assigns these three in its `else`.

    >>> __getattr__, __dir__, __all__ = face("privtab.base", {"errors": "PolicyError UsageError"})
    >>> __getattr__("UsageError").__name__, __all__
    ('UsageError', ['PolicyError', 'UsageError'])
    """
    places = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}
    return lazily(package, places), listed(tuple(places)), sorted(places)


P = ParamSpec("P")
R = TypeVar("R")


def renamed(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` for former names, which returns the new one with a DeprecationWarning."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        warnings.warn(f"`{package}.{name}` is now `{names[name]}`", DeprecationWarning, stacklevel=2)
        return getattr(import_module(package), names[name])

    return get


def renamed_keyword(former: str, current: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator for a function that accepts the former name of a keyword argument, too; both at once are a TypeError."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if former in kwargs:
                if current in kwargs:
                    raise TypeError(f"{function.__name__}() got both `{former}` and `{current}`")
                warnings.warn(
                    f"`{former}` of `{function.__name__}` is now `{current}`", DeprecationWarning, stacklevel=2
                )
                kwargs[current] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return decorate
