"""Decisions in logs: read as rows of one schema, decided again using another policy or state, and searched for unused rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base import face

if TYPE_CHECKING:
    from privtab_logs.reading import read
    from privtab_logs.replaying import replay
    from privtab_logs.row_use import unused
else:
    __getattr__, __dir__, __all__ = face(__name__)
