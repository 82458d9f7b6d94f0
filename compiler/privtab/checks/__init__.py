"""Findings that search the whole policy, by subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.checks._every import codes, run
    from privtab.checks.lint.settings import settings_above
else:
    __getattr__, __dir__, __all__ = face(__name__)
