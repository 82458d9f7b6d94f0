from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

OWNERS = "semantics: {owner: {kinds: [user]}}\n"


@pytest.mark.parametrize(
    ("row", "note", "fact"),
    [
        (
            "each: READ (shelf)",
            "Listing will list all the shelves, even if the user has no access.",
            "items are left out",
        ),
        ("requires: READ (shelf)", "Any user may look.", "something is required of the caller"),
        ("requires: READ (shelf)", "No privilege is required.", "something is required of the caller"),
        ("requires: READ (shelf) or owner (shelf)", "Only the owner may look.", "others pass too"),
        ("requires: READ (shelf)", "Only service administrators may.", "others pass too"),
        ("requires: READ (shelf), grants: WRITE (shelf)", "It has no effect.", "it has effects"),
        ("requires: READ + WRITE (shelf)", "READ is not needed.", "no caller passes without `READ`"),
        ("requires: READ/WRITE (shelf)", "READ alone is not enough.", "`READ` is enough"),
    ],
)
def test_a_claim_that_is_not_so(only: Callable[..., Any], row: str, note: str, fact: str) -> None:
    found = only(f'{OWNERS}tables: {{shelf: {{look: {{{row}, note: "{note}"}}}}}}\n', "P317")
    assert found.message.startswith("the note of `look` says `")
    assert found.message.endswith(f"`, but {fact}")
    assert found.under == "look"


@pytest.mark.parametrize(
    ("row", "note"),
    [
        ("requires: READ (shop), each: anyone", "It lists all shelves even if the user has no privilege on them."),
        ("requires: anyone", "Any user may look."),
        ("requires: READ (shelf)", "Any user who holds READ may look."),
        ("requires: READ (shelf) and owner (shelf)", "Only the owner may look."),
        ("requires: service admin", "Only service administrators may."),
        ("requires: READ (shelf)", "The caller gets nothing by it, so the row has no effect."),
        ("requires: READ/WRITE (shelf)", "READ is not needed, WRITE will do."),
        ("requires: READ + WRITE (shelf)", "READ alone is not enough."),
        ("requires: READ (shelf)", "Nothing in it is left out."),
    ],
)
def test_no_finding(codes: Callable[[str], list[str]], row: str, note: str) -> None:
    assert "P317" not in codes(f'{OWNERS}tables: {{shelf: {{look: {{{row}, note: "{note}"}}}}}}\n')
