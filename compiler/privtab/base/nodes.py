"""`dataclass` for the nodes of the compiler's trees, of which a large policy has a million."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privtab.base.records import dataclass as waiting

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, **options: Any) -> Any:
        """As dataclasses.dataclass; mypy alone checks `frozen`, since a node that checks it itself takes six times as long to make."""
        return waiting(unsafe_hash=frozen, **options)


__all__ = ["dataclass"]
