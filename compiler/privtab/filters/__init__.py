"""The entities of a type that one user may see, as one expression over the names of its paths, for queries over tables of entities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.filters.filter import Filter, filter_of
else:
    __getattr__, __dir__, __all__ = face(__name__)
