"""What was decided, as logs tell it: decisions read as rows of one schema, decided again by another policy or state, and what they used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import lazily, listed

if TYPE_CHECKING:
    from privtab_logs.reading import read
    from privtab_logs.replaying import replay
    from privtab_logs.row_use import unused

__all__ = ["read", "replay", "unused"]

__getattr__ = lazily(
    __name__, {"read": "privtab_logs.reading", "replay": "privtab_logs.replaying", "unused": "privtab_logs.row_use"}
)
__dir__ = listed(__all__)
