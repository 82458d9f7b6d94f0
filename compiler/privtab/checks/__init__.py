"""Findings that search the whole policy, by subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.checks._every import BESIDE, catalogue, kinds, run
    from privtab.checks.lint.config import settings_above
    from privtab.checks.lint.settings import Settings, codes
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "_every": "BESIDE catalogue kinds run",
            "lint.config": "settings_above",
            "lint.settings": "Settings codes",
        },
    )
