"""The journal of a store as an HTML page, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Sequence

from privtab.serving.page import page
from privtab.state.row_text import row_text
from privtab.store.journal import Entry

MOST = 20
"""Maximum rows shown of one change."""


def journal_page(entries: Sequence[Entry], system: str, shown: str, *, most: int = 1000) -> str:
    """The HTML of changes, the newest first; `shown`: the address of the store in commands. At most `most` are shown."""
    newest = list(entries[-most:])[::-1]
    earlier = bool(newest) and newest[-1].number > 1
    return page(
        "store/journal", entries=newest, system=system, url=shown, earlier=earlier, row_text=row_text, MOST=MOST
    )
