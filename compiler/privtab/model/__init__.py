"""`Tables` → `Policy`: names resolved; defaults, variants and readings applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.model.names import DeclaredNames
    from privtab.model.nodes import Policy
    from privtab.model.resolution import resolve
else:
    __getattr__, __dir__, __all__ = face(__name__)
