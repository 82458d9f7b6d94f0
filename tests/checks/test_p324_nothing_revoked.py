from __future__ import annotations

from collections.abc import Callable
from typing import Any

CREATE = "create: {requires: WRITE (shop), grants: READ (shelf)}, look: READ (shelf)"
OTHER = "item: {delete: {requires: WRITE (item), revokes: WRITE (item), destructive: true}}"


def test_a_deletion_that_leaves_grants(only: Callable[..., Any]) -> None:
    found = only(f"tables: {{shelf: {{{CREATE}, delete: WRITE (shelf)}}, {OTHER}}}\n", "P324")
    assert found.message == "`delete` leaves `READ` of the `shelf` behind"
    assert found.help == "whoever creates another with the same name inherits it: add `revokes: READ`"
    assert found.under == "delete"


def test_no_finding_where_the_file_never_revokes(codes: Callable[[str], list[str]]) -> None:
    assert "P324" not in codes(f"tables: {{shelf: {{{CREATE}, delete: WRITE (shelf)}}}}\n")


def test_no_finding_where_nothing_is_given_or_all_goes(codes: Callable[[str], list[str]]) -> None:
    assert "P324" not in codes(f"tables: {{shelf: {{look: READ (shelf), delete: WRITE (shelf)}}, {OTHER}}}\n")
    assert "P324" not in codes(
        f"tables: {{shelf: {{{CREATE}, delete: {{requires: WRITE (shelf), revokes: READ (shelf), destructive: true}}}}}}\n"
    )
