"""Names that packages export: loaded on first use, so that importing costs next to nothing; former ones for one version."""

from __future__ import annotations

import warnings
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


def face(
    package: str, modules: Mapping[str, str], former: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package, from the names that it exports of each of its modules.

    The package says the same to type checkers with imports under `if TYPE_CHECKING`, and assigns these three in its `else`.
    `former`: the current name for each former one, which gives a DeprecationWarning.

    >>> __getattr__, __dir__, __all__ = face("privtab.base", {"errors": "PolicyError UsageError"})
    >>> __getattr__("UsageError").__name__, __all__
    ('UsageError', ['PolicyError', 'UsageError'])
    """
    places = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}
    get = lazily(package, places)

    def get_also_former(name: str) -> Any:
        if former is None or name not in former:
            return get(name)
        warnings.warn(f"`{package}.{name}` is now `{former[name]}`", DeprecationWarning, stacklevel=2)
        return getattr(import_module(package), former[name])

    return get_also_former, listed(tuple(places)), sorted(places)
