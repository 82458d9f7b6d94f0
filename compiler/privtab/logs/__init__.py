"""What was decided, as logs tell it: decisions read as rows of one schema, and decided again by another policy or state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab._lazy import lazily, listed

if TYPE_CHECKING:
    from privtab.logs.reading import read
    from privtab.logs.replaying import replay

__all__ = ["read", "replay"]

__getattr__ = lazily(__name__, {"read": "privtab.logs.reading", "replay": "privtab.logs.replaying"})
__dir__ = listed(__all__)
