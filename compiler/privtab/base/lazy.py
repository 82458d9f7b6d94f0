"""Names that packages export: loaded on first use, so that importing costs next to nothing; former ones for one version."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


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
    names = sorted(places)

    def get(name: str) -> Any:
        if former is not None and name in former:
            warnings.warn(f"`{package}.{name}` is now `{former[name]}`", DeprecationWarning, stacklevel=2)
            return getattr(import_module(package), former[name])
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(places[name]), name)
        # Kept in the package: `ir.Has` in a loop is looked up once.
        setattr(import_module(package), name, found)
        return found

    # Shells and notebooks complete all exports, loaded or not.
    return get, lambda: names, names
