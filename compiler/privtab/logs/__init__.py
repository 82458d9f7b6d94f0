"""What was decided, as logs tell it: decisions read as rows of one schema, decided again by another policy or state, and what they used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab._lazy import lazily, listed

if TYPE_CHECKING:
    from privtab.logs.reading import read
    from privtab.logs.replaying import replay
    from privtab.logs.row_use import unused

__all__ = ["read", "replay", "unused"]

__getattr__ = lazily(
    __name__, {"read": "privtab.logs.reading", "replay": "privtab.logs.replaying", "unused": "privtab.logs.row_use"}
)
__dir__ = listed(__all__)
