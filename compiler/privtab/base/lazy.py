"""Names that packages export, loaded on first use, and patterns, compiled then, so that importing a package costs next to nothing."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
"""As that of `typing`, whose import takes longer than all else of `privtab --version`."""
if TYPE_CHECKING:
    import re
    from collections.abc import Callable
    from typing import Any

    pattern = re.compile
else:

    class pattern:  # noqa: N801  `re.compile` to type checkers and readers
        """A regular expression that is compiled when it is first used: `pattern("[a-z]+").match`."""

        def __init__(self, text: str, flags: int = 0) -> None:
            self.written = text, flags

        def __reduce__(self) -> tuple[Any, ...]:
            return pattern, self.written

        def __getattr__(self, name: str) -> Any:
            import re

            found = getattr(re.compile(*self.written), name)
            setattr(self, name, found)
            return found


_BLOCK = "if TYPE_CHECKING:\n"


def face(package: str, *others: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package: the names that it imports under `if TYPE_CHECKING`.

    The package assigns these three in the `else`, and says there alone what it exports: type checkers read the imports, and so does this. `others`: exports that the package defines.

    >>> __getattr__, __dir__, __all__ = face("privtab.filters")
    >>> __getattr__("Filter").__name__, __all__
    ('Filter', ['Filter', 'filter_of'])
    """
    module: Any = import_module(package) if package not in sys.modules else sys.modules[package]
    source = module.__spec__.loader.get_data(module.__spec__.origin).decode()
    imports = source.partition(_BLOCK)[2].partition("\nelse:")[0]
    places = {
        name.strip(): place
        for place, _, listed in (line.partition(" import ") for line in imports.split("    from ")[1:])
        for name in listed.strip("(,) \n").split(",")
    }
    names = sorted((*places, *others))

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(places[name]), name)
        # Kept in the package: `ir.Has` in a loop is looked up once.
        setattr(module, name, found)
        return found

    # Shells and notebooks complete all exports, loaded or not.
    return get, lambda: names, names
